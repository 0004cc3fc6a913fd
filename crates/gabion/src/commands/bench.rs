//! `gabion bench`: the engine and the codec alone; suites and disks over vhost-user are handed on.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use bench::Sample;
use indicatif::ProgressBar;

use crate::cli::{BenchArgs, BenchCommand, Global};
use crate::failure::Outcome;
use crate::{output, suites};

const ENGINE_PROMISES: &str = "\
engine: one reactor core, memory drives, in-process load. Every read is verified against its checksum and compared with
what was written; every write is logged with header, MAC, checksums and parity. Memory drives keep what they are given,
so nothing is flushed.";

const CODEC_PROMISES: &str = "\
codec: one core. CRC-32C of a block, parity of a row of 64 KiB columns, and one lost column from the others; from memory
that fits the second-level cache. Results are compared with known ones.";

/// Measures and prints.
///
/// # Errors
/// When a benchmark cannot run, or a result was wrong.
pub(crate) fn run(global: &Global, command: &BenchCommand) -> Result<Outcome> {
    match command {
        BenchCommand::Engine(arguments) => alone(global, arguments, true),
        BenchCommand::Codec(arguments) => alone(global, arguments, false),
        BenchCommand::Churn(arguments) => super::bench_churn::run(global, arguments),
        BenchCommand::Snapshots(arguments) => super::bench_snapshots::run(global, arguments),
        BenchCommand::Rebuild(arguments) => super::bench_rebuild::run(global, arguments),
        BenchCommand::Fairness(arguments) => super::bench_fairness::run(global, arguments),
        BenchCommand::Map(arguments) => super::bench_scale::map(global, arguments),
        BenchCommand::Recovery(arguments) => super::bench_scale::recovery(global, arguments),
        BenchCommand::Vhost(arguments) => super::bench_vhost::run(global, arguments),
        BenchCommand::List { suite } => suites::list(global, suite.as_deref()),
        BenchCommand::Plan(arguments) => suites::plan(global, arguments),
        BenchCommand::Run(arguments) => suites::run(global, arguments),
        BenchCommand::Resume { id, report, results_dir } => suites::resume(global, id, *report, results_dir),
        BenchCommand::Runs { results_dir } => suites::runs(global, results_dir),
        BenchCommand::Compare(arguments) => suites::compare(global, arguments),
        BenchCommand::Report(arguments) => suites::report(global, arguments),
    }
}

/// The engine or the codec alone.
fn alone(global: &Global, arguments: &BenchArgs, engine: bool) -> Result<Outcome> {
    let promises = if engine { ENGINE_PROMISES } else { CODEC_PROMISES };
    let table = !global.json && !global.quiet;
    if table {
        super::print(&format!("{promises}\nmachine: {}\n\n{}", bench::machine(), output::sample_header()))?;
    }
    let spinner = if global.quiet { ProgressBar::hidden() } else { ProgressBar::new_spinner() };
    spinner.enable_steady_tick(Duration::from_millis(100));
    spinner.set_message("measuring");
    let show = |sample: &Sample| {
        // Lines appear as they are measured; who no longer listens is found out at the end.
        if table {
            spinner.suspend(|| super::print(&output::sample(sample)).unwrap_or_default());
        }
    };
    let samples = if engine {
        bench::engine_bench::run(arguments.seconds, &arguments.only, show).context("measuring the engine")?
    } else {
        bench::codec_bench::run(arguments.seconds, &arguments.only, show)
    };
    spinner.finish_and_clear();
    if samples.is_empty() {
        bail!("no job's name contains '{}'", arguments.only);
    }
    if global.json {
        super::print(&super::to_json(&samples)?)?;
    }
    let wrong: Vec<&str> =
        samples.iter().filter(|sample| sample.wrong > 0).map(|sample| sample.op.as_str()).collect();
    if !wrong.is_empty() {
        bail!("results were wrong, the figures mean nothing: {}", wrong.join(", "));
    }
    Ok(Outcome::Done)
}
