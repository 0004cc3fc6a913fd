//! The order in which operations of competing volumes are admitted: weighted fair queueing under a
//! limit on the units in flight that follows their latency.
//!
//! While a single volume is active, every operation is admitted. With several active volumes,
//! operations are admitted by start-time fair queueing (Goyal, Vin and Cheng, 1996) up to the limit
//! of a [`LatencyLimiter`]. A busy volume thus fills the drives but not the drives' queues, and a
//! light volume does not wait behind it. A volume with less than its share of the limit in flight
//! never waits.
//!
//! Invariants: an operation is counted until its [`Permit`] is dropped; while an operation waits,
//! another one is in flight.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use format::VolumeId;
use reactor::{Reactor, local_oneshot};
use smallvec::SmallVec;

use super::flow::{self, Demand, FlowState, QueuedOp};
use super::limiter::{LatencyLimiter, size_class};

use crate::invariant::narrow;

/// Nanoseconds for which a volume counts as active after its last request.
const ACTIVE_FOR: u64 = 100_000_000;
/// One of so many uncontended operations is timed.
const TIMED_EVERY: u32 = 16;
/// Weight of a volume without an explicit one.
const DEFAULT_WEIGHT: u16 = 100;

/// Admits the operations of volumes in front of a set of drives; see the module.
pub(crate) struct FairScheduler {
    /// The only active volume; `None` at first, and while several are active.
    sole: Cell<Option<VolumeId>>,
    /// Units in flight.
    in_flight: Cell<u32>,
    limiter: LatencyLimiter,
    /// The active volumes, while there are several.
    flows: RefCell<SmallVec<[FlowState<Permit>; 8]>>,
    /// Virtual start time of the operation that was admitted last.
    virtual_time: Cell<f64>,
    weights: RefCell<Vec<(VolumeId, u16)>>,
}

/// An admitted operation. Dropped when the operation ends.
pub(crate) struct Permit {
    scheduler: Rc<FairScheduler>,
    volume: VolumeId,
    units: u32,
    size: u8,
    /// Start of the operation, if it is timed.
    start: Option<OpStart>,
}

/// The start of an operation. An operation counts as uncontended only if nothing else was in flight
/// when it started and no other operation started before its end.
#[derive(Clone, Copy)]
enum OpStart {
    Uncontended { at: u64, number: u32 },
    Contended { at: u64 },
}

impl FairScheduler {
    /// Returns two schedulers in front of the same drives. `limits_min` are their lowest limits in
    /// units; `slowdown` as in [`crate::Tuning`].
    pub(crate) fn pair(limits_min: [u16; 2], slowdown: u32) -> [Rc<Self>; 2] {
        LatencyLimiter::pair(limits_min, slowdown).map(|limiter| Rc::new(Self::new(limiter)))
    }

    fn new(limiter: LatencyLimiter) -> Self {
        Self {
            sole: Cell::new(None),
            in_flight: Cell::new(0),
            limiter,
            flows: RefCell::default(),
            virtual_time: Cell::new(0.0),
            weights: RefCell::default(),
        }
    }

    /// Sets the weight of a volume relative to the others; 0 for the default.
    pub(crate) fn set_weight(&self, volume: VolumeId, weight: u16) {
        let mut weights = self.weights.borrow_mut();
        weights.retain(|(other, _)| *other != volume);
        if weight != DEFAULT_WEIGHT && weight != 0 {
            weights.push((volume, weight));
        }
        drop(weights);
        for flow in self.flows.borrow_mut().iter_mut().filter(|flow| flow.volume == volume) {
            flow.weight = f64::from(if weight == 0 { DEFAULT_WEIGHT } else { weight });
        }
    }

    /// Returns a permit for an operation on `blocks` blocks, or `None` if the operation has to wait
    /// ([`FairScheduler::acquire`]).
    pub(crate) fn try_acquire(self: &Rc<Self>, volume: VolumeId, blocks: usize) -> Option<Permit> {
        let units = units_of(blocks);
        if self.sole.get() == Some(volume) {
            self.in_flight.set(self.in_flight.get() + units);
            let number = self.limiter.on_start(units).filter(|number| number.is_multiple_of(TIMED_EVERY));
            let start = number.map(|number| OpStart::Uncontended { at: now(), number });
            return Some(Permit { scheduler: self.clone(), volume, units, size: size_class(blocks), start });
        }
        self.try_acquire_contended(volume, blocks)
    }

    #[cold]
    fn try_acquire_contended(self: &Rc<Self>, volume: VolumeId, blocks: usize) -> Option<Permit> {
        let (now, units) = (now(), units_of(blocks));
        if self.sole.get().is_none() && self.flows.borrow().is_empty() {
            self.sole.set(Some(volume));
            return self.try_acquire(volume, blocks);
        }
        let index = self.activate(volume, now);
        let mut flows = self.flows.borrow_mut();
        let (weights, is_only) = (flow::total_weight(&flows), flows.len() == 1);
        let flow = flows.get_mut(index)?;
        let share = flow.share(self.limiter.limit(), weights);
        let below_limit =
            self.in_flight.get() == 0 || to_f32(self.in_flight.get() + units) <= self.limiter.limit();
        let below_share = flow.in_flight == 0 || f64::from(flow.in_flight + units) <= share;
        if !flow.queue.is_empty() || !(below_limit || below_share || is_only) {
            return None;
        }
        let start = flow.finish.max(self.virtual_time.get());
        flow.finish = start + f64::from(units) / flow.weight;
        self.virtual_time.set(start.max(self.virtual_time.get()));
        flow.on_arrival(units, now);
        flow.in_flight += units;
        self.in_flight.set(self.in_flight.get() + units);
        drop(flows);
        self.limiter.on_start(units);
        let start = Some(OpStart::Contended { at: now });
        Some(Permit { scheduler: self.clone(), volume, units, size: size_class(blocks), start })
    }

    /// Records that the other scheduler in front of the same drives admits an operation of
    /// `volume`. Another volume with operations in flight here is then no longer the only active
    /// one.
    pub(crate) fn note_active(&self, volume: VolumeId) {
        if self.sole.get() != Some(volume) && self.in_flight.get() > 0 {
            self.activate_now(volume);
        }
    }

    #[cold]
    fn activate_now(&self, volume: VolumeId) {
        self.activate(volume, now());
    }

    /// Marks a volume as active next to others. Returns its index among the flows.
    fn activate(&self, volume: VolumeId, now: u64) -> usize {
        if let Some(other) = self.sole.take() {
            let flow = self.new_flow(other, self.in_flight.get(), now);
            self.flows.borrow_mut().push(flow);
        }
        let mut flows = self.flows.borrow_mut();
        let index = flows.iter().position(|flow| flow.volume == volume).unwrap_or(flows.len());
        match flows.get_mut(index) {
            Some(flow) => flow.last_active = now,
            None => flows.push(self.new_flow(volume, 0, now)),
        }
        index
    }

    fn new_flow(&self, volume: VolumeId, in_flight: u32, now: u64) -> FlowState<Permit> {
        let weights = self.weights.borrow();
        let weight =
            weights.iter().find(|(other, _)| *other == volume).map_or(DEFAULT_WEIGHT, |(_, weight)| *weight);
        FlowState::new(volume, weight, in_flight, self.virtual_time.get(), now)
    }

    /// Queues an operation that [`FairScheduler::try_acquire`] refused, and waits for its permit.
    pub(crate) async fn acquire(self: &Rc<Self>, volume: VolumeId, blocks: usize) -> Permit {
        loop {
            let (sender, receiver) = local_oneshot();
            {
                let mut flows = self.flows.borrow_mut();
                let Some(flow) = flows.iter_mut().find(|flow| flow.volume == volume) else {
                    drop(flows);
                    // The volume has become the only active one.
                    match self.try_acquire(volume, blocks) {
                        Some(permit) => return permit,
                        None => continue,
                    }
                };
                let units = units_of(blocks);
                flow.on_arrival(units, now());
                let start = flow.finish.max(self.virtual_time.get());
                flow.finish = start + f64::from(units) / flow.weight;
                flow.queue.push_back(QueuedOp { units, size: size_class(blocks), start, permit: sender });
            }
            if let Some(permit) = receiver.await {
                return permit;
            }
        }
    }

    /// Admits queued operations, in the order of their virtual start times, as far as the limit and
    /// the shares allow.
    fn admit(self: &Rc<Self>) {
        loop {
            let (sender, permit) = {
                let mut flows = self.flows.borrow_mut();
                let weights = flow::total_weight(&flows);
                let in_flight = self.in_flight.get();
                let limit = self.limiter.limit();
                // The limit does not apply to the last active volume.
                let is_only = flows.len() == 1;
                let is_admissible = |flow: &&mut FlowState<Permit>| {
                    flow.queue.front().is_some_and(|next| {
                        is_only
                            || in_flight == 0
                            || to_f32(in_flight + next.units) <= limit
                            || f64::from(flow.in_flight + next.units) <= flow.share(limit, weights)
                    })
                };
                let start =
                    |flow: &FlowState<Permit>| flow.queue.front().map_or(f64::INFINITY, |next| next.start);
                let next =
                    flows.iter_mut().filter(is_admissible).min_by(|a, b| start(a).total_cmp(&start(b)));
                let Some(flow) = next else { return };
                let Some(next) = flow.queue.pop_front() else { return };
                flow.in_flight += next.units;
                self.in_flight.set(in_flight + next.units);
                self.virtual_time.set(self.virtual_time.get().max(next.start));
                self.limiter.on_start(next.units);
                let permit = Permit {
                    scheduler: self.clone(),
                    volume: flow.volume,
                    units: next.units,
                    size: next.size,
                    start: Some(OpStart::Contended { at: now() }),
                };
                (next.permit, permit)
            };
            // If the receiver is gone, the permit is dropped, which ends the operation.
            sender.send(permit);
        }
    }

    /// Counts the end of a contended operation. Returns the demand of its volume.
    #[cold]
    fn end_contended(&self, permit: &Permit) -> Demand {
        let mut flows = self.flows.borrow_mut();
        let Some(flow) = flows.iter_mut().find(|flow| flow.volume == permit.volume) else {
            return Demand::default();
        };
        flow.on_end(permit.units);
        let peak = flow.recent_peak();
        flow::demand(&flows, peak)
    }

    /// Removes the flows of volumes that are no longer active.
    fn remove_inactive(&self, now: u64) {
        let mut flows = self.flows.borrow_mut();
        flows.retain(|flow| {
            flow.in_flight > 0 || !flow.queue.is_empty() || now.saturating_sub(flow.last_active) < ACTIVE_FOR
        });
        if let [only] = flows.as_slice()
            && only.queue.is_empty()
        {
            self.sole.set(Some(only.volume));
            flows.clear();
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let scheduler = &self.scheduler;
        let in_flight = scheduler.in_flight.get().saturating_sub(self.units);
        scheduler.in_flight.set(in_flight);
        scheduler.limiter.on_end(self.units);
        // When the reactor shuts down, all operations end and no more are admitted.
        let Some(reactor) = Reactor::try_current() else { return };
        let is_sole = scheduler.sole.get().is_some();
        let demand = if is_sole { Demand::default() } else { scheduler.end_contended(self) };
        match self.start {
            Some(OpStart::Uncontended { at, number }) if is_sole && scheduler.limiter.is_latest(number) => {
                scheduler.limiter.on_uncontended(self.size, reactor.now().as_nanos().saturating_sub(at));
            }
            Some(OpStart::Contended { at }) if !is_sole => {
                let now = reactor.now().as_nanos();
                let latency = now.saturating_sub(at);
                if scheduler.limiter.on_contended(self.size, latency, demand, now) {
                    scheduler.remove_inactive(now);
                }
            }
            _ => {}
        }
        if !is_sole {
            scheduler.admit();
        }
    }
}

#[allow(clippy::cast_precision_loss)]
fn to_f32(count: u32) -> f32 {
    count as f32
}

/// Returns the units of an operation: one, and one more for each 64 KiB.
fn units_of(blocks: usize) -> u32 {
    1 + narrow::<u32, _>(blocks / 16, "the cost of a request")
}

fn now() -> u64 {
    Reactor::current().now().as_nanos()
}

#[cfg(test)]
#[path = "scheduler_tests.rs"]
mod tests;
