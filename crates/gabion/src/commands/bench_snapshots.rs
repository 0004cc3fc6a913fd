//! `gabion bench snapshots`.

use anyhow::{Context, Result};
use bench::snapshots::SnapshotOptions;

use super::measuring::Measuring;
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
    let options = SnapshotOptions {
        volume_bytes: VOLUME,
        snapshots: arguments.snapshots,
        changes: arguments.changes,
        seconds: arguments.seconds,
        rounds: arguments.rounds,
    };
    let measuring = Measuring::begin(global, PROMISES)?;
    let found =
        bench::snapshots::run(&options, |part| measuring.tell(part)).context("measuring snapshots")?;
    measuring.end(&found, output::snapshots_measured, found.wrong)
}
