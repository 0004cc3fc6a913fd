//! `gabion bench fairness`.

use anyhow::{Context, Result};
use bench::fairness::{Drives, FairnessOptions};

use super::measurement::Measurement;
use crate::cli::{FairnessArgs, Global};
use crate::failure::ExitReason;
use crate::output;

const SETUP: &str = "\
fairness: one reactor core, in-process load, two volumes of one pool. Every write is logged with header,
MAC, checksums and parity; every read is verified by checksum and compared. The load sends no flushes.";

/// Runs the benchmark and prints its result.
///
/// # Errors
/// If the benchmark fails, or a block has wrong contents.
pub(crate) fn run(global: &Global, arguments: &FairnessArgs) -> Result<ExitReason> {
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
        slowdown: arguments.latency_target,
        seconds: arguments.seconds,
        rounds: arguments.rounds,
    };
    let measurement = Measurement::start(global, SETUP)?;
    let result = bench::fairness::run(&options, &mut |step| measurement.set_step(step))
        .context("measuring the latency under contention")?;
    measurement.finish(&result, output::fairness, result.wrong)
}
