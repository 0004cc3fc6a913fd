//! Adaptive rate of background work under client I/O.
//!
//! Compares the latency of client operations that overlap background work with that of uncontended
//! ones. While the slowdown is tolerable, the rate grows: first the pauses become shorter, then the
//! chunks larger. Otherwise it shrinks. Pauses leave the drives to clients, and allow measuring the
//! uncontended latency.
//!
//! Always true: background work keeps at least a quarter of drive time. Must not know: the kind of
//! work, and the clients.

use std::cell::Cell;
use std::time::Duration;

use reactor::Instant;

use super::client_load::{OpSum, OpTotals};

/// Minimum share of drive time, regardless of client latency.
const SHARE_MIN: f64 = 0.25;
/// Minimum size of a chunk, in bytes of one column, and maximum chunk size as a multiple of it.
const CHUNK_MIN: usize = 64 << 10;
const CHUNKS_MAX: f64 = 16.0;
/// Tolerated mean latency of contended operations: twice the uncontended latency, or 30 µs more,
/// which is less than the latency of any drive that is not memory.
const SLOWDOWN_MAX: f64 = 2.0;
const SLOWDOWN_NANOS: f64 = 30_000.0;
/// Number of contended operations, or time, after which the rate is adjusted.
const ADJUST_OPS: u64 = 64;
const ADJUST_AFTER: Duration = Duration::from_millis(100);
/// Number of uncontended operations after which the baseline is updated; fewer after
/// `ADJUST_AFTER`.
const BASELINE_OPS: u64 = 8;
const GROW: f64 = 1.1;
const SHRINK: f64 = 0.7;
/// A measuring pause is 4 times as long as an operation, and the time between two of them 8 times
/// as long as the pause.
const PROBE_LENGTH: f64 = 4.0;
const PROBE_EVERY: u32 = 8;

/// Adaptive rate of one shard's background jobs.
pub(super) struct BackgroundRate {
    /// Share of drive time up to 1; above that, the chunk size as a multiple of `CHUNK_MIN`.
    rate: Cell<f64>,
    /// Uncontended latency of an operation, in nanoseconds.
    baseline: Cell<Option<f64>>,
    /// Recent contended latency, in nanoseconds.
    contended: Cell<f64>,
    /// Counters of contended operations at the last adjustment, and its time.
    adjusted: Cell<(OpSum, Instant)>,
    /// Counters of uncontended operations at the last baseline update, and its time.
    measured: Cell<(OpSum, Instant)>,
    /// Time of the next measuring pause.
    next_probe: Cell<Instant>,
}

impl Default for BackgroundRate {
    fn default() -> Self {
        let start = Instant::from_nanos(0);
        Self {
            rate: Cell::new(SHARE_MIN),
            baseline: Cell::default(),
            contended: Cell::default(),
            adjusted: Cell::new((OpSum::default(), start)),
            measured: Cell::new((OpSum::default(), start)),
            next_probe: Cell::new(start),
        }
    }
}

impl BackgroundRate {
    /// Restarts at the minimum rate.
    pub(super) fn begin(&self, totals: OpTotals, now: Instant) {
        self.rate.set(SHARE_MIN);
        self.baseline.set(None);
        self.adjusted.set((totals.contended, now));
        self.measured.set((totals.uncontended, now));
        self.next_probe.set(now);
    }

    /// Adjusts the rate to the client operations counted so far.
    pub(super) fn adjust(&self, totals: OpTotals, now: Instant) {
        let (before, when) = self.measured.get();
        let uncontended = totals.uncontended - before;
        if let Some(mean) = uncontended.mean()
            && (uncontended.operations >= BASELINE_OPS || now.since(when) >= ADJUST_AFTER)
        {
            let baseline = self.baseline.get().unwrap_or(mean);
            self.baseline.set(Some(baseline + (mean - baseline) / 4.0));
            self.measured.set((totals.uncontended, now));
        }
        let (before, when) = self.adjusted.get();
        let contended = totals.contended - before;
        if contended.operations < ADJUST_OPS && now.since(when) < ADJUST_AFTER {
            return;
        }
        self.adjusted.set((totals.contended, now));
        let tolerable = match (contended.mean(), self.baseline.get()) {
            // No client operation overlapped background work.
            (None, _) => true,
            (Some(mean), baseline) => {
                self.contended.set(mean);
                let Some(baseline) = baseline else { return };
                mean <= (baseline * SLOWDOWN_MAX).max(baseline + SLOWDOWN_NANOS)
            }
        };
        let factor = if tolerable { GROW } else { SHRINK };
        self.rate.set((self.rate.get() * factor).clamp(SHARE_MIN, CHUNKS_MAX));
    }

    /// Number of bytes of a column to process per chunk.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    pub(super) fn chunk_bytes(&self) -> usize {
        CHUNK_MIN * self.rate.get().clamp(1.0, CHUNKS_MAX) as usize
    }

    /// Pause after a chunk that took `took`, if `workers` shards share the drives.
    pub(super) fn rest(&self, took: Duration, workers: u32, now: Instant) -> Duration {
        let share = self.rate.get().min(1.0) / f64::from(workers.max(1));
        let rest = took.mul_f64(1.0 / share - 1.0);
        if now < self.next_probe.get() {
            return rest;
        }
        let latency = self.baseline.get().unwrap_or(0.0).max(self.contended.get());
        let probe = rest.max(Duration::from_secs_f64(latency * PROBE_LENGTH / 1e9));
        self.next_probe.set(now + probe * PROBE_EVERY);
        probe
    }
}

#[cfg(test)]
#[path = "background_rate_tests.rs"]
mod tests;
