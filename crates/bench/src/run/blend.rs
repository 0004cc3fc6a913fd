//! Staggered order (the I/O blender): every instance runs all jobs independently, with staggered
//! starts.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::fio;
use crate::load::{Length, Load, Slice};
use crate::observe::{Observation, Observer, Watch};
use crate::result::ReadWrite;
use crate::runner::{self, LoadError};
use crate::suite::Case;

/// The parameters of a staggered run.
pub(super) struct Blend<'a> {
    pub(super) cases: &'a [Case],
    /// One slice per instance.
    pub(super) slices: &'a [Slice],
    pub(super) ramp: f64,
    pub(super) run: f64,
    pub(super) stagger: f64,
    pub(super) folder: &'a Path,
    pub(super) name: &'a str,
    pub(super) stop: &'a AtomicBool,
    pub(super) watch: Watch,
    pub(super) stamped: bool,
}

/// The result of a staggered run.
pub(super) struct Blended {
    pub(super) runner: String,
    /// The results of each instance, per case.
    pub(super) cases: Vec<Vec<ReadWrite>>,
    /// The observation while all instances were running.
    pub(super) observation: Observation,
}

/// The runner and the results of one instance, in the order of the cases.
type Instance = Result<(String, Vec<ReadWrite>), LoadError>;

/// Runs all instances to completion.
///
/// # Errors
/// The first failure; the other instances have ended as well.
pub(super) fn run(blend: &Blend<'_>) -> Result<Blended, LoadError> {
    // A failed instance ends the other instances early, as an interrupt does.
    let cancelled = AtomicBool::new(false);
    let start = Instant::now();
    let observer = Observer::start(blend.watch.clone());
    let (results, all_at_work) = std::thread::scope(|scope| {
        let cancelled = &cancelled;
        let threads: Vec<_> = (0..blend.slices.len())
            .map(|index| {
                scope.spawn(move || {
                    let result = instance(blend, index, start, cancelled);
                    if result.is_err() {
                        cancelled.store(true, Ordering::Relaxed);
                    }
                    (result, start.elapsed().as_secs_f64())
                })
            })
            .collect();
        let ended: Vec<(Instance, f64)> = threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or((Err(LoadError::Interrupted), 0.0)))
            .collect();
        let first_end = ended.iter().map(|(_, at)| *at).fold(f64::MAX, f64::min);
        (ended.into_iter().map(|(result, _)| result).collect::<Vec<Instance>>(), first_end)
    });
    let whole = start.elapsed().as_secs_f64();
    #[allow(clippy::cast_precision_loss)]
    let last_begin = blend.stagger * blend.slices.len().saturating_sub(1) as f64;
    let observation = observer.between(last_begin, all_at_work.min(whole));
    let mut runner = String::new();
    let mut cases = vec![Vec::new(); blend.cases.len()];
    // Reports the original failure, not the instances that ended because of it.
    let mut failure = None;
    for result in results {
        match result {
            Ok((version, list)) => {
                runner = version;
                cases.iter_mut().zip(list).for_each(|(case, both)| case.push(both));
            }
            Err(error) if failure.is_none() || matches!(failure, Some(LoadError::Interrupted)) => {
                failure = Some(error);
            }
            Err(_) => {}
        }
    }
    match failure {
        Some(error) => Err(error),
        None => Ok(Blended { runner, cases, observation }),
    }
}

fn instance(blend: &Blend<'_>, index: usize, start: Instant, cancelled: &AtomicBool) -> Instance {
    #[allow(clippy::cast_precision_loss)]
    let begin = Duration::from_secs_f64(blend.stagger * index as f64);
    while start.elapsed() < begin {
        if blend.stop.load(Ordering::Relaxed) || cancelled.load(Ordering::Relaxed) {
            return Err(LoadError::Interrupted);
        }
        std::thread::sleep(begin.saturating_sub(start.elapsed()).min(Duration::from_millis(50)));
    }
    let slices: Vec<Slice> = blend.slices.get(index).cloned().into_iter().collect();
    let mut results = Vec::new();
    let mut runner = String::new();
    for case in blend.cases {
        if cancelled.load(Ordering::Relaxed) {
            return Err(LoadError::Interrupted);
        }
        let length = Length::Seconds { ramp: blend.ramp, run: blend.run };
        let load = Load { job: &case.job, slices: &slices, length, log: None, stamped: blend.stamped };
        let name = format!("{}-{index}-{}", blend.name, fio::file_name(&case.name));
        let ran = runner::run(&load, blend.folder, &name, blend.stop, |_| {})?;
        results.push(ran.output.merged());
        runner = ran.output.version;
    }
    Ok((runner, results))
}
