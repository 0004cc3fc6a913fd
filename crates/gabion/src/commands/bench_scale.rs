//! `gabion bench map` and `gabion bench recovery`.

use anyhow::{Context, Result};
use bench::scale::{MapOptions, RecoveryOptions, measure_map, measure_recovery};

use super::measurement::Measurement;
use crate::cli::{Global, MapArgs, RecoveryArgs};
use crate::failure::ExitReason;
use crate::output;

const MAP_SETUP: &str = "\
map: one reactor core, memory drives, in-process load. Every write is logged with header, MAC, checksums and parity;
map nodes are verified when they are read back. Memory drives have no volatile cache, so nothing is flushed.";

const RECOVERY_SETUP: &str = "\
recovery: one reactor core, five files as drives, direct I/O. All data was flushed before the crash; the open verifies
record headers by their MAC, and the end of the log completely.";

/// Runs `gabion bench map` and prints its result.
///
/// # Errors
/// If the benchmark fails, or a block has wrong contents.
pub(crate) fn map(global: &Global, arguments: &MapArgs) -> Result<ExitReason> {
    let options = MapOptions {
        volume_bytes: arguments.volume.0,
        map_bytes: arguments.map_memory.0,
        drive_bytes: usize::try_from(arguments.drive_size.0).context("--drive-size")?,
        writes: arguments.writes,
    };
    let measurement = Measurement::start(global, MAP_SETUP)?;
    let cost = measure_map(&options, |share| measurement.set_progress("writing", share))
        .context("measuring the map")?;
    measurement.finish(&cost, output::map_cost, cost.wrong)
}

/// Runs `gabion bench recovery` and prints its result.
///
/// # Errors
/// If the benchmark fails, or a block has wrong contents.
pub(crate) fn recovery(global: &Global, arguments: &RecoveryArgs) -> Result<ExitReason> {
    let options = RecoveryOptions { directory: arguments.directory.clone(), log_bytes: arguments.log.0 };
    let measurement = Measurement::start(global, RECOVERY_SETUP)?;
    let recovery = measure_recovery(&options, |share| measurement.set_progress("writing", share))
        .with_context(|| format!("measuring a recovery in {}", arguments.directory.display()))?;
    measurement.finish(&recovery, output::recovery, recovery.wrong)
}
