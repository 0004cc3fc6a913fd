//! Runs the jobs in rounds, on one back end or on two in alternation.

use serde::Serialize;

use super::back_end::BackEnd;
use super::load::entries;
use super::proportion::{self, Share};
use super::{VhostError, VhostOptions};
use crate::disk_bench::{Line, measure_jobs};

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
pub fn run(options: &VhostOptions, done: impl FnMut(&Line)) -> Result<VhostReport, VhostError> {
    check(options)?;
    let mut systems = vec![match &options.socket {
        Some(socket) => BackEnd::behind(socket, options)?,
        None => BackEnd::embedded(options)?,
    }];
    if let Some(socket) = &options.against {
        systems.push(BackEnd::behind(socket, options)?);
    }
    let lines = measure_jobs(&options.disk, &mut systems, done)?;
    let mut report = VhostReport { lines, shares: Vec::new() };
    if options.proportion {
        report.shares = proportion::measure(&mut systems, options)?;
    }
    Ok(report)
}

fn check(options: &VhostOptions) -> Result<(), VhostError> {
    let invalid = |message: String| Err(VhostError::Invalid(message));
    let uses_sockets = options.socket.is_some() || options.against.is_some();
    options.disk.check(uses_sockets).map_err(VhostError::Invalid)?;
    for job in &options.disk.jobs {
        if entries(job.depth, options.indirect) > ENTRIES_MAX || job.threads > 64 {
            return invalid(format!(
                "'{}': a queue has 1024 entries, of which a request takes three, or one with --indirect; and \
                 there are 64 queues",
                job.name
            ));
        }
    }
    if options.disks == 0 {
        return invalid("at least one disk is required".into());
    }
    if options.on_reactors && uses_sockets {
        return invalid("the load can run on the reactors of a pool on memory drives only".into());
    }
    Ok(())
}
