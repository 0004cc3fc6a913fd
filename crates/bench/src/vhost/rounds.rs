//! Runs the jobs in rounds, on one back end or on two in alternation.

use std::time::Duration;

use super::back_end::{BLOCK_MAX, BackEnd, FILL_DEPTH, NO_TIME_LIMIT};
use super::line::{Line, Round, VhostReport, median};
use super::load::entries;
use super::proportion;
use super::{VhostError, VhostOptions};
use crate::suite::Job;

/// Maximum queue entries that back ends support.
const ENTRIES_MAX: u32 = 1024;

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
        run(&degraded(&options.jobs), &mut systems)?;
    }
    if options.proportion {
        report.shares = proportion::measure(&mut systems, options)?;
    }
    Ok(report)
}

/// Returns the jobs that only read, for a pool that lacks a drive.
fn degraded(jobs: &[Job]) -> Vec<Job> {
    let reads = jobs.iter().filter(|job| job.read_percent == 100).cloned();
    reads.map(|job| Job { name: format!("{}, one drive lost", job.name), ..job }).collect()
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
    let mut rounds = vec![Vec::new(); systems.len()];
    for round in 0..options.rounds as usize {
        for turn in 0..systems.len() {
            let index = (turn + round) % systems.len();
            let (Some(system), Some(rounds)) = (systems.get_mut(index), rounds.get_mut(index)) else {
                continue;
            };
            rounds.push(match options.requests {
                None => system.measure(job, None, None, options.warm_up, options.length)?,
                limit => system.measure(job, None, limit, Duration::ZERO, NO_TIME_LIMIT)?,
            });
        }
    }
    let first = rounds.first().cloned().unwrap_or_default();
    let lines = systems.iter().zip(rounds).enumerate().map(|(index, (system, rounds))| Line {
        job: job.name.clone(),
        system: system.name.clone(),
        block_bytes: job.block_bytes,
        depth: job.depth,
        queues: job.threads,
        median: Round::median(&rounds),
        first_is_times: (index > 0)
            .then(|| median(first.iter().zip(&rounds).map(|(first, this)| first.iops / this.iops))),
        rounds,
    });
    Ok(lines.collect())
}
