//! `gabion bench churn`.

use anyhow::{Context, Result, bail};
use bench::churn::{Distribution, Options, Step};
use indicatif::ProgressBar;

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
    let options = Options {
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
    let table = !global.json && !global.quiet;
    if table {
        super::print(&format!("{PROMISES}\nmachine: {}\n\n{}", bench::machine(), output::churn_header()))?;
    }
    let spinner = if global.quiet { ProgressBar::hidden() } else { ProgressBar::new_spinner() };
    spinner.set_message("making the pool");
    // No ticking thread: it would take its time from what is measured.
    spinner.tick();
    let tell = |step: Step<'_>| match step {
        Step::Filling(share) => spinner.set_message(format!("filling the volume: {:.0} %", share * 100.0)),
        Step::Verifying(share) => {
            spinner.set_message(format!("reading every block: {:.0} %", share * 100.0));
        }
        Step::Measured(window) => {
            spinner.set_message("overwriting");
            // Lines appear as they are measured; who no longer listens is found out at the end.
            if table {
                spinner.suspend(|| super::print(&output::churn_window(None, window)).unwrap_or_default());
            }
        }
    };
    let churn = bench::churn::run(&options, tell).context("churning")?;
    spinner.finish_and_clear();
    if global.json {
        super::print(&super::to_json(&churn)?)?;
    } else if table {
        super::print(&output::churn(&churn))?;
    }
    if churn.wrong > 0 {
        bail!("{} blocks did not hold what was written last: the figures mean nothing", churn.wrong);
    }
    Ok(Outcome::Done)
}
