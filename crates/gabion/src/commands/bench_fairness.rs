//! `gabion bench fairness`.

use anyhow::{Context, Result};
use bench::fairness::{Drives, FairnessOptions};

use super::measuring::Measuring;
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
    let options = FairnessOptions {
        scheme: arguments.scheme,
        count: arguments.scheme.width().into(),
        drives,
        drive_bytes: arguments.drive_size.0,
        volume_bytes: arguments.volume.0,
        depth: arguments.depth,
        slowdown: arguments.slowdown,
        seconds: arguments.seconds,
        rounds: arguments.rounds,
    };
    let measuring = Measuring::begin(global, PROMISES)?;
    let found = bench::fairness::run(&options, &mut |step| measuring.tell(step))
        .context("measuring how volumes share")?;
    measuring.end(&found, output::fairness, found.wrong)
}
