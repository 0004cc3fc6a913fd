//! How many operations may be under way where several volumes want to: as many as their latency bears.
//!
//! As long as what passes takes no more times what it takes when nothing else is under way than is borne, the depth grows, otherwise it shrinks (as
//! TCP Vegas does; Brakmo and Peterson, 1995). Reads and writes have a depth each and wait for the same drives: what takes long at one makes the other
//! shrink too, since the one may have a single operation under way, and the other those that it waits for. Where all volumes ask for
//! much there is no latency to protect, they wait for each other whatever it is: it grows until each has under way what its weight gives it.
//!
//! Always true: a depth is at least its least one.
//!
//! Must not know: volumes.

use std::cell::Cell;
use std::rc::Rc;

use super::flow::{Wants, is_little};

/// Operations after which the depth follows; fewer do after a while, in nanoseconds.
const FOLLOW_EVERY: u32 = 32;
const FOLLOW_FEW: u32 = 4;
const FOLLOW_AFTER: u64 = 5_000_000;
/// How long after the last operation of a volume that asks for little those that ask for much go on as if it were there, in nanoseconds.
const LONELY: u64 = 200_000_000;
/// How long what was felt at another depth counts, in nanoseconds.
const FRESH: u64 = 50_000_000;
/// Units under way at most, and at most for the sake of weights alone.
const MOST: f32 = 512.0;
const ENOUGH: f32 = 128.0;
const START: f32 = 32.0;
/// Classes of operations by size: each twice as large as the one before.
const SIZES: usize = 9;

/// See the module.
pub(super) struct Depth {
    units: Cell<f32>,
    least: f32,
    /// How many times as long as by themselves operations may take in the mean.
    borne: f32,
    by_itself: Cell<[Known; SIZES]>,
    /// Sum and number of how many times that was taken since the depth followed last, and when that was.
    taken: Cell<(f32, u32)>,
    followed: Cell<u64>,
    together: Rc<Together>,
    /// Which of the two this is.
    place: usize,
    /// What was felt elsewhere when this one shrank for it last.
    heeded: Cell<u64>,
}

/// What two depths before the same drives share.
#[derive(Default)]
struct Together {
    /// Units under way, of both.
    under_way: Cell<u32>,
    /// Operations that have begun, of both.
    begun: Cell<u32>,
    /// When a volume that asks for little was last served, by either.
    little: Cell<u64>,
    felt: [Cell<Felt>; 2],
}

/// How long operations of a size take when nothing else is under way, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Known {
    #[default]
    Nothing,
    /// No longer than this: the shortest that was seen beside others.
    AtMost(f32),
    Is(f32),
}

/// How many times as long as by themselves operations took at a depth, the most that a volume wanted there, and when that was found.
#[derive(Clone, Copy, Debug, Default)]
struct Felt {
    times: f32,
    greatest: u32,
    at: u64,
}

impl Depth {
    /// Two before the same drives, with the least that each may be, and how many percent of the time that they take by themselves operations may take in
    /// the mean; 0 for any number.
    pub(super) fn pair([first, second]: [u16; 2], slowdown: u32) -> [Self; 2] {
        let borne = if slowdown == 0 { f32::INFINITY } else { to_f32(slowdown.into()) / 100.0 };
        let together = Rc::default();
        [Self::new(first, borne, &together, 0), Self::new(second, borne, &together, 1)]
    }

    fn new(least: u16, borne: f32, together: &Rc<Together>, place: usize) -> Self {
        Self {
            units: Cell::new(START.max(least.into())),
            least: least.into(),
            borne,
            by_itself: Cell::default(),
            taken: Cell::default(),
            followed: Cell::default(),
            together: together.clone(),
            place,
            heeded: Cell::default(),
        }
    }

    /// Units that may be under way.
    pub(super) fn units(&self) -> f32 {
        self.units.get()
    }

    /// An operation begins. Gives its number if nothing is under way that it could wait for.
    pub(super) fn begins(&self, units: u32) -> Option<u32> {
        let together = &*self.together;
        let (under_way, begun) = (together.under_way.get(), together.begun.get().wrapping_add(1));
        together.under_way.set(under_way + units);
        together.begun.set(begun);
        (under_way == 0).then_some(begun)
    }

    /// An operation is over.
    pub(super) fn ends(&self, units: u32) {
        self.together.under_way.set(self.together.under_way.get().saturating_sub(units));
    }

    /// True if nothing has begun since the operation of this number.
    pub(super) fn was_last(&self, begun: u32) -> bool {
        self.together.begun.get() == begun
    }

    /// An operation with nothing else under way took so long.
    pub(super) fn took_by_itself(&self, size: u8, nanos: u64) {
        let nanos = to_f32(nanos);
        self.learn(size, |known| match known {
            Known::Is(known) => Known::Is(known + (nanos.min(known * 4.0) - known) / 16.0),
            Known::AtMost(_) | Known::Nothing => Known::Is(nanos),
        });
    }

    /// An operation beside others took so long; true if the depth followed. What volumes take that ask for much counts only where one asks for little.
    pub(super) fn took_beside_others(&self, size: u8, nanos: u64, wants: Wants, now: u64) -> bool {
        let elsewhere = self.felt_elsewhere(now);
        if is_little(wants.most, wants.greatest.max(elsewhere.greatest)) {
            self.together.little.set(now);
        }
        let nanos = to_f32(nanos);
        let known = self.learn(size, |known| match known {
            Known::Is(known) => Known::Is(known),
            Known::AtMost(known) => Known::AtMost(known.min(nanos)),
            Known::Nothing => Known::AtMost(nanos),
        });
        let (Known::Is(known) | Known::AtMost(known)) = known else { return false };
        let (sum, count) = self.taken.get();
        let (sum, count) = (sum + (nanos / known.max(1.0)).min(64.0), count + 1);
        let since = now.saturating_sub(self.followed.get());
        if count < FOLLOW_EVERY && (count < FOLLOW_FEW || since < FOLLOW_AFTER) {
            self.taken.set((sum, count));
            return false;
        }
        self.taken.set((0.0, 0));
        self.followed.set(now);
        let here = Felt { times: sum / to_f32(count.into()), greatest: wants.greatest, at: now };
        if let Some(felt) = self.together.felt.get(self.place) {
            felt.set(here);
        }
        let lonely = now.saturating_sub(self.together.little.get()) > LONELY;
        if lonely || self.borne.is_infinite() {
            self.grow_to(wants.enough.clamp(ENOUGH, MOST));
        } else {
            self.follow(here.times, elsewhere);
        }
        true
    }

    fn learn(&self, size: u8, more: impl FnOnce(Known) -> Known) -> Known {
        let mut all = self.by_itself.get();
        let Some(known) = all.get_mut(usize::from(size)) else { return Known::Nothing };
        *known = more(*known);
        let known = *known;
        self.by_itself.set(all);
        known
    }

    /// Follows the latency, here and elsewhere.
    fn follow(&self, times: f32, elsewhere: Felt) {
        // What was felt once counts once, and until something else is felt there.
        let is_new = self.heeded.replace(elsewhere.at) != elsewhere.at;
        let units = self.units.get();
        let worst = times.max(elsewhere.times);
        if worst <= self.borne {
            self.grow_to(MOST);
        } else if times > self.borne || is_new {
            self.units.set((units * (self.borne / worst).max(0.5)).max(self.least));
        }
    }

    /// A step towards a greater depth, or to a lesser one.
    fn grow_to(&self, most: f32) {
        let units = self.units.get();
        self.units.set((units + units.sqrt() / 2.0).min(most).max(self.least));
    }

    /// What was felt elsewhere lately.
    fn felt_elsewhere(&self, now: u64) -> Felt {
        let felt = self.together.felt.get(1 - self.place).map(Cell::get).unwrap_or_default();
        if now.saturating_sub(felt.at) < FRESH { felt } else { Felt::default() }
    }
}

#[cfg(test)]
impl Depth {
    pub(super) fn set(&self, units: f32) {
        self.units.set(units);
    }

    /// How long an operation on so many blocks takes by itself, as far as that is known.
    pub(super) fn by_itself(&self, blocks: usize) -> f32 {
        match self.by_itself.get()[usize::from(size_of(blocks))] {
            Known::Nothing => 0.0,
            Known::AtMost(nanos) | Known::Is(nanos) => nanos,
        }
    }
}

#[allow(clippy::cast_precision_loss)]
fn to_f32(count: u64) -> f32 {
    count as f32
}

/// The class of an operation on so many blocks.
pub(super) fn size_of(blocks: usize) -> u8 {
    u8::try_from(blocks.max(1).ilog2()).unwrap_or(u8::MAX).min(SIZES as u8 - 1)
}

#[cfg(test)]
#[path = "depth_tests.rs"]
mod tests;
