//! `gabion bench vhost`.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use bench::Line;
use bench::vhost::VhostOptions;
use indicatif::ProgressBar;

use crate::cli::{Global, JobArgs, VhostArgs};
use crate::failure::ExitReason;
use crate::output;

const SETUP: &str = "\
vhost: a load generator acts as the front end: it shares memory with the back end and polls the queues while they are
busy. Each written block holds its number, which is compared on read. Medians over the rounds; IOPS and latencies are
measured in the front end, 'cores' is the CPU time of the back end. 'ratio' is the first back end's IOPS divided by this one's.";

const POOL_SETUP: &str = "\
a 4+1 pool in this process, on separate threads. Every read is verified by checksum; every write is logged with header,
MAC, checksums and parity. No job flushes.";

/// Warm-up time of a job.
const WARM_UP: Duration = Duration::from_secs(1);

/// Runs the benchmark and prints its result.
///
/// # Errors
/// If a back end cannot be used, or wrong data was read.
pub(crate) fn run(global: &Global, arguments: &VhostArgs) -> Result<ExitReason> {
    let options = options(arguments)?;
    let table = !global.json && !global.quiet;
    if table {
        let pool = match options.socket {
            None => format!("{}: {POOL_SETUP}", options.drives),
            Some(_) => String::new(),
        };
        let (machine, header) = (bench::machine(), output::line_header("back end"));
        super::print(&format!("{SETUP}\n{pool}\nmachine: {machine}\n\n{header}"))?;
    }
    let spinner = if global.quiet { ProgressBar::hidden() } else { ProgressBar::new_spinner() };
    spinner.set_message("measuring");
    // No ticking thread, which would take CPU time from the measurement.
    spinner.tick();
    let show = |line: &Line| {
        // Lines are printed as they are measured. A closed output is reported at the end.
        if table {
            spinner.suspend(|| super::print(&output::line(line)).unwrap_or_default());
        }
    };
    let report = bench::vhost::run(&options, show).context("measuring vhost-user disks")?;
    spinner.finish_and_clear();
    if global.json {
        super::print(&super::to_json(&report)?)?;
    } else if table && !report.shares.is_empty() {
        super::print(&output::shares(&report.shares))?;
    }
    check_contents(&report.lines)?;
    Ok(ExitReason::Success)
}

fn options(arguments: &VhostArgs) -> Result<VhostOptions> {
    let jobs = match arguments.job.block {
        Some(block) => vec![user_job(&arguments.job, block.0)],
        None => {
            let table = bench::vhost::table().jobs;
            table.into_iter().filter(|job| job.name.contains(&arguments.only)).collect()
        }
    };
    if jobs.is_empty() {
        bail!("no job has '{}' in its name", arguments.only);
    }
    Ok(VhostOptions {
        socket: arguments.socket.clone(),
        against: arguments.against.clone(),
        jobs,
        length: Duration::from_secs_f64(arguments.seconds),
        warm_up: WARM_UP,
        requests: arguments.job.requests,
        rounds: arguments.rounds,
        size: arguments.size.0,
        overwrite: arguments.overwrite,
        core: arguments.core,
        pool_cores: arguments.pool_cores.clone(),
        drives: arguments.drives.chosen(),
        drive_bytes: arguments.drive_size.0,
        disks: arguments.disks,
        shards: arguments.shards,
        beside: arguments.on_reactors,
        io: arguments.io,
        indirect: arguments.indirect,
        proportion: arguments.cpu_time,
        degraded: arguments.degraded,
    })
}

/// Fails if a line has wrong data.
pub(super) fn check_contents(lines: &[Line]) -> Result<()> {
    let wrong: Vec<&str> =
        lines.iter().filter(|line| line.median.wrong > 0).map(|line| line.job.as_str()).collect();
    if !wrong.is_empty() {
        bail!("wrong data was read, the results are invalid: {}", wrong.join(", "));
    }
    Ok(())
}

/// Returns the job of the arguments.
pub(super) fn user_job(job: &JobArgs, block_bytes: u64) -> bench::Job {
    let order = if job.sequential { "sequential" } else { "random" };
    let name = match job.read_percent {
        100 => format!("{} {order} read", api::Size(block_bytes)),
        0 => format!("{} {order} write", api::Size(block_bytes)),
        percent => format!("{} {order} {percent}:{}", api::Size(block_bytes), 100 - percent),
    };
    bench::Job {
        read_percent: job.read_percent,
        random: !job.sequential,
        ..bench::Job::random_read(&name, block_bytes, job.depth, job.queues)
    }
}
