//! Loads on pools of Ceph clusters by `rados bench`, the smoke test of the reference document:
//! whole objects are written, read in order, or read at random.
//!
//! Always true: the objects of a run are in a namespace of their own within the pool, and only
//! objects of that namespace are removed.

mod output;

use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::load::{Length, Load, LoadResult, Output, RadosTarget, Slice, Target};
use crate::program::{ProgramError, Server, command, is_installed, run};
use crate::result::ReadWrite;
use crate::suite::Job;

/// The program, of the package `ceph-common`.
const PROGRAM: &str = "rados";
/// Time for the start, the end and the removal of objects.
const SPARE_TIME: Duration = Duration::from_secs(600);
/// Limit of writing the objects that are read later, in seconds.
const FILL_SECONDS: u64 = 3600;

/// A failure of `rados bench`.
#[derive(Debug, thiserror::Error)]
pub enum RadosError {
    /// The program failed.
    #[error("rados bench failed on job '{job}': {message}")]
    Failed {
        /// The job.
        job: String,
        /// The message of the program.
        message: String,
    },
    /// The output of the program could not be parsed.
    #[error("cannot parse the output of rados bench for job '{job}': {message}")]
    Output {
        /// The job.
        job: String,
        /// The problem.
        message: String,
    },
    /// The run was interrupted.
    #[error("interrupted")]
    Interrupted,
}

/// True if the slices are objects of a pool.
pub(crate) fn is_target(slices: &[Slice]) -> bool {
    slices.iter().any(|slice| matches!(slice.target, Target::Rados(_)))
}

/// Returns the missing requirement, if any.
pub fn missing_requirement() -> Option<String> {
    (!is_installed(PROGRAM)).then(|| "rados is not installed (Debian: ceph-common)".into())
}

/// Returns the reason why `rados bench` cannot run a job.
pub(crate) fn refusal(job: &Job) -> Option<&'static str> {
    if job.is_mixed() {
        return Some("rados bench does not mix reads and writes");
    }
    if job.random && job.writes() {
        return Some("rados bench writes whole objects in order");
    }
    job.latency.is_some().then_some("rados bench does not support latency targets")
}

/// Removes the objects of a run, also those of a killed one.
///
/// # Errors
/// If the program fails.
pub fn remove_objects(target: &RadosTarget) -> Result<(), String> {
    // The program removes the objects of all writes with this prefix, and their descriptions.
    let removed = run(rados(target).args(["cleanup", "--prefix", "benchmark_data"]));
    removed.map_err(|error| error.to_string())?;
    let names = run(rados(target).arg("ls")).map_err(|error| error.to_string())?;
    for name in names.lines().filter(|name| !name.is_empty()) {
        run(rados(target).args(["rm", name])).map_err(|error| error.to_string())?;
    }
    Ok(())
}

/// Returns the program with the arguments that select the pool and the namespace.
fn rados(target: &RadosTarget) -> Command {
    let mut rados = command(PROGRAM);
    rados.arg("-c").arg(&target.conf).arg("-n").arg(&target.user).arg("-k").arg(&target.keyring);
    rados.args(["-p", &target.pool, "-N", &target.namespace]);
    rados
}

/// Runs a load: one process for each slice, at the same time. The output has the prefix `name` in
/// `folder`.
pub(crate) fn run_load(
    load: &Load<'_>,
    folder: &Path,
    name: &str,
    stop: &AtomicBool,
    on_start: impl FnOnce(u32),
) -> Result<LoadResult, RadosError> {
    let job = &load.job.name;
    let failed = |error: &ProgramError| match stop.load(Ordering::Relaxed) {
        true => RadosError::Interrupted,
        false => RadosError::Failed { job: job.clone(), message: error.to_string() },
    };
    if load.length == Length::Once {
        // A fill supersedes the objects of earlier ones, which had another size or number.
        for target in namespaces(load.slices) {
            let removed = remove_objects(target);
            removed.map_err(|message| RadosError::Failed { job: job.clone(), message })?;
        }
    }
    let mut running = Vec::new();
    for (index, slice) in load.slices.iter().enumerate() {
        let Target::Rados(target) = &slice.target else { continue };
        let file = format!("{name}-rados{index}");
        // The log has the results; it is appended to.
        let _ = std::fs::remove_file(folder.join(format!("{file}.log")));
        let program = arguments(load, target, slice, index);
        running.push((Server::start(program, folder, &file).map_err(|error| failed(&error))?, file));
    }
    if let Some((first, _)) = running.first() {
        on_start(first.process());
    }
    let limit = match load.length {
        Length::Seconds { run, .. } => Duration::from_secs_f64(run) + SPARE_TIME,
        Length::Once => Duration::from_secs(FILL_SECONDS) + SPARE_TIME,
    };
    let mut result = LoadResult::default();
    let writes = load.job.writes();
    let mut instances = Vec::new();
    for (index, (mut program, file)) in running.into_iter().enumerate() {
        program.wait_for_exit(limit, stop).map_err(|error| failed(&error))?;
        result.ended = Some(Instant::now());
        let path = folder.join(format!("{file}.log"));
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        let parsed = output::parse(&text, writes)
            .map_err(|message| RadosError::Output { job: job.clone(), message })?;
        let (direction, seconds) = parsed;
        let sides = if writes { (None, Some(direction)) } else { (Some(direction), None) };
        instances.push(ReadWrite { read: sides.0, write: sides.1 });
        output::add_seconds(&mut result.seconds, &seconds);
        let target = load.slices.get(index).map(|slice| &slice.target);
        if let (true, Length::Seconds { .. }, Some(Target::Rados(target))) = (writes, load.length, target) {
            // The program's own removal would print into its results.
            run(rados(target).args(["cleanup", "--run-name", &written_name(index)]))
                .map_err(|error| failed(&error))?;
        }
    }
    result.output = Output { version: version(), instances };
    Ok(result)
}

/// Returns the targets of slices, each namespace once.
fn namespaces(slices: &[Slice]) -> Vec<&RadosTarget> {
    let mut namespaces: Vec<&RadosTarget> = Vec::new();
    for slice in slices {
        if let Target::Rados(target) = &slice.target
            && !namespaces.contains(&target)
        {
            namespaces.push(target);
        }
    }
    namespaces
}

/// Returns the name under which the program records the objects of a measured write.
fn written_name(index: usize) -> String {
    format!("write-{index}")
}

/// Returns the version of the program.
fn version() -> String {
    let text = run(command(PROGRAM).arg("--version")).unwrap_or_default();
    let number = text.split_whitespace().nth(2).unwrap_or("?");
    format!("rados bench {number}")
}

/// Returns the command of a load on a slice.
fn arguments(load: &Load<'_>, target: &RadosTarget, slice: &Slice, index: usize) -> Command {
    let job = load.job;
    let mut program = rados(target);
    let seconds = match load.length {
        // Without a ramp-up, which the program does not have.
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a few seconds")]
        Length::Seconds { run, .. } => run.round().max(1.0) as u64,
        Length::Once => FILL_SECONDS,
    };
    let kind = match (job.writes(), job.random) {
        (true, _) => "write",
        (false, false) => "seq",
        (false, true) => "rand",
    };
    program.args(["--format", "json", "bench", &seconds.to_string(), kind]);
    let concurrent = u64::from(job.threads) * u64::from(job.depth);
    program.args(["-t", &concurrent.to_string()]);
    // Reads use the objects of the fill with their size.
    let filled = format!("read-{index}-{}", job.block_bytes);
    match (job.writes(), load.length) {
        (true, Length::Once) => {
            let objects = (slice.bytes / job.block_bytes).max(1).to_string();
            program.args(["-b", &job.block_bytes.to_string(), "--max-objects", &objects]);
            program.args(["--no-cleanup", "--run-name", &filled]);
        }
        (true, Length::Seconds { .. }) => {
            let objects = (target.write_max / job.block_bytes).max(1).to_string();
            program.args(["-b", &job.block_bytes.to_string(), "--max-objects", &objects]);
            program.args(["--no-cleanup", "--run-name", &written_name(index)]);
        }
        (false, _) => {
            program.args(["--run-name", &filled]);
        }
    }
    program
}
