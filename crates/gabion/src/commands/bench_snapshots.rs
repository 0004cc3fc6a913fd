//! `gabion bench snapshots`.

use anyhow::{Context, Result, bail};
use bench::snapshots::Options;
use indicatif::ProgressBar;

use crate::cli::{Global, SnapshotsArgs};
use crate::failure::Outcome;
use crate::output;

const PROMISES: &str = "\
snapshots: one reactor core, memory drives, in-process load. Every write is logged with header, MAC, checksums and parity, and so is what
a snapshot is known by; every read is verified against its checksum and looked at. Memory drives keep what they are given,
so nothing is flushed.";

/// Bytes of each volume.
const VOLUME: u64 = 128 << 20;

/// Measures and prints.
///
/// # Errors
/// When the benchmark cannot run, or a block does not hold what was written.
pub(crate) fn run(global: &Global, arguments: &SnapshotsArgs) -> Result<Outcome> {
    let options = Options {
        volume_bytes: VOLUME,
        snapshots: arguments.snapshots,
        changes: arguments.changes,
        seconds: arguments.seconds,
        rounds: arguments.rounds,
    };
    let table = !global.json && !global.quiet;
    if table {
        super::print(&format!("{PROMISES}\nmachine: {}\n", bench::machine()))?;
    }
    let spinner = if global.quiet { ProgressBar::hidden() } else { ProgressBar::new_spinner() };
    let tell = |part: &str| {
        spinner.set_message(part.to_owned());
        // No ticking thread: it would take its time from what is measured.
        spinner.tick();
    };
    let found = bench::snapshots::run(&options, tell).context("measuring snapshots")?;
    spinner.finish_and_clear();
    if global.json {
        super::print(&super::to_json(&found)?)?;
    } else if table {
        super::print(&output::snapshots_measured(&found))?;
    }
    if found.wrong > 0 {
        bail!("{} blocks did not hold what was written: the figures mean nothing", found.wrong);
    }
    Ok(Outcome::Done)
}
