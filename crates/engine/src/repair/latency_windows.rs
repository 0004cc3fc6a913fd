//! Recent latency of client operations: histograms in two alternating time windows.
//!
//! Always true: only one thread updates the counts, and any thread may read them; a read during the
//! reset of a window may miss some operations. Latencies up to two minutes are exact to 1/8. Must
//! not know: the kind of operations.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use reactor::Instant;

use crate::invariant::{clamped, to_index};

/// Length of a window. A summary covers one to two windows.
pub(super) const WINDOW: Duration = Duration::from_secs(10);
/// Latency resolution, as a power of two of nanoseconds.
const UNIT_BITS: u32 = 8;
/// Buckets per doubling, as a power of two.
const STEP_BITS: u32 = 3;
/// Number of doublings after the first buckets.
const DOUBLINGS: u32 = 26;
const BUCKETS: usize = ((DOUBLINGS + 1) << STEP_BITS) as usize;

/// Latency histograms of the current and the previous window.
#[derive(Debug, Default)]
pub(super) struct LatencyWindows([Window; 2]);

#[derive(Debug)]
struct Window {
    /// Window number, counted from the clock's origin and starting at 1; 0 for an unused window.
    number: AtomicU64,
    counts: [AtomicU32; BUCKETS],
}

/// Number of operations per latency bucket.
#[derive(Clone, Debug)]
pub(super) struct LatencyHistogram([u64; BUCKETS]);

/// Recent latency of client operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecentLatency {
    /// Number of operations.
    pub operations: u64,
    /// Median latency.
    pub p50: Duration,
    /// 99th percentile of the latency.
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

/// Number of the window at time `at`.
fn window_of(at: Instant) -> u64 {
    at.as_nanos() / clamped(WINDOW.as_nanos()) + 1
}

/// Bucket of a latency.
fn bucket_of(nanos: u64) -> usize {
    let units = nanos >> UNIT_BITS;
    let doubling = units.checked_ilog2().map_or(0, |log| log.saturating_sub(STEP_BITS - 1));
    let bucket = match doubling {
        0 => units,
        more => (u64::from(more) << STEP_BITS) + (units >> (more - 1)) - (1 << STEP_BITS),
    };
    to_index(bucket).min(BUCKETS - 1)
}

/// Exclusive upper bound of a bucket, in nanoseconds.
fn end_of(bucket: usize) -> u64 {
    let (doubling, step) = (bucket >> STEP_BITS, bucket as u64 & ((1 << STEP_BITS) - 1));
    let units = match doubling {
        0 => step + 1,
        more => (step + 1 + (1 << STEP_BITS)) << (more - 1),
    };
    units << UNIT_BITS
}

impl LatencyWindows {
    /// Counts a finished operation. Only one thread may call this.
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

    /// Adds the counts of the current and the previous window.
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
    /// Returns the percentiles; `None` without operations.
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
