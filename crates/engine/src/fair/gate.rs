//! Who is next where several volumes want to: weighted fair queueing, with as many operations under way as their latency bears.
//!
//! While one volume is alone, everything passes: its depth is its own affair. Once there are several, operations are let in by start-time fair
//! queueing (Goyal, Vin and Cheng, 1996) up to a depth that follows the latency ([`Depth`]).
//! So a busy volume fills the drives, but not the drives' queues, and one that asks for little does not wait behind it. A volume that has less than its
//! share of the depth under way never waits.
//!
//! Always true: what has a [`Turn`] is counted until that is dropped; while anything waits, something is under way.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use format::VolumeId;
use reactor::{Reactor, local_oneshot};
use smallvec::SmallVec;

use super::depth::{Depth, size_of};
use super::flow::{self, Flow, Waiting, Wants};

/// How long a volume that does nothing still counts as one that wants to, in nanoseconds.
const QUIET: u64 = 100_000_000;
/// Of operations that nothing else is under way with, each how many is timed.
const TIMED: u32 = 16;
/// Weight of a volume that nobody gave one.
const WEIGHT: u16 = 100;

/// See the module.
pub(crate) struct Gate {
    /// The only volume that wants to; `None` at first, and when there are several.
    alone: Cell<Option<VolumeId>>,
    /// Units under way.
    under_way: Cell<u32>,
    /// Units that may be under way when several want to.
    depth: Depth,
    flows: RefCell<SmallVec<[Flow; 8]>>,
    /// Start tag of what was let in last.
    virtual_time: Cell<f64>,
    weights: RefCell<Vec<(VolumeId, u16)>>,
}

/// Being under way. Dropped when it is over.
pub(crate) struct Turn {
    gate: Rc<Gate>,
    volume: VolumeId,
    units: u32,
    size: u8,
    /// When it began, if it is timed.
    began: Option<Began>,
}

/// When something began. What began beside others is never taken for what it takes by itself, whoever is left when it ends; nor is what
/// others began after.
#[derive(Clone, Copy)]
enum Began {
    ByItself { at: u64, number: u32 },
    BesideOthers { at: u64 },
}

impl Gate {
    /// Gates before the same drives, which never let fewer than so many units be under way; `slowdown` as in [`crate::Tuning`].
    pub(crate) fn pair(depths_min: [u16; 2], slowdown: u32) -> [Rc<Self>; 2] {
        Depth::pair(depths_min, slowdown).map(|depth| Rc::new(Self::new(depth)))
    }

    fn new(depth: Depth) -> Self {
        Self {
            alone: Cell::new(None),
            under_way: Cell::new(0),
            depth,
            flows: RefCell::default(),
            virtual_time: Cell::new(0.0),
            weights: RefCell::default(),
        }
    }

    /// Gives a volume its weight: the share of what there is that it gets beside others.
    pub(crate) fn set_weight(&self, volume: VolumeId, weight: u16) {
        let mut weights = self.weights.borrow_mut();
        weights.retain(|(other, _)| *other != volume);
        if weight != WEIGHT && weight != 0 {
            weights.push((volume, weight));
        }
        drop(weights);
        for flow in self.flows.borrow_mut().iter_mut().filter(|flow| flow.volume == volume) {
            flow.weight = f64::from(if weight == 0 { WEIGHT } else { weight });
        }
    }

    /// A turn for an operation on `blocks` blocks; `None` if it has to wait ([`Gate::wait`]).
    pub(crate) fn enter(self: &Rc<Self>, volume: VolumeId, blocks: usize) -> Option<Turn> {
        let units = units_of(blocks);
        if self.alone.get() == Some(volume) {
            self.under_way.set(self.under_way.get() + units);
            // One of a few is timed.
            let number = self.depth.begins(units).filter(|number| number.is_multiple_of(TIMED));
            let began = number.map(|number| Began::ByItself { at: now(), number });
            return Some(Turn { gate: self.clone(), volume, units, size: size_of(blocks), began });
        }
        self.enter_beside_others(volume, blocks)
    }

    #[cold]
    fn enter_beside_others(self: &Rc<Self>, volume: VolumeId, blocks: usize) -> Option<Turn> {
        let (now, units) = (now(), units_of(blocks));
        if self.alone.get().is_none() && self.flows.borrow().is_empty() {
            self.alone.set(Some(volume));
            return self.enter(volume, blocks);
        }
        let index = self.see(volume, now);
        let mut flows = self.flows.borrow_mut();
        let (weights, is_left) = (flow::weights(&flows), flows.len() == 1);
        let flow = flows.get_mut(index)?;
        let share = flow.share(self.depth.units(), weights);
        let room = self.under_way.get() == 0 || to_f32(self.under_way.get() + units) <= self.depth.units();
        let within = flow.under_way == 0 || f64::from(flow.under_way + units) <= share;
        if !flow.waiting.is_empty() || !(room || within || is_left) {
            return None;
        }
        let start = flow.finish.max(self.virtual_time.get());
        flow.finish = start + f64::from(units) / flow.weight;
        self.virtual_time.set(start.max(self.virtual_time.get()));
        flow.comes(units, now);
        flow.under_way += units;
        self.under_way.set(self.under_way.get() + units);
        drop(flows);
        self.depth.begins(units);
        let began = Some(Began::BesideOthers { at: now });
        Some(Turn { gate: self.clone(), volume, units, size: size_of(blocks), began })
    }

    /// Another gate before the same drives lets something of a volume in: who has something under way here is not alone.
    pub(crate) fn notice(&self, volume: VolumeId) {
        if self.alone.get() != Some(volume) && self.under_way.get() > 0 {
            self.see_now(volume);
        }
    }

    #[cold]
    fn see_now(&self, volume: VolumeId) {
        self.see(volume, now());
    }

    /// A volume that wants to, now: from here on several do. Gives its place among them.
    fn see(&self, volume: VolumeId, now: u64) -> usize {
        if let Some(other) = self.alone.take() {
            let flow = self.new_flow(other, self.under_way.get(), now);
            self.flows.borrow_mut().push(flow);
        }
        let mut flows = self.flows.borrow_mut();
        let index = flows.iter().position(|flow| flow.volume == volume).unwrap_or(flows.len());
        match flows.get_mut(index) {
            Some(flow) => flow.seen = now,
            None => flows.push(self.new_flow(volume, 0, now)),
        }
        index
    }

    fn new_flow(&self, volume: VolumeId, under_way: u32, now: u64) -> Flow {
        let weights = self.weights.borrow();
        let weight = weights.iter().find(|(other, _)| *other == volume).map_or(WEIGHT, |(_, weight)| *weight);
        Flow::new(volume, weight, under_way, self.virtual_time.get(), now)
    }

    /// Waits for the turn that [`Gate::enter`] had not.
    pub(crate) async fn wait(self: &Rc<Self>, volume: VolumeId, blocks: usize) -> Turn {
        loop {
            let (sender, receiver) = local_oneshot();
            {
                let mut flows = self.flows.borrow_mut();
                let Some(flow) = flows.iter_mut().find(|flow| flow.volume == volume) else {
                    drop(flows);
                    // It is alone by now.
                    match self.enter(volume, blocks) {
                        Some(turn) => return turn,
                        None => continue,
                    }
                };
                let units = units_of(blocks);
                flow.comes(units, now());
                let start = flow.finish.max(self.virtual_time.get());
                flow.finish = start + f64::from(units) / flow.weight;
                flow.waiting.push_back(Waiting { units, size: size_of(blocks), start, turn: sender });
            }
            if let Some(turn) = receiver.await {
                return turn;
            }
        }
    }

    /// Lets in what may go on.
    fn let_in(self: &Rc<Self>) {
        loop {
            let granted = {
                let mut flows = self.flows.borrow_mut();
                let weights = flow::weights(&flows);
                let under_way = self.under_way.get();
                let depth = self.depth.units();
                // Whoever is left when the others have become quiet is as good as alone.
                let is_left = flows.len() == 1;
                let may = |flow: &&mut Flow| {
                    flow.waiting.front().is_some_and(|next| {
                        is_left
                            || under_way == 0
                            || to_f32(under_way + next.units) <= depth
                            || f64::from(flow.under_way + next.units) <= flow.share(depth, weights)
                    })
                };
                let start = |flow: &Flow| flow.waiting.front().map_or(f64::INFINITY, |next| next.start);
                let next = flows.iter_mut().filter(may).min_by(|a, b| start(a).total_cmp(&start(b)));
                let Some(flow) = next else { return };
                let Some(next) = flow.waiting.pop_front() else { return };
                flow.under_way += next.units;
                self.under_way.set(under_way + next.units);
                self.virtual_time.set(self.virtual_time.get().max(next.start));
                self.depth.begins(next.units);
                let turn = Turn {
                    gate: self.clone(),
                    volume: flow.volume,
                    units: next.units,
                    size: next.size,
                    began: Some(Began::BesideOthers { at: now() }),
                };
                (next.turn, turn)
            };
            // Whoever no longer waits drops it, which counts it out again.
            granted.0.send(granted.1);
        }
    }

    /// Counts out what is over; gives what its volume wants beside the others.
    #[cold]
    fn leave_beside_others(&self, turn: &Turn) -> Wants {
        let mut flows = self.flows.borrow_mut();
        let Some(flow) = flows.iter_mut().find(|flow| flow.volume == turn.volume) else {
            return Wants::default();
        };
        flow.leaves(turn.units);
        let most = flow.most();
        flow::wants(&flows, most)
    }

    /// Forgets who has become quiet.
    fn forget_quiet(&self, now: u64) {
        let mut flows = self.flows.borrow_mut();
        flows.retain(|flow| {
            flow.under_way > 0 || !flow.waiting.is_empty() || now.saturating_sub(flow.seen) < QUIET
        });
        if let [only] = flows.as_slice()
            && only.waiting.is_empty()
        {
            self.alone.set(Some(only.volume));
            flows.clear();
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let gate = &self.gate;
        let under_way = gate.under_way.get().saturating_sub(self.units);
        gate.under_way.set(under_way);
        gate.depth.ends(self.units);
        // Everything ends together at the end of a reactor: nobody is let in any more.
        let Some(reactor) = Reactor::try_current() else { return };
        let alone = gate.alone.get().is_some();
        let wants = if alone { Wants::default() } else { gate.leave_beside_others(self) };
        match self.began {
            Some(Began::ByItself { at, number }) if alone && gate.depth.was_last(number) => {
                gate.depth.took_by_itself(self.size, reactor.now().as_nanos().saturating_sub(at));
            }
            Some(Began::BesideOthers { at }) if !alone => {
                let now = reactor.now().as_nanos();
                let took = now.saturating_sub(at);
                if gate.depth.took_beside_others(self.size, took, wants, now) {
                    gate.forget_quiet(now);
                }
            }
            _ => {}
        }
        if !alone {
            gate.let_in();
        }
    }
}

#[allow(clippy::cast_precision_loss)]
fn to_f32(count: u32) -> f32 {
    count as f32
}

/// What an operation weighs: one, and one for each 64 KiB.
fn units_of(blocks: usize) -> u32 {
    1 + u32::try_from(blocks / 16).unwrap_or(u32::MAX)
}

fn now() -> u64 {
    Reactor::current().now().as_nanos()
}

#[cfg(test)]
#[path = "gate_tests.rs"]
mod tests;
