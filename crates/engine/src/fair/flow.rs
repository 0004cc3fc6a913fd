//! A volume at a gate, among several: what of it is under way and waits, and how much that is beside the others.
//!
//! A volume asks for little if hardly anything of it is ever there at once, beside others that have many times as much. What was there lately counts and
//! not what is left: of a burst that ends together, the first ones that come again find nothing of their volume under way.
//!
//! Must not know: when something is let in.

use std::collections::VecDeque;

use format::VolumeId;
use reactor::LocalSender;

use super::Turn;

/// How long counts what a volume had at most, in nanoseconds.
const RECENT: u64 = 100_000_000;
/// Units that a volume which asks for little has at most, and the share of what the greatest has.
const LITTLE: u32 = 8;
const LITTLE_SHARE: u32 = 4;

/// A volume that wants to, among several.
pub(super) struct Flow {
    pub(super) volume: VolumeId,
    pub(super) weight: f64,
    pub(super) under_way: u32,
    /// Units under way or waiting.
    wanted: u32,
    /// The most of those since then, of more than one operation, and as long before.
    most: u32,
    most_before: u32,
    since: u64,
    /// Finish tag of what was queued last.
    pub(super) finish: f64,
    pub(super) waiting: VecDeque<Waiting>,
    /// When it last wanted something.
    pub(super) seen: u64,
}

/// An operation that waits for its turn.
pub(super) struct Waiting {
    pub(super) units: u32,
    pub(super) size: u8,
    pub(super) start: f64,
    pub(super) turn: LocalSender<Turn>,
}

/// What a volume wants beside the others.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Wants {
    /// The most that was there of it lately, and of any.
    pub(super) most: u32,
    pub(super) greatest: u32,
    /// The depth at which each of those that ask for much has as much under way as its weight gives it, and no more.
    pub(super) enough: f32,
}

impl Flow {
    pub(super) fn new(volume: VolumeId, weight: u16, under_way: u32, finish: f64, now: u64) -> Self {
        Self {
            volume,
            weight: weight.into(),
            under_way,
            wanted: under_way,
            most: if under_way > 1 { under_way } else { 0 },
            most_before: 0,
            since: now,
            finish,
            waiting: VecDeque::new(),
            seen: now,
        }
    }

    /// An operation comes: it begins or waits.
    pub(super) fn comes(&mut self, units: u32, now: u64) {
        let past = now.saturating_sub(self.since);
        if past >= RECENT {
            self.most_before = if past < 2 * RECENT { self.most } else { 0 };
            (self.most, self.since) = (0, now);
        }
        let others = self.wanted;
        self.wanted += units;
        if others > 0 {
            self.most = self.most.max(self.wanted);
        }
    }

    /// An operation that had begun is over.
    pub(super) fn leaves(&mut self, units: u32) {
        self.under_way = self.under_way.saturating_sub(units);
        self.wanted = self.wanted.saturating_sub(units);
    }

    /// Its share of the depth by its weight, of this altogether: what it may have under way whatever others do.
    pub(super) fn share(&self, depth: f32, weights: f64) -> f64 {
        f64::from(depth) * self.weight / weights
    }

    /// The most that was there of it lately.
    pub(super) fn most(&self) -> u32 {
        self.most.max(self.most_before)
    }
}

/// Weights of all.
pub(super) fn weights(flows: &[Flow]) -> f64 {
    flows.iter().map(|flow| flow.weight).sum()
}

/// What one wants that had so much at most.
pub(super) fn wants(flows: &[Flow], most: u32) -> Wants {
    let greatest = flows.iter().map(Flow::most).max().unwrap_or_default();
    let great = || flows.iter().filter(|flow| !is_little(flow.most(), greatest));
    let weights: f64 = great().map(|flow| flow.weight).sum();
    let enough =
        great().map(|flow| f64::from(flow.most()) * weights / flow.weight).fold(f64::INFINITY, f64::min);
    Wants { most, greatest, enough: to_f32(enough) }
}

/// True if what a volume wants is little beside the greatest.
pub(super) fn is_little(most: u32, greatest: u32) -> bool {
    most <= LITTLE.min(greatest / LITTLE_SHARE)
}

#[allow(clippy::cast_possible_truncation)]
fn to_f32(units: f64) -> f32 {
    units as f32
}

#[cfg(test)]
#[path = "flow_tests.rs"]
mod tests;
