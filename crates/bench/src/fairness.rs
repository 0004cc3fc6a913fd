//! `bench fairness`: the latency of a volume at queue depth 1 next to a busy volume, compared with
//! its latency alone.
//!
//! ReadWrite volumes belong to one pool and are used from one reactor, so if the processor is the
//! bottleneck and not the drives, the figures are those of its run queue. Every read is verified.

use std::time::Duration;

use engine::{Pool, Tuning};
use format::Scheme;
use reactor::Reactor;
use serde::Serialize;

use crate::bench_error::BenchError;
pub use crate::drives::Drives;
use crate::sample::Recorder;
pub use crate::volume_load::Operation;
use crate::volume_load::{BackgroundLoad, VolumeLoad, filled};
use crate::{file_pool, memory_pool};

/// Pause before each measurement: the engine stops sharing with a volume that is idle for this
/// long.
const IDLE_TIME: Duration = Duration::from_millis(300);
/// Ramp-up that is not measured: the engine first has to learn the latency under this load.
const RAMP: Duration = Duration::from_millis(500);

/// Parameters of the benchmark.
#[derive(Clone, Debug)]
pub struct FairnessOptions {
    /// Protection scheme of the pool.
    pub scheme: Scheme,
    /// Number of drives, if they are created.
    pub count: usize,
    /// Kind of drives.
    pub drives: Drives,
    /// Bytes per drive, if they are created.
    pub drive_bytes: u64,
    /// Bytes of each of the two volumes.
    pub volume_bytes: u64,
    /// Queue depth of the busy volume.
    pub depth: u32,
    /// Target slowdown of the pool, as in [`Tuning::slowdown`].
    pub slowdown: u32,
    /// Length of each part of a round, in seconds.
    pub seconds: f64,
    /// Number of rounds; the parts of a round alternate, and medians count.
    pub rounds: u32,
}

/// The figures of a quiet volume next to a busy one.
#[derive(Clone, Debug, Serialize)]
pub struct ContentionResult {
    /// The operation of the quiet volume, one at a time.
    pub quiet: Operation,
    /// The operation of the busy volume.
    pub busy: Operation,
    /// Median latency of the quiet volume alone, in microseconds.
    pub alone_p50_us: f64,
    /// 99th percentile of the same.
    pub alone_p99_us: f64,
    /// Median latency of the quiet volume next to the busy one, in microseconds.
    pub contended_p50_us: f64,
    /// 99th percentile of the same.
    pub contended_p99_us: f64,
    /// Ratio of the 99th percentiles: the median of the rounds.
    pub times_p99: f64,
    /// Operations per second of the busy volume alone.
    pub busy_alone_per_s: f64,
    /// Operations per second of the busy volume next to the quiet one.
    pub busy_contended_per_s: f64,
    /// Operations per second of the quiet volume next to the busy one.
    pub quiet_contended_per_s: f64,
}

/// Result of the benchmark.
#[derive(Clone, Debug, Serialize)]
pub struct Fairness {
    /// Queue depth of the busy volume.
    pub depth: u32,
    /// The figures of each pair of operations.
    pub pairs: Vec<ContentionResult>,
    /// Blocks with wrong contents.
    pub wrong: u64,
}

/// Runs the benchmark. Calls `progress` with the name of each part.
///
/// # Errors
/// If the drives cannot be opened, the pool cannot be created, or an operation fails.
pub fn run(options: &FairnessOptions, progress: &mut dyn FnMut(&str)) -> Result<Fairness, BenchError> {
    file_pool::on_a_reactor(async |_| {
        let opened = options.drives.open(options.count, options.drive_bytes)?;
        let tuning = Tuning { slowdown: options.slowdown, ..Tuning::default() };
        let pool = memory_pool::pool_tuned(&opened.drives, options.scheme, None, Vec::new(), tuning).await?;
        let result = measure(&pool, options, progress).await?;
        pool.close().await?;
        Ok(result)
    })
}

const PAIRS: [(Operation, Operation); 4] = [
    (Operation::Reads, Operation::Reads),
    (Operation::Reads, Operation::Writes),
    (Operation::Writes, Operation::Reads),
    (Operation::Writes, Operation::Writes),
];

/// The records of one round of a pair.
struct PairRound {
    alone: Recorder,
    contended: Recorder,
    busy_alone: f64,
    busy_contended: f64,
    quiet_contended: f64,
}

async fn measure(
    pool: &Pool,
    options: &FairnessOptions,
    progress: &mut dyn FnMut(&str),
) -> Result<Fairness, BenchError> {
    progress("filling the volumes");
    let quiet = filled(pool, "quiet", options.volume_bytes).await?;
    let busy = filled(pool, "busy", options.volume_bytes).await?;
    let mut rounds: Vec<Vec<PairRound>> = PAIRS.iter().map(|_| Vec::new()).collect();
    for number in 1..=options.rounds {
        progress(&format!("round {number} of {}", options.rounds));
        for ((first, second), rounds) in PAIRS.iter().zip(&mut rounds) {
            let length = Duration::from_secs_f64(options.seconds);
            let one = (&quiet, *first, 1);
            let many = (&busy, *second, options.depth);
            let (alone, _) = load(one, None, length).await?;
            let (busy_alone, _) = load(many, None, length).await?;
            let (contended, busy_contended) = load(one, Some(many), length).await?;
            let rate = |of: &Recorder| per_second(of, length);
            rounds.push(PairRound {
                busy_alone: rate(&busy_alone),
                busy_contended: busy_contended.as_ref().map_or(0.0, rate),
                quiet_contended: rate(&contended),
                alone,
                contended,
            });
        }
    }
    let wrong = rounds.iter().flatten().map(|round| round.alone.wrong + round.contended.wrong).sum();
    let pairs = PAIRS.iter().zip(&rounds).map(|(pair, rounds)| contention(*pair, rounds)).collect();
    Ok(Fairness { depth: options.depth, pairs, wrong })
}

#[allow(clippy::cast_precision_loss)]
fn per_second(recorder: &Recorder, length: Duration) -> f64 {
    recorder.count() as f64 / length.as_secs_f64()
}

fn contention((quiet, busy): (Operation, Operation), rounds: &[PairRound]) -> ContentionResult {
    let middle = |of: &dyn Fn(&PairRound) -> f64| {
        let mut values: Vec<f64> = rounds.iter().map(of).collect();
        values.sort_by(f64::total_cmp);
        values.get(values.len() / 2).copied().unwrap_or(0.0)
    };
    ContentionResult {
        quiet,
        busy,
        alone_p50_us: middle(&|round| round.alone.percentile_us(0.5)),
        alone_p99_us: middle(&|round| round.alone.percentile_us(0.99)),
        contended_p50_us: middle(&|round| round.contended.percentile_us(0.5)),
        contended_p99_us: middle(&|round| round.contended.percentile_us(0.99)),
        times_p99: middle(&|round| round.contended.percentile_us(0.99) / round.alone.percentile_us(0.99)),
        busy_alone_per_s: middle(&|round| round.busy_alone),
        busy_contended_per_s: middle(&|round| round.busy_contended),
        quiet_contended_per_s: middle(&|round| round.quiet_contended),
    }
}

/// Runs a load, and optionally a second one at the same time, for `length` after a ramp-up.
async fn load(
    first: VolumeLoad<'_>,
    second: Option<VolumeLoad<'_>>,
    length: Duration,
) -> engine::Result<(Recorder, Option<Recorder>)> {
    let reactor = Reactor::current();
    reactor.sleep(IDLE_TIME).await;
    let second = second.map(BackgroundLoad::start);
    let first = BackgroundLoad::start(first);
    reactor.sleep(RAMP).await;
    let all = || std::iter::once(&first).chain(&second);
    all().for_each(BackgroundLoad::count_from_now);
    reactor.sleep(length).await;
    all().for_each(BackgroundLoad::stop_counting);
    let first = first.stop().await?;
    let second = match second {
        Some(second) => Some(second.stop().await?),
        None => None,
    };
    Ok((first, second))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pair_of_operations_is_measured() {
        let place = tempfile::tempdir().unwrap();
        let options = |seconds| FairnessOptions {
            scheme: Scheme::new(2, 1).unwrap(),
            count: 3,
            drives: Drives::Files(place.path().into()),
            drive_bytes: 128 << 20,
            volume_bytes: (8 << 20) + 4096,
            depth: 16,
            slowdown: 300,
            seconds,
            rounds: 1,
        };
        let mut steps = Vec::new();
        let mut measure = |seconds| {
            steps.clear();
            run(&options(seconds), &mut |step| steps.push(step.to_owned())).unwrap()
        };
        // A loaded machine may complete no operation in a short round.
        let has_all = |result: &Fairness| {
            let figures = |pair: &ContentionResult| {
                // The latency stands for the rate of the quiet volume alone.
                [
                    pair.alone_p50_us,
                    pair.quiet_contended_per_s,
                    pair.busy_alone_per_s,
                    pair.busy_contended_per_s,
                ]
            };
            result.pairs.iter().flat_map(figures).all(|figure| figure > 0.0)
        };
        let mut result = measure(0.05);
        for seconds in [0.5, 5.0] {
            if !has_all(&result) {
                result = measure(seconds);
            }
        }
        assert_eq!((result.wrong, result.pairs.len(), steps.len()), (0, 4, 2), "{result:?}");
        for pair in &result.pairs {
            assert!(pair.alone_p99_us >= pair.alone_p50_us && pair.alone_p50_us > 0.0, "{pair:?}");
            assert!(pair.contended_p99_us > 0.0 && pair.times_p99 > 0.0, "{pair:?}");
            assert!(pair.busy_alone_per_s > 0.0 && pair.busy_contended_per_s > 0.0, "{pair:?}");
        }
        assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 0);
    }
}
