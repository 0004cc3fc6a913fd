//! The state of one volume in a scheduler: its operations in flight and in the queue, and its
//! demand relative to the other volumes.
//!
//! A volume is light if its recent peak demand is small, both in units and as a share of the
//! highest peak. The peak counts and not the present demand: when a burst completes together, the
//! first operations of the next burst find nothing of their volume in flight.
//!
//! Must not know: when an operation is admitted.

use std::collections::VecDeque;

use format::VolumeId;
use reactor::LocalSender;

/// Length of a window over which the peak demand is kept, in nanoseconds.
const PEAK_WINDOW: u64 = 100_000_000;
/// The highest peak demand of a light volume, in units.
const LIGHT_MAX: u32 = 8;
/// The peak demand of a light volume is at most the highest peak divided by this.
const LIGHT_SHARE: u32 = 4;

/// A volume among several active ones. `P` is the permit of an operation.
pub(super) struct FlowState<P> {
    pub(super) volume: VolumeId,
    pub(super) weight: f64,
    pub(super) in_flight: u32,
    /// Units in flight or queued.
    demand: u32,
    /// Peak of `demand` in the current window, counted only above a single operation.
    peak: u32,
    /// Peak in the window before.
    previous_peak: u32,
    window_start: u64,
    /// Virtual finish time of the operation that was queued last.
    pub(super) finish: f64,
    pub(super) queue: VecDeque<QueuedOp<P>>,
    /// Time of the volume's last request.
    pub(super) last_active: u64,
}

/// An operation that waits for a permit `P`.
pub(super) struct QueuedOp<P> {
    pub(super) units: u32,
    pub(super) size: u8,
    /// Virtual start time.
    pub(super) start: f64,
    pub(super) permit: LocalSender<P>,
}

/// The demand of a volume relative to the others.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Demand {
    /// The volume's recent peak, in units.
    pub(super) peak: u32,
    /// The highest recent peak of any volume, in units.
    pub(super) max_peak: u32,
    /// The limit at which the weighted share of a heavy volume first covers its whole peak, in
    /// units.
    pub(super) fair_limit: f32,
}

impl<P> FlowState<P> {
    pub(super) fn new(volume: VolumeId, weight: u16, in_flight: u32, finish: f64, now: u64) -> Self {
        Self {
            volume,
            weight: weight.into(),
            in_flight,
            demand: in_flight,
            peak: if in_flight > 1 { in_flight } else { 0 },
            previous_peak: 0,
            window_start: now,
            finish,
            queue: VecDeque::new(),
            last_active: now,
        }
    }

    /// Counts the arrival of an operation, which starts or is queued.
    pub(super) fn on_arrival(&mut self, units: u32, now: u64) {
        let past = now.saturating_sub(self.window_start);
        if past >= PEAK_WINDOW {
            self.previous_peak = if past < 2 * PEAK_WINDOW { self.peak } else { 0 };
            (self.peak, self.window_start) = (0, now);
        }
        let others = self.demand;
        self.demand += units;
        if others > 0 {
            self.peak = self.peak.max(self.demand);
        }
    }

    /// Counts the end of an operation that was in flight.
    pub(super) fn on_end(&mut self, units: u32) {
        self.in_flight = self.in_flight.saturating_sub(units);
        self.demand = self.demand.saturating_sub(units);
    }

    /// Returns the volume's share of `limit`, by its weight out of `weights`. A volume below its
    /// share is admitted regardless of the load of the others.
    pub(super) fn share(&self, limit: f32, weights: f64) -> f64 {
        f64::from(limit) * self.weight / weights
    }

    /// Returns the recent peak demand, in units.
    pub(super) fn recent_peak(&self) -> u32 {
        self.peak.max(self.previous_peak)
    }
}

/// Returns the sum of all weights.
pub(super) fn total_weight<P>(flows: &[FlowState<P>]) -> f64 {
    flows.iter().map(|flow| flow.weight).sum()
}

/// Returns the demand of a volume with this recent peak.
pub(super) fn demand<P>(flows: &[FlowState<P>], peak: u32) -> Demand {
    let max_peak = flows.iter().map(FlowState::recent_peak).fold(0, u32::max);
    let heavy = || flows.iter().filter(|flow| !is_light(flow.recent_peak(), max_peak));
    let weights: f64 = heavy().map(|flow| flow.weight).sum();
    let fair_limit = heavy()
        .map(|flow| f64::from(flow.recent_peak()) * weights / flow.weight)
        .fold(f64::INFINITY, f64::min);
    Demand { peak, max_peak, fair_limit: to_f32(fair_limit) }
}

/// True if a peak demand is light relative to the highest one.
pub(super) fn is_light(peak: u32, max_peak: u32) -> bool {
    peak <= LIGHT_MAX.min(max_peak / LIGHT_SHARE)
}

#[allow(clippy::cast_possible_truncation)]
fn to_f32(units: f64) -> f32 {
    units as f32
}

#[cfg(test)]
#[path = "flow_tests.rs"]
mod tests;
