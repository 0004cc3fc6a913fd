//! `bench fairness`: what a busy volume leaves another one that asks for one block at a time, beside what that one gets when it is alone.
//!
//! Both are volumes of one pool, and both are used from one reactor, so where the processor is the limit, and not the drives, the figures are
//! those of its queue. Every read is looked at.
//!
//! Must not know: how the engine shares.

use std::time::Duration;

use engine::{Pool, Tuning};
use format::Scheme;
use reactor::Reactor;
use serde::Serialize;

pub use crate::drives::Drives;
use crate::engine_bench::BenchError;
use crate::sample::Recorder;
pub use crate::users::Operation;
use crate::users::{Use, Users, filled};
use crate::{file_pool, memory_pool};

/// After what was measured before: a volume that did nothing for so long is not shared with any more.
const REST: Duration = Duration::from_millis(300);
/// What begins a measurement and does not count: how long operations take under this load has to be learned.
const RAMP: Duration = Duration::from_millis(500);

/// What is measured.
#[derive(Clone, Debug)]
pub struct Options {
    /// Protection of the pool.
    pub scheme: Scheme,
    /// How many drives, if they are made.
    pub count: usize,
    /// What they are.
    pub drives: Drives,
    /// Bytes of each, if they are made.
    pub drive_bytes: u64,
    /// Bytes of each of the two volumes.
    pub volume_bytes: u64,
    /// Operations that the busy volume has under way.
    pub depth: u32,
    /// What the pool bears, as in [`Tuning::slowdown`].
    pub slowdown: u32,
    /// How long each part of a round runs, in seconds.
    pub seconds: f64,
    /// How often each part runs, in turns; medians count.
    pub rounds: u32,
}

/// One volume beside another.
#[derive(Clone, Debug, Serialize)]
pub struct Beside {
    /// What the volume does whose time counts, one at a time.
    pub quiet: Operation,
    /// What the busy one does.
    pub busy: Operation,
    /// Median time of the quiet one's operations alone, in microseconds.
    pub alone_p50_us: f64,
    /// Their 99th percentile.
    pub alone_p99_us: f64,
    /// Median time beside the busy one, in microseconds.
    pub beside_p50_us: f64,
    /// Their 99th percentile.
    pub beside_p99_us: f64,
    /// How many times as long it is: the median of the rounds.
    pub times_p99: f64,
    /// Operations a second of the busy one alone.
    pub busy_alone_per_s: f64,
    /// The same beside the quiet one.
    pub busy_beside_per_s: f64,
    /// Operations a second of the quiet one beside it.
    pub quiet_beside_per_s: f64,
}

/// What was measured.
#[derive(Clone, Debug, Serialize)]
pub struct Fairness {
    /// Operations of the busy volume under way.
    pub depth: u32,
    /// Each kind beside each.
    pub pairs: Vec<Beside>,
    /// Blocks that did not hold what was written.
    pub wrong: u64,
}

/// Measures; tells before each part what it is.
///
/// # Errors
/// When the drives cannot be had, a pool cannot be made of them, or an operation fails.
pub fn run(options: &Options, tell: &mut dyn FnMut(&str)) -> Result<Fairness, BenchError> {
    file_pool::on_a_reactor(async |_| {
        let opened = options.drives.open(options.count, options.drive_bytes)?;
        let tuning = Tuning { slowdown: options.slowdown, ..Tuning::default() };
        let pool = memory_pool::pool_tuned(&opened.drives, options.scheme, None, Vec::new(), tuning).await?;
        let found = measure(&pool, options, tell).await?;
        pool.close().await?;
        Ok(found)
    })
}

const PAIRS: [(Operation, Operation); 4] = [
    (Operation::Reads, Operation::Reads),
    (Operation::Reads, Operation::Writes),
    (Operation::Writes, Operation::Reads),
    (Operation::Writes, Operation::Writes),
];

/// What a round found of a pair.
struct Round {
    alone: Recorder,
    beside: Recorder,
    busy_alone: f64,
    busy_beside: f64,
    quiet_beside: f64,
}

async fn measure(pool: &Pool, options: &Options, tell: &mut dyn FnMut(&str)) -> Result<Fairness, BenchError> {
    tell("filling the volumes");
    let quiet = filled(pool, "quiet", options.volume_bytes).await?;
    let busy = filled(pool, "busy", options.volume_bytes).await?;
    let mut rounds: Vec<Vec<Round>> = PAIRS.iter().map(|_| Vec::new()).collect();
    for number in 1..=options.rounds {
        tell(&format!("round {number} of {}", options.rounds));
        for ((first, second), rounds) in PAIRS.iter().zip(&mut rounds) {
            let length = Duration::from_secs_f64(options.seconds);
            let one = (&quiet, *first, 1);
            let many = (&busy, *second, options.depth);
            let (alone, _) = load(one, None, length).await?;
            let (busy_alone, _) = load(many, None, length).await?;
            let (beside, busy_beside) = load(one, Some(many), length).await?;
            let rate = |of: &Recorder| per_second(of, length);
            rounds.push(Round {
                busy_alone: rate(&busy_alone),
                busy_beside: busy_beside.as_ref().map_or(0.0, rate),
                quiet_beside: rate(&beside),
                alone,
                beside,
            });
        }
    }
    let wrong = rounds.iter().flatten().map(|round| round.alone.wrong + round.beside.wrong).sum();
    let pairs = PAIRS.iter().zip(&rounds).map(|(pair, rounds)| beside(*pair, rounds)).collect();
    Ok(Fairness { depth: options.depth, pairs, wrong })
}

#[allow(clippy::cast_precision_loss)]
fn per_second(recorder: &Recorder, length: Duration) -> f64 {
    recorder.count() as f64 / length.as_secs_f64()
}

fn beside((quiet, busy): (Operation, Operation), rounds: &[Round]) -> Beside {
    let middle = |of: &dyn Fn(&Round) -> f64| {
        let mut values: Vec<f64> = rounds.iter().map(of).collect();
        values.sort_by(f64::total_cmp);
        values.get(values.len() / 2).copied().unwrap_or(0.0)
    };
    Beside {
        quiet,
        busy,
        alone_p50_us: middle(&|round| round.alone.percentile_us(0.5)),
        alone_p99_us: middle(&|round| round.alone.percentile_us(0.99)),
        beside_p50_us: middle(&|round| round.beside.percentile_us(0.5)),
        beside_p99_us: middle(&|round| round.beside.percentile_us(0.99)),
        times_p99: middle(&|round| round.beside.percentile_us(0.99) / round.alone.percentile_us(0.99)),
        busy_alone_per_s: middle(&|round| round.busy_alone),
        busy_beside_per_s: middle(&|round| round.busy_beside),
        quiet_beside_per_s: middle(&|round| round.quiet_beside),
    }
}

/// Uses a volume, and another one beside it, for this long after a ramp.
async fn load(
    first: Use<'_>,
    second: Option<Use<'_>>,
    length: Duration,
) -> engine::Result<(Recorder, Option<Recorder>)> {
    let reactor = Reactor::current();
    reactor.sleep(REST).await;
    let second = second.map(Users::start);
    let first = Users::start(first);
    reactor.sleep(RAMP).await;
    let all = || std::iter::once(&first).chain(&second);
    all().for_each(Users::count_from_now);
    reactor.sleep(length).await;
    all().for_each(Users::stop_counting);
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
    fn each_kind_is_measured_beside_each() {
        let place = tempfile::tempdir().unwrap();
        let options = |seconds| Options {
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
        // A machine that is busy may answer nothing in a short round.
        let has_all = |found: &Fairness| found.pairs.iter().all(|pair| pair.quiet_beside_per_s > 0.0);
        let mut found = measure(0.05);
        for seconds in [0.5, 5.0] {
            if !has_all(&found) {
                found = measure(seconds);
            }
        }
        assert_eq!((found.wrong, found.pairs.len(), steps.len()), (0, 4, 2), "{found:?}");
        for pair in &found.pairs {
            assert!(pair.alone_p99_us >= pair.alone_p50_us && pair.alone_p50_us > 0.0, "{pair:?}");
            assert!(pair.beside_p99_us > 0.0 && pair.times_p99 > 0.0, "{pair:?}");
            assert!(pair.busy_alone_per_s > 0.0 && pair.busy_beside_per_s > 0.0, "{pair:?}");
        }
        assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 0);
    }
}
