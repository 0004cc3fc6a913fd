//! `gabion bench fairness`.

use anyhow::{Context, Result, bail};
use bench::fairness::{Drives, Options};
use indicatif::ProgressBar;

use crate::cli::{FairnessArgs, Global};
use crate::failure::Outcome;
use crate::output;

const PROMISES: &str = "\
fairness: one reactor core, in-process load, two volumes of one pool. Every write is logged with header, MAC, checksums and parity, every
read is verified against its checksum and looked at. Nobody asks for a flush.";

/// Measures and prints.
///
/// # Errors
/// When the benchmark cannot run, or a block does not hold what was written.
pub(crate) fn run(global: &Global, arguments: &FairnessArgs) -> Result<Outcome> {
    let drives = match &arguments.directory {
        Some(directory) => Drives::Files(directory.clone()),
        None => Drives::Paths(arguments.drives.clone()),
    };
    let options = Options {
        scheme: arguments.scheme,
        count: arguments.scheme.width().into(),
        drives,
        drive_bytes: arguments.drive_size.0,
        volume_bytes: arguments.volume.0,
        depth: arguments.depth,
        seconds: arguments.seconds,
        rounds: arguments.rounds,
    };
    let table = !global.json && !global.quiet;
    if table {
        super::print(&format!("{PROMISES}\nmachine: {}\n", bench::machine()))?;
    }
    let spinner = if global.quiet { ProgressBar::hidden() } else { ProgressBar::new_spinner() };
    let mut tell = |step: &str| {
        spinner.set_message(step.to_owned());
        // No ticking thread: it would take its time from what is measured.
        spinner.tick();
    };
    let found = bench::fairness::run(&options, &mut tell).context("measuring how volumes share");
    spinner.finish_and_clear();
    let found = found?;
    if global.json {
        super::print(&super::to_json(&found)?)?;
    } else if table {
        super::print(&output::fairness(&found))?;
    }
    if found.wrong > 0 {
        bail!("{} blocks did not hold what was written: the figures mean nothing", found.wrong);
    }
    Ok(Outcome::Done)
}
