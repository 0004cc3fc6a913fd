//! `gabion bench churn`.

use anyhow::{Context, Result};
use bench::churn::{ChurnOptions, ChurnStep};
use bench::draw::Distribution;

use super::measurement::Measurement;
use crate::cli::{ChurnArgs, DistributionArg, Global};
use crate::failure::ExitReason;
use crate::output;

const SETUP: &str = "\
churn: one reactor core, memory drives, in-process load. Every write is logged with header, MAC, checksums and parity;
reads of the cleaner are verified by checksum; at the end, every block is read and compared. Memory drives have no
volatile cache, so nothing is flushed. Columns from 'cleaning' on: blocks written to the drives per user block.";

/// Runs the benchmark and prints its result.
///
/// # Errors
/// If the benchmark fails, or a block has wrong contents.
pub(crate) fn run(global: &Global, arguments: &ChurnArgs) -> Result<ExitReason> {
    let options = ChurnOptions {
        scheme: arguments.scheme,
        drive_bytes: usize::try_from(arguments.drive_size.0).context("--drive-size")?,
        fill: f64::from(arguments.fill) / 100.0,
        distribution: match arguments.distribution {
            DistributionArg::Uniform => Distribution::Uniform,
            DistributionArg::Zipf => Distribution::Zipf,
        },
        overwrites: arguments.overwrites,
        queue_depth: arguments.depth,
        seed: arguments.seed,
    };
    let measurement = Measurement::start(global, SETUP)?;
    if measurement.table {
        super::print(&output::churn_header())?;
    }
    measurement.set_step("creating the pool");
    let report = |step: ChurnStep<'_>| match step {
        ChurnStep::Filling(share) => measurement.set_progress("filling the volume", share),
        ChurnStep::Verifying(share) => measurement.set_progress("verifying", share),
        ChurnStep::Measured(window) => {
            measurement.set_step("overwriting");
            // Lines are printed as they are measured. A closed output is reported at the end.
            if measurement.table {
                let line = output::churn_window(None, window);
                measurement.spinner.suspend(|| super::print(&line).unwrap_or_default());
            }
        }
    };
    let churn = bench::churn::run(&options, report).context("measuring steady-state overwrites")?;
    measurement.finish(&churn, output::churn, churn.wrong)
}
