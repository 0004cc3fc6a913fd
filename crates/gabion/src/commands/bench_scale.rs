//! `gabion bench map` and `gabion bench recovery`.

use anyhow::{Context, Result};
use bench::scale::{MapOptions, RecoveryOptions, measure_map, measure_recovery};

use super::measuring::Measuring;
use crate::cli::{Global, MapArgs, RecoveryArgs};
use crate::failure::Outcome;
use crate::output;

const MAP_PROMISES: &str = "\
map: one reactor core, memory drives, in-process load. Every write is logged with header, MAC, checksums and parity; nodes of the
map are verified when they are read back. Memory drives keep what they are given, so nothing is flushed.";

const RECOVERY_PROMISES: &str = "\
recovery: one reactor core, five files as drives, direct I/O. What was written was flushed before the crash; the opening verifies headers
by their MAC, and the end of the log whole.";

/// Measures a large map and prints.
///
/// # Errors
/// When the benchmark cannot run, or a block does not hold what was written.
pub(crate) fn map(global: &Global, arguments: &MapArgs) -> Result<Outcome> {
    let options = MapOptions {
        volume_bytes: arguments.volume.0,
        map_bytes: arguments.map_memory.0,
        drive_bytes: usize::try_from(arguments.drive_size.0).context("the size of a drive")?,
        writes: arguments.writes,
    };
    let measuring = Measuring::begin(global, MAP_PROMISES)?;
    let cost =
        measure_map(&options, |share| measuring.tell_share("writing", share)).context("measuring the map")?;
    measuring.end(&cost, output::map_cost, cost.wrong)
}

/// Measures an opening after a crash and prints.
///
/// # Errors
/// When the benchmark cannot run, or a block does not hold what was written.
pub(crate) fn recovery(global: &Global, arguments: &RecoveryArgs) -> Result<Outcome> {
    let options = RecoveryOptions { directory: arguments.directory.clone(), log_bytes: arguments.log.0 };
    let measuring = Measuring::begin(global, RECOVERY_PROMISES)?;
    let recovery = measure_recovery(&options, |share| measuring.tell_share("writing", share))
        .with_context(|| format!("measuring a recovery in {}", arguments.directory.display()))?;
    measuring.end(&recovery, output::recovery, recovery.wrong)
}
