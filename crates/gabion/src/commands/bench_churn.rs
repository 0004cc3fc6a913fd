//! `gabion bench churn`.

use anyhow::{Context, Result};
use bench::churn::{ChurnOptions, ChurnStep, Distribution};

use super::measuring::Measuring;
use crate::cli::{ChurnArgs, DistributionArg, Global};
use crate::failure::Outcome;
use crate::output;

const PROMISES: &str = "\
churn: one reactor core, memory drives, in-process load. Every write is logged with header, MAC, checksums and parity; what the
cleaner reads is verified against its checksum; at the end every block is read and looked at. Memory drives keep what they are
given, so nothing is flushed. Columns from 'cleaning' on are blocks on the drives for each that was written.";

/// Measures and prints.
///
/// # Errors
/// When the benchmark cannot run, or a block does not hold what was written.
pub(crate) fn run(global: &Global, arguments: &ChurnArgs) -> Result<Outcome> {
    let options = ChurnOptions {
        scheme: arguments.scheme,
        drive_bytes: usize::try_from(arguments.drive_size.0).context("the size of a drive")?,
        fill: f64::from(arguments.fill) / 100.0,
        distribution: match arguments.distribution {
            DistributionArg::Uniform => Distribution::Uniform,
            DistributionArg::Zipf => Distribution::Zipf,
        },
        overwrites: arguments.overwrites,
        queue_depth: arguments.depth,
        seed: arguments.seed,
    };
    let measuring = Measuring::begin(global, PROMISES)?;
    if measuring.table {
        super::print(&output::churn_header())?;
    }
    measuring.tell("making the pool");
    let tell = |step: ChurnStep<'_>| match step {
        ChurnStep::Filling(share) => measuring.tell_share("filling the volume", share),
        ChurnStep::Verifying(share) => measuring.tell_share("reading every block", share),
        ChurnStep::Measured(window) => {
            measuring.tell("overwriting");
            // Lines appear as they are measured; who no longer listens is found out at the end.
            if measuring.table {
                let line = output::churn_window(None, window);
                measuring.spinner.suspend(|| super::print(&line).unwrap_or_default());
            }
        }
    };
    let churn = bench::churn::run(&options, tell).context("churning")?;
    measuring.end(&churn, output::churn, churn.wrong)
}
