//! A latency-based limit on the units in flight while several volumes compete for the same drives.
//!
//! The limit grows while the mean latency stays within a target multiple of the uncontended latency
//! and shrinks otherwise (as in TCP Vegas; Brakmo and Peterson, 1995). Reads and writes have one
//! limiter each and share the drives, so a high latency at one limiter shrinks the other one as
//! well: the first may have a single operation in flight, and the second the operations it waits
//! for. While all volumes are busy there is no latency to protect, because they wait for each other
//! at any limit. The limit then grows until each volume has its weighted share in flight.
//!
//! Invariant: the limit never falls below its minimum.
//!
//! Must not know: volumes.

use std::cell::Cell;
use std::rc::Rc;

use super::flow::{Demand, is_light};

use crate::invariant::{narrow, present};

/// Operations between two adjustments of the limit.
const ADJUST_EVERY: u32 = 32;
/// Operations that suffice for an adjustment after `ADJUST_AFTER`.
const ADJUST_MIN: u32 = 4;
/// Nanoseconds after which `ADJUST_MIN` operations suffice for an adjustment.
const ADJUST_AFTER: u64 = 5_000_000;
/// Nanoseconds after the last operation of a light volume until no light volume counts as active.
const IDLE_AFTER: u64 = 200_000_000;
/// Nanoseconds until a latency sample of the other limiter expires.
const SAMPLE_LIFETIME: u64 = 50_000_000;
/// The highest limit, in units.
const LIMIT_MAX: f32 = 512.0;
/// The lowest limit that the weights can ask for while all volumes are busy, in units.
const WEIGHTED_MIN: f32 = 128.0;
const START: f32 = 32.0;
/// Size classes of operations, each twice as large as the one before.
const SIZE_CLASSES: usize = 9;

/// The limit on units in flight; see the module.
pub(super) struct LatencyLimiter {
    limit: Cell<f32>,
    min: f32,
    /// Target mean latency under contention, as a multiple of the uncontended latency.
    target: f32,
    baselines: Cell<[Baseline; SIZE_CLASSES]>,
    /// Sum and count of the latency ratios since the last adjustment.
    ratios: Cell<(f32, u32)>,
    /// Time of the last adjustment.
    adjusted: Cell<u64>,
    shared: Rc<SharedLoad>,
    /// The limiter's index in [`SharedLoad::samples`].
    index: usize,
    /// Time of the other limiter's sample at the last adjustment.
    peer_sample: Cell<u64>,
}

/// State shared by two limiters in front of the same drives.
#[derive(Default)]
struct SharedLoad {
    /// Units in flight, of both limiters.
    in_flight: Cell<u32>,
    /// Operations started, by both limiters.
    started: Cell<u32>,
    /// Time of the last operation of a light volume at either limiter.
    light_active: Cell<u64>,
    samples: [Cell<LatencySample>; 2],
}

/// The uncontended latency of operations in a size class, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Baseline {
    #[default]
    Unknown,
    /// An upper bound: the lowest latency seen under contention.
    UpperBound(f32),
    Measured(f32),
}

/// The mean latency at a limiter as a multiple of the uncontended latency, the highest recent
/// demand of one volume there, and the time of the measurement.
#[derive(Clone, Copy, Debug, Default)]
struct LatencySample {
    ratio: f32,
    max_peak: u32,
    at: u64,
}

impl LatencyLimiter {
    /// Returns two limiters in front of the same drives. `mins` are their lowest limits in units;
    /// `slowdown` is the target mean latency under contention in percent of the uncontended
    /// latency, 0 for no target.
    pub(super) fn pair(mins: [u16; 2], slowdown: u32) -> [Self; 2] {
        let [first, second] = mins;
        let target = if slowdown == 0 { f32::INFINITY } else { to_f32(slowdown.into()) / 100.0 };
        let shared = Rc::default();
        [Self::new(first, target, &shared, 0), Self::new(second, target, &shared, 1)]
    }

    fn new(min: u16, target: f32, shared: &Rc<SharedLoad>, index: usize) -> Self {
        Self {
            limit: Cell::new(START.max(min.into())),
            min: min.into(),
            target,
            baselines: Cell::default(),
            ratios: Cell::default(),
            adjusted: Cell::default(),
            shared: shared.clone(),
            index,
            peer_sample: Cell::default(),
        }
    }

    /// Returns the limit: the units that may be in flight.
    pub(super) fn limit(&self) -> f32 {
        self.limit.get()
    }

    /// Counts the start of an operation. Returns its number if nothing else is in flight.
    pub(super) fn on_start(&self, units: u32) -> Option<u32> {
        let shared = &*self.shared;
        let (in_flight, started) = (shared.in_flight.get(), shared.started.get().wrapping_add(1));
        shared.in_flight.set(in_flight + units);
        shared.started.set(started);
        (in_flight == 0).then_some(started)
    }

    /// Counts the end of an operation.
    pub(super) fn on_end(&self, units: u32) {
        self.shared.in_flight.set(self.shared.in_flight.get().saturating_sub(units));
    }

    /// True if no operation has started since the operation with this number.
    pub(super) fn is_latest(&self, number: u32) -> bool {
        self.shared.started.get() == number
    }

    /// Records the latency of an operation that ran with nothing else in flight.
    pub(super) fn on_uncontended(&self, size: u8, nanos: u64) {
        let nanos = to_f32(nanos);
        self.update_baseline(size, |baseline| match baseline {
            Baseline::Measured(mean) => Baseline::Measured(mean + (nanos.min(mean * 4.0) - mean) / 16.0),
            Baseline::UpperBound(_) | Baseline::Unknown => Baseline::Measured(nanos),
        });
    }

    /// Records the latency of an operation that ran with others in flight. Returns true if the
    /// limit was adjusted. Latencies of heavy volumes count only while a light volume is active.
    pub(super) fn on_contended(&self, size: u8, nanos: u64, demand: Demand, now: u64) -> bool {
        let peer = self.fresh_peer_sample(now);
        if is_light(demand.peak, demand.max_peak.max(peer.max_peak)) {
            self.shared.light_active.set(now);
        }
        let nanos = to_f32(nanos);
        let baseline = self.update_baseline(size, |baseline| match baseline {
            Baseline::Measured(mean) => Baseline::Measured(mean),
            Baseline::UpperBound(bound) => Baseline::UpperBound(bound.min(nanos)),
            Baseline::Unknown => Baseline::UpperBound(nanos),
        });
        let (Baseline::Measured(uncontended) | Baseline::UpperBound(uncontended)) = baseline else {
            return false;
        };
        let (sum, count) = self.ratios.get();
        let (sum, count) = (sum + (nanos / uncontended.max(1.0)).min(64.0), count + 1);
        let since = now.saturating_sub(self.adjusted.get());
        if count < ADJUST_EVERY && (count < ADJUST_MIN || since < ADJUST_AFTER) {
            self.ratios.set((sum, count));
            return false;
        }
        self.ratios.set((0.0, 0));
        self.adjusted.set(now);
        let own = LatencySample { ratio: sum / to_f32(count.into()), max_peak: demand.max_peak, at: now };
        if let Some(sample) = self.shared.samples.get(self.index) {
            sample.set(own);
        }
        let no_light_volume = now.saturating_sub(self.shared.light_active.get()) > IDLE_AFTER;
        if no_light_volume || self.target.is_infinite() {
            self.grow_to(demand.fair_limit.clamp(WEIGHTED_MIN, LIMIT_MAX));
        } else {
            self.adjust(own.ratio, peer);
        }
        true
    }

    /// Replaces the baseline of a size class by `update` of it and returns the new value.
    fn update_baseline(&self, size: u8, update: impl FnOnce(Baseline) -> Baseline) -> Baseline {
        let mut all = self.baselines.get();
        let Some(baseline) = all.get_mut(usize::from(size)) else { return Baseline::Unknown };
        *baseline = update(*baseline);
        let baseline = *baseline;
        self.baselines.set(all);
        baseline
    }

    /// Adjusts the limit to the latency ratio of this limiter and of the other one.
    fn adjust(&self, ratio: f32, peer: LatencySample) {
        // A sample of the other limiter shrinks the limit once, and stops growth until it expires
        // or is replaced.
        let is_new = self.peer_sample.replace(peer.at) != peer.at;
        let limit = self.limit.get();
        let worst = ratio.max(peer.ratio);
        if worst <= self.target {
            self.grow_to(LIMIT_MAX);
        } else if ratio > self.target || is_new {
            self.limit.set((limit * (self.target / worst).max(0.5)).max(self.min));
        }
    }

    /// Raises the limit by one step, to at most `max`; a limit above `max` falls to it.
    fn grow_to(&self, max: f32) {
        let limit = self.limit.get();
        self.limit.set((limit + limit.sqrt() / 2.0).min(max).max(self.min));
    }

    /// Returns the latest sample of the other limiter, or a default one if it has expired.
    fn fresh_peer_sample(&self, now: u64) -> LatencySample {
        let sample = present(self.shared.samples.get(1 - self.index), "a limiter has a peer").get();
        if now.saturating_sub(sample.at) < SAMPLE_LIFETIME { sample } else { LatencySample::default() }
    }
}

#[cfg(test)]
impl LatencyLimiter {
    pub(super) fn set_limit(&self, units: f32) {
        self.limit.set(units);
    }

    /// Returns the uncontended latency of an operation on `blocks` blocks in nanoseconds, 0 if
    /// unknown.
    pub(super) fn baseline(&self, blocks: usize) -> f32 {
        match self.baselines.get()[usize::from(size_class(blocks))] {
            Baseline::Unknown => 0.0,
            Baseline::UpperBound(nanos) | Baseline::Measured(nanos) => nanos,
        }
    }
}

#[allow(clippy::cast_precision_loss)]
fn to_f32(count: u64) -> f32 {
    count as f32
}

/// Returns the size class of an operation on `blocks` blocks.
pub(super) fn size_class(blocks: usize) -> u8 {
    narrow::<u8, _>(blocks.max(1).ilog2(), "a size class").min(SIZE_CLASSES as u8 - 1)
}

#[cfg(test)]
#[path = "limiter_tests.rs"]
mod tests;
