//! `gabion bench`: runs the engine and codec benchmarks, and dispatches to the others.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use bench::{Drives, Sample};
use indicatif::ProgressBar;

use crate::cli::{BenchArgs, BenchCommand, Global};
use crate::failure::ExitReason;
use crate::{output, suites};

const ENGINE_SETUP: &str = "\
engine: one reactor core, in-process load. Every read is verified by checksum and compared with the written data; every
write is logged with header, MAC, checksums and parity. No job flushes.";

const CODEC_SETUP: &str = "\
codec: one core. CRC-32C of a block, parity of a row of 64 KiB columns, and reconstruction of one column; the data fits
the L2 cache. Results are compared with reference values.";

/// Runs a benchmark command and prints its result.
///
/// # Errors
/// If a benchmark fails or reads wrong data.
pub(crate) fn run(global: &Global, command: &BenchCommand) -> Result<ExitReason> {
    match command {
        BenchCommand::Engine(arguments) => {
            run_in_process(global, &arguments.common, Some(&arguments.drives.chosen(arguments.overwrite)?))
        }
        BenchCommand::Codec(arguments) => run_in_process(global, arguments, None),
        BenchCommand::Churn(arguments) => super::bench_churn::run(global, arguments),
        BenchCommand::Snapshots(arguments) => super::bench_snapshots::run(global, arguments),
        BenchCommand::Rebuild(arguments) => super::bench_rebuild::run(global, arguments),
        BenchCommand::Fairness(arguments) => super::bench_fairness::run(global, arguments),
        BenchCommand::Objects(arguments) => super::bench_objects::run(global, arguments),
        BenchCommand::Listing(arguments) => super::bench_listing::run(global, arguments),
        BenchCommand::Map(arguments) => super::bench_scale::map(global, arguments),
        BenchCommand::Recovery(arguments) => super::bench_scale::recovery(global, arguments),
        BenchCommand::Vhost(arguments) => super::bench_vhost::run(global, arguments),
        BenchCommand::Nvme(arguments) => super::bench_nvme::run(global, arguments),
        BenchCommand::List { suite } => suites::list(global, suite.as_deref()),
        BenchCommand::Plan(arguments) => suites::plan(global, arguments),
        BenchCommand::Run(arguments) => suites::run(global, arguments),
        BenchCommand::Resume { id, report, results_dir } => suites::resume(global, id, *report, results_dir),
        BenchCommand::Runs { results_dir } => suites::runs(global, results_dir),
        BenchCommand::Compare(arguments) => suites::compare(global, arguments),
        BenchCommand::Report(arguments) => suites::report(global, arguments),
    }
}

/// Runs the engine benchmark on these drives, or the codec benchmark without drives.
fn run_in_process(global: &Global, arguments: &BenchArgs, drives: Option<&Drives>) -> Result<ExitReason> {
    let setup = match drives {
        Some(drives) => format!("{ENGINE_SETUP}\ndrives: {drives}"),
        None => CODEC_SETUP.to_owned(),
    };
    let table = !global.json && !global.quiet;
    if table {
        super::print(&format!("{setup}\nmachine: {}\n\n{}", bench::machine(), output::sample_header()))?;
    }
    let spinner = if global.quiet { ProgressBar::hidden() } else { ProgressBar::new_spinner() };
    spinner.enable_steady_tick(Duration::from_millis(100));
    spinner.set_message("measuring");
    let show = |sample: &Sample| {
        // Lines are printed as they are measured. A closed output is reported at the end.
        if table {
            spinner.suspend(|| super::print(&output::sample(sample)).unwrap_or_default());
        }
    };
    let samples = match drives {
        Some(drives) => bench::engine_bench::run(drives, arguments.seconds, &arguments.only, show)
            .context("measuring the engine")?,
        None => bench::codec_bench::run(arguments.seconds, &arguments.only, show),
    };
    spinner.finish_and_clear();
    if samples.is_empty() {
        bail!("no job has '{}' in its name", arguments.only);
    }
    if global.json {
        super::print(&super::to_json(&samples)?)?;
    }
    let wrong: Vec<&str> =
        samples.iter().filter(|sample| sample.wrong > 0).map(|sample| sample.op.as_str()).collect();
    if !wrong.is_empty() {
        bail!("wrong data was read, the results are invalid: {}", wrong.join(", "));
    }
    Ok(ExitReason::Success)
}
