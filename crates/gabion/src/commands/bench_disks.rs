//! The common part of `gabion bench vhost` and `gabion bench nvme`: options, and the printed table.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use bench::{DiskBenchOptions, Job, Line, Suite};
use indicatif::ProgressBar;
use serde::Serialize;

use crate::cli::{DiskBenchArgs, Global};
use crate::failure::ExitReason;
use crate::output;

/// The pool of a table without a disk of another process.
const POOL_SETUP: &str = "\
a 4+1 pool in this process, on separate threads. Every read is verified by checksum; every write is logged with header,
MAC, checksums and parity. No job flushes.";

/// Warm-up time of a job.
const WARM_UP: Duration = Duration::from_secs(1);

/// The description of a benchmark.
pub(super) struct BenchSetup<'a> {
    /// The method, above the table.
    pub(super) text: &'a str,
    /// The kind of the measured systems, as in the header of the table.
    pub(super) system: &'a str,
    /// The work, as in errors.
    pub(super) work: &'a str,
    /// The drives of the pool in this process, if there is one.
    pub(super) pool_drives: Option<&'a bench::Drives>,
}

/// Runs a benchmark, prints its lines as they are measured, and returns its report, whose `lines`
/// have no wrong blocks.
///
/// # Errors
/// If a disk cannot be used, or wrong data was read.
pub(super) fn run<R: Serialize, E: std::error::Error + Send + Sync + 'static>(
    global: &Global,
    setup: &BenchSetup<'_>,
    measure: impl FnOnce(&mut dyn FnMut(&Line)) -> Result<R, E>,
    rest: impl FnOnce(&R) -> String,
    lines: impl FnOnce(&R) -> &[Line],
) -> Result<ExitReason> {
    let table = !global.json && !global.quiet;
    if table {
        let pool = setup.pool_drives.map(|drives| format!("{drives}: {POOL_SETUP}")).unwrap_or_default();
        let (machine, header) = (bench::machine(), output::line_header(setup.system));
        super::print(&format!("{}\n{pool}\nmachine: {machine}\n\n{header}", setup.text))?;
    }
    let spinner = if global.quiet { ProgressBar::hidden() } else { ProgressBar::new_spinner() };
    spinner.set_message("measuring");
    // No ticking thread, which would take CPU time from the measurement.
    spinner.tick();
    let mut show = |line: &Line| {
        // Lines are printed as they are measured. A closed output is reported at the end.
        if table {
            spinner.suspend(|| super::print(&output::line(line)).unwrap_or_default());
        }
    };
    let report = measure(&mut show).with_context(|| setup.work.to_owned())?;
    spinner.finish_and_clear();
    let rest = rest(&report);
    if global.json {
        super::print(&super::to_json(&report)?)?;
    } else if table && !rest.is_empty() {
        super::print(&rest)?;
    }
    let wrong = lines(&report).iter().filter(|line| line.median.wrong > 0);
    let wrong: Vec<&str> = wrong.map(|line| line.job.as_str()).collect();
    if !wrong.is_empty() {
        bail!("wrong data was read, the results are invalid: {}", wrong.join(", "));
    }
    Ok(ExitReason::Success)
}

/// Returns the options. `table`: the jobs that run if the user gives none.
///
/// # Errors
/// If no job has the text of `--only`.
pub(super) fn options(arguments: &DiskBenchArgs, table: Suite) -> Result<DiskBenchOptions> {
    let jobs: Vec<Job> = match arguments.job.block {
        Some(block) => vec![user_job(arguments, block.0)],
        None => table.jobs.into_iter().filter(|job| job.name.contains(&arguments.only)).collect(),
    };
    if jobs.is_empty() {
        bail!("no job has '{}' in its name", arguments.only);
    }
    Ok(DiskBenchOptions {
        jobs,
        length: Duration::from_secs_f64(arguments.seconds),
        warm_up: WARM_UP,
        requests: arguments.job.requests,
        rounds: arguments.rounds,
        size: arguments.size.0,
        overwrite: arguments.overwrite,
        core: arguments.core,
        pool_cores: arguments.pool_cores.clone(),
        drives: arguments.drives.chosen(arguments.overwrite)?,
        drive_bytes: arguments.drive_size.0,
        io: arguments.io,
        degraded: arguments.degraded,
    })
}

fn user_job(arguments: &DiskBenchArgs, block_bytes: u64) -> Job {
    let job = &arguments.job;
    let order = if job.sequential { "sequential" } else { "random" };
    let name = match job.read_percent {
        100 => format!("{} {order} read", api::Size(block_bytes)),
        0 => format!("{} {order} write", api::Size(block_bytes)),
        percent => format!("{} {order} {percent}:{}", api::Size(block_bytes), 100 - percent),
    };
    Job {
        read_percent: job.read_percent,
        random: !job.sequential,
        ..Job::random_read(&name, block_bytes, job.depth, job.queues)
    }
}
