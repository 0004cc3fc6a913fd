//! `gabion bench rebuild`.

use anyhow::{Context, Result, bail};
use bench::rebuild::{Drives, RebuildOptions};

use super::measuring::Measuring;
use crate::cli::{Global, RebuildArgs};
use crate::failure::Outcome;
use crate::output;

const PROMISES: &str = "\
rebuild: one reactor core, in-process load. What is written anew is compared with the checksums of what it holds and flushed before it
counts; every read of users is verified against its checksum and looked at.";

/// Measures and prints.
///
/// # Errors
/// When the benchmark cannot run, or a block does not hold what was written.
pub(crate) fn run(global: &Global, arguments: &RebuildArgs) -> Result<Outcome> {
    let drives = match &arguments.directory {
        _ if !arguments.drives.is_empty() => Drives::Paths(arguments.drives.clone()),
        Some(directory) => Drives::Files(directory.clone()),
        None => Drives::Memory,
    };
    let count = match &drives {
        Drives::Paths(paths) => paths.len(),
        Drives::Memory | Drives::Files(_) => arguments.count.into(),
    };
    let width = usize::from(arguments.scheme.width());
    if count <= width {
        bail!(
            "{count} drives: {} needs at least {} for a lost one to be rebuilt",
            arguments.scheme,
            width + 1
        );
    }
    if arguments.scheme.parity() == 0 {
        bail!("{} bears no loss: there is nothing to rebuild from", arguments.scheme);
    }
    let options = RebuildOptions {
        scheme: arguments.scheme,
        count,
        drives,
        drive_bytes: arguments.drive_size.0,
        rounds: arguments.rounds,
    };
    let measuring = Measuring::begin(global, PROMISES)?;
    let rebuilt =
        bench::rebuild::run(&options, &mut |step| measuring.tell(step)).context("measuring a rebuild")?;
    measuring.end(&rebuilt, output::rebuilt, rebuilt.wrong)
}
