//! `gabion bench rebuild`.

use anyhow::{Context, Result, bail};
use bench::rebuild::{Drives, RebuildOptions};

use super::measurement::Measurement;
use crate::cli::{Global, RebuildArgs};
use crate::failure::ExitReason;
use crate::output;

const SETUP: &str = "\
rebuild: one reactor core, in-process load. Rebuilt columns are verified by checksum and flushed before they
count; every client read is verified by checksum and compared.";

/// Runs the benchmark and prints its result.
///
/// # Errors
/// If the benchmark fails, or a block has wrong contents.
pub(crate) fn run(global: &Global, arguments: &RebuildArgs) -> Result<ExitReason> {
    let drives = match &arguments.directory {
        _ if !arguments.drives.is_empty() => Drives::Paths(arguments.drives.clone()),
        Some(directory) => Drives::Files(directory.clone()),
        None => Drives::Memory,
    };
    let count = match &drives {
        Drives::Paths(paths) => paths.len(),
        Drives::Zram | Drives::Memory | Drives::Files(_) => arguments.count.into(),
    };
    let width = usize::from(arguments.scheme.width());
    if count <= width {
        bail!("{count} drives: {} needs at least {} to rebuild a failed drive", arguments.scheme, width + 1);
    }
    if arguments.scheme.parity() == 0 {
        bail!("{} has no parity: a failed drive cannot be rebuilt", arguments.scheme);
    }
    let options = RebuildOptions {
        scheme: arguments.scheme,
        count,
        drives,
        drive_bytes: arguments.drive_size.0,
        rounds: arguments.rounds,
    };
    let measurement = Measurement::start(global, SETUP)?;
    let result = bench::rebuild::run(&options, &mut |step| measurement.set_step(step))
        .context("measuring a rebuild")?;
    measurement.finish(&result, output::rebuild_result, result.wrong)
}
