//! Runs the jobs in rounds, on one back end or on two in alternation.

use std::time::Duration;

use serde::Serialize;

use super::back_end::{BLOCK_MAX, BackEnd, FILL_DEPTH, NO_TIME_LIMIT};
use super::load::entries;
use super::proportion::{self, Share};
use super::{VhostError, VhostOptions};
use crate::line::{self, Line};
use crate::suite::Job;

/// Maximum queue entries that back ends support.
const ENTRIES_MAX: u32 = 1024;

/// All results.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct VhostReport {
    /// One line per job and back end.
    pub lines: Vec<Line>,
    /// Processor time at shares of the peak load.
    pub shares: Vec<Share>,
}

/// Runs the jobs. Calls `done` with each line when the rounds of its job are complete.
///
/// # Errors
/// If a back end cannot be used or behaves incorrectly.
pub fn run(options: &VhostOptions, mut done: impl FnMut(&Line)) -> Result<VhostReport, VhostError> {
    check(options)?;
    let mut systems = vec![match &options.socket {
        Some(socket) => BackEnd::behind(socket, options)?,
        None => BackEnd::embedded(options)?,
    }];
    if let Some(socket) = &options.against {
        systems.push(BackEnd::behind(socket, options)?);
    }
    for system in &mut systems {
        system.fill()?;
    }
    let mut report = VhostReport::default();
    let mut run = |jobs: &[Job], systems: &mut Vec<BackEnd>| {
        for job in jobs {
            for line in run_job(job, systems, options)? {
                done(&line);
                report.lines.push(line);
            }
        }
        Ok::<_, VhostError>(())
    };
    run(&options.jobs, &mut systems)?;
    if options.degraded {
        systems.iter().try_for_each(BackEnd::fail_drive)?;
        run(&line::degraded(&options.jobs), &mut systems)?;
    }
    if options.proportion {
        report.shares = proportion::measure(&mut systems, options)?;
    }
    Ok(report)
}

fn check(options: &VhostOptions) -> Result<(), VhostError> {
    let invalid = |message: String| Err(VhostError::Invalid(message));
    for job in &options.jobs {
        if job.block_bytes > BLOCK_MAX || !job.block_bytes.is_multiple_of(4096) {
            return invalid(format!("'{}': requests must be multiples of 4 KiB, up to 1 MiB", job.name));
        }
        if entries(job.depth, options.indirect) > ENTRIES_MAX || job.threads > 64 {
            return invalid(format!(
                "'{}': a queue has 1024 entries, of which a request takes three, or one with --indirect; and \
                 there are 64 queues",
                job.name
            ));
        }
        if job.read_percent < 100 && !options.overwrite && uses_sockets(options) {
            return invalid(format!(
                "'{}' writes and would overwrite the disk; use --overwrite to permit it",
                job.name
            ));
        }
    }
    if options.degraded && uses_sockets(options) {
        return invalid("only drives of a pool in this process can be failed".into());
    }
    if options.disks == 0 {
        return invalid("at least one disk is required".into());
    }
    if options.jobs.is_empty() {
        return invalid("at least one job is required".into());
    }
    if options.beside && (options.socket.is_some() || options.against.is_some()) {
        return invalid("the load can run on the reactors of a pool on memory drives only".into());
    }
    if options.size < BLOCK_MAX * u64::from(FILL_DEPTH) {
        return invalid("the used size of the disk must be at least 16 MiB".into());
    }
    Ok(())
}

fn uses_sockets(options: &VhostOptions) -> bool {
    options.socket.is_some() || options.against.is_some()
}

fn run_job(job: &Job, systems: &mut [BackEnd], options: &VhostOptions) -> Result<Vec<Line>, VhostError> {
    line::measure_in_turns(
        job,
        systems,
        options.rounds,
        |system| &system.name,
        |system| match options.requests {
            None => system.measure(job, None, None, options.warm_up, options.length),
            limit => system.measure(job, None, limit, Duration::ZERO, NO_TIME_LIMIT),
        },
    )
}
