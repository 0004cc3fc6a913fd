//! `gabion bench nvme`.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use bench::Line;
use bench::nvme::NvmeOptions;
use indicatif::ProgressBar;

use super::bench_vhost::{check_contents, user_job};
use crate::cli::{Global, NvmeArgs};
use crate::failure::ExitReason;
use crate::output;

const SETUP: &str = "\
NVMe/TCP: the load generator is an initiator that polls its sockets, without digests. Each written block holds its
number, which is compared on read. Medians over the rounds; IOPS and latencies are measured in the initiator, 'cores' is
the CPU time of the target, if it is in this process. 'ratio' is the first target's IOPS divided by this one's.";

const POOL_SETUP: &str = "\
a 4+1 pool in this process, on separate threads. Every read is verified by checksum; every write is logged with header,
MAC, checksums and parity. No job flushes.";

/// Warm-up time of a job.
const WARM_UP: Duration = Duration::from_secs(1);

/// Runs the benchmark and prints its result.
///
/// # Errors
/// If a target cannot be used, or wrong data was read.
pub(crate) fn run(global: &Global, arguments: &NvmeArgs) -> Result<ExitReason> {
    let options = options(arguments)?;
    let table = !global.json && !global.quiet;
    if table {
        let pool = match options.connect {
            None => format!("{}: {POOL_SETUP}", options.drives),
            Some(_) => String::new(),
        };
        let (machine, header) = (bench::machine(), output::line_header("target"));
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
    let report = bench::nvme::run(&options, show).context("measuring NVMe/TCP targets")?;
    spinner.finish_and_clear();
    if global.json {
        super::print(&super::to_json(&report)?)?;
    }
    check_contents(&report.lines)?;
    Ok(ExitReason::Success)
}

fn options(arguments: &NvmeArgs) -> Result<NvmeOptions> {
    let jobs = match arguments.job.block {
        Some(block) => vec![user_job(&arguments.job, block.0)],
        None => {
            let table = bench::nvme::table().jobs;
            table.into_iter().filter(|job| job.name.contains(&arguments.only)).collect()
        }
    };
    if jobs.is_empty() {
        bail!("no job has '{}' in its name", arguments.only);
    }
    Ok(NvmeOptions {
        connect: arguments.connect.clone(),
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
        io: arguments.io,
        degraded: arguments.degraded,
    })
}
