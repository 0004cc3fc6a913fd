//! `gabion bench vhost`.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use bench::vhost::{Line, VhostOptions};
use indicatif::ProgressBar;

use crate::cli::{Global, VhostArgs};
use crate::failure::Outcome;
use crate::output;

const PROMISES: &str = "\
vhost: a front end without a machine shares memory with the back end and polls the queues; medians of the rounds. Each
block that is written carries its number, which is looked for when it is read. IOPS and round trips are the load's, cores
the back end's. A ratio is the first back end's IOPS for one of this one's.";

const MEMORY_PROMISES: &str = "\
memory drives: a pool of 4+1 in this process, on threads of its own. Every read is verified against its checksum; every
write is logged with header, MAC, checksums and parity. Memory drives keep what they are given, so nothing is flushed.";

/// Time before a job counts.
const WARM_UP: Duration = Duration::from_secs(1);

/// Measures and prints.
///
/// # Errors
/// When a back end cannot be used, or a result was wrong.
pub(crate) fn run(global: &Global, arguments: &VhostArgs) -> Result<Outcome> {
    let options = options(arguments)?;
    let table = !global.json && !global.quiet;
    if table {
        let memory = if options.socket.is_none() { MEMORY_PROMISES } else { "" };
        let (machine, header) = (bench::machine(), output::line_header());
        super::print(&format!("{PROMISES}\n{memory}\nmachine: {machine}\n\n{header}"))?;
    }
    let spinner = if global.quiet { ProgressBar::hidden() } else { ProgressBar::new_spinner() };
    spinner.set_message("measuring");
    // No ticking thread: it would take its time from what is measured.
    spinner.tick();
    let show = |line: &Line| {
        // Lines appear as they are measured; who no longer listens is found out at the end.
        if table {
            spinner.suspend(|| super::print(&output::line(line)).unwrap_or_default());
        }
    };
    let report = bench::vhost::run(&options, show).context("measuring disks over vhost-user")?;
    spinner.finish_and_clear();
    if global.json {
        super::print(&super::to_json(&report)?)?;
    } else if table && !report.shares.is_empty() {
        super::print(&output::shares(&report.shares))?;
    }
    let wrong: Vec<&str> =
        report.lines.iter().filter(|line| line.median.wrong > 0).map(|line| line.job.as_str()).collect();
    if !wrong.is_empty() {
        bail!("results were wrong, the figures mean nothing: {}", wrong.join(", "));
    }
    Ok(Outcome::Done)
}

fn options(arguments: &VhostArgs) -> Result<VhostOptions> {
    let jobs = match arguments.job.block {
        Some(block) => vec![own_job(arguments, block.0)],
        None => {
            let table = bench::vhost::table().jobs;
            table.into_iter().filter(|job| job.name.contains(&arguments.only)).collect()
        }
    };
    if jobs.is_empty() {
        bail!("no job's name contains '{}'", arguments.only);
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
        drive_bytes: usize::try_from(arguments.drive_size.0).unwrap_or(usize::MAX),
        disks: arguments.disks,
        shards: arguments.shards,
        beside: arguments.beside,
        io: arguments.io,
        indirect: arguments.indirect,
        proportion: arguments.proportion,
    })
}

fn own_job(arguments: &VhostArgs, block_bytes: u64) -> bench::Job {
    let job = &arguments.job;
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
