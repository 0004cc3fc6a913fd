//! How long users' operations took lately: counts of them by how long they took, in two windows of time that take turns.
//!
//! Always true: one thread writes the counts, and any thread may read them; who reads while a window begins anew may miss some. What takes up to
//! two minutes is told to an eighth. Must not know: what the operations are.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use reactor::Instant;

/// How long a window is. What is told of is one window at least, and two at most.
pub(super) const WINDOW: Duration = Duration::from_secs(10);
/// The finest that is told apart, as a power of two of nanoseconds.
const FINEST: u32 = 8;
/// Steps within a doubling, as a power of two.
const STEPS: u32 = 3;
/// Doublings above the first steps.
const DOUBLINGS: u32 = 26;
const BUCKETS: usize = ((DOUBLINGS + 1) << STEPS) as usize;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct LatencyWindows([Window; 2]);

#[derive(Debug)]
struct Window {
    /// Which one it is, counted from the beginning of time, and one more: 0 for none.
    number: AtomicU64,
    counts: [AtomicU32; BUCKETS],
}

/// Operations by how long they took.
#[derive(Clone, Debug)]
pub(super) struct LatencyHistogram([u64; BUCKETS]);

/// How long operations took lately.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecentLatency {
    /// How many there were.
    pub operations: u64,
    /// What half of them took at most.
    pub p50: Duration,
    /// What 99 of 100 took at most.
    pub p99: Duration,
}

impl Default for Window {
    fn default() -> Self {
        Self { number: AtomicU64::new(0), counts: std::array::from_fn(|_| AtomicU32::new(0)) }
    }
}

impl Default for LatencyHistogram {
    fn default() -> Self {
        Self([0; BUCKETS])
    }
}

/// The number of the window that a moment is in.
fn window_of(at: Instant) -> u64 {
    at.as_nanos() / u64::try_from(WINDOW.as_nanos()).unwrap_or(u64::MAX) + 1
}

/// The bucket of operations that take so long.
fn bucket_of(nanos: u64) -> usize {
    let units = nanos >> FINEST;
    let doubling = units.checked_ilog2().map_or(0, |log| log.saturating_sub(STEPS - 1));
    let bucket = match doubling {
        0 => units,
        more => (u64::from(more) << STEPS) + (units >> (more - 1)) - (1 << STEPS),
    };
    usize::try_from(bucket).unwrap_or(usize::MAX).min(BUCKETS - 1)
}

/// What the operations of a bucket take at most, in nanoseconds.
fn end_of(bucket: usize) -> u64 {
    let (doubling, step) = (bucket >> STEPS, bucket as u64 & ((1 << STEPS) - 1));
    let units = match doubling {
        0 => step + 1,
        more => (step + 1 + (1 << STEPS)) << (more - 1),
    };
    units << FINEST
}

impl LatencyWindows {
    /// An operation is over that took so long. By one thread only.
    pub(super) fn count(&self, now: Instant, nanos: u64) {
        let number = window_of(now);
        let Some(window) = self.0.get((number % 2) as usize) else { return };
        if window.number.load(Ordering::Relaxed) != number {
            window.counts.iter().for_each(|count| count.store(0, Ordering::Relaxed));
            window.number.store(number, Ordering::Relaxed);
        }
        if let Some(count) = window.counts.get(bucket_of(nanos)) {
            count.store(count.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
        }
    }

    /// Adds what was counted in the window that `now` is in, and in the one before.
    pub(super) fn add_to(&self, counts: &mut LatencyHistogram, now: Instant) {
        let number = window_of(now);
        let latency = |window: &&Window| {
            (number.saturating_sub(1)..=number).contains(&window.number.load(Ordering::Relaxed))
        };
        for window in self.0.iter().filter(latency) {
            for (sum, count) in counts.0.iter_mut().zip(&window.counts) {
                *sum += u64::from(count.load(Ordering::Relaxed));
            }
        }
    }
}

impl LatencyHistogram {
    /// What they say; `None` of no operation.
    pub(super) fn summary(&self) -> Option<RecentLatency> {
        let operations: u64 = self.0.iter().sum();
        let within = |percent: u64| {
            let wanted = (operations * percent).div_ceil(100);
            let sums = self.0.iter().scan(0, |sum, count| {
                *sum += count;
                Some(*sum)
            });
            let bucket = sums.enumerate().find(|(_, sum)| *sum >= wanted).map_or(0, |(bucket, _)| bucket);
            Duration::from_nanos(end_of(bucket))
        };
        (operations > 0).then(|| RecentLatency { operations, p50: within(50), p99: within(99) })
    }
}

#[cfg(test)]
#[path = "latency_windows_tests.rs"]
mod tests;
