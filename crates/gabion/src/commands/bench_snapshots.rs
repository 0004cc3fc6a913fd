//! `gabion bench snapshots`.

use anyhow::{Context, Result};
use bench::snapshots::SnapshotOptions;

use super::measurement::Measurement;
use crate::cli::{Global, SnapshotsArgs};
use crate::failure::ExitReason;
use crate::output;

const SETUP: &str = "\
snapshots: one reactor core, memory drives, in-process load. Writes and the metadata of snapshots are logged with
header, MAC, checksums and parity; every read is verified by checksum and compared. Memory drives have no volatile
cache, so nothing is flushed.";

/// Bytes of each volume.
const VOLUME: u64 = 128 << 20;

/// Runs the benchmark and prints its result.
///
/// # Errors
/// If the benchmark fails, or a block has wrong contents.
pub(crate) fn run(global: &Global, arguments: &SnapshotsArgs) -> Result<ExitReason> {
    let options = SnapshotOptions {
        volume_bytes: VOLUME,
        snapshots: arguments.snapshots,
        changes: arguments.changes,
        seconds: arguments.seconds,
        rounds: arguments.rounds,
    };
    let measurement = Measurement::start(global, SETUP)?;
    let result =
        bench::snapshots::run(&options, |part| measurement.set_step(part)).context("measuring snapshots")?;
    measurement.finish(&result, output::snapshots_result, result.wrong)
}
