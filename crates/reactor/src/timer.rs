//! The timers of one reactor.
//!
//! Invariant: equal moments fire in the order in which they
//! were set, so that runs replay exactly.

use std::collections::BTreeMap;
use std::task::Waker;

use crate::Instant;

/// Pending timers, earliest first.
#[derive(Default)]
pub(crate) struct Timers {
    pending: BTreeMap<TimerKey, Waker>,
    next: u64,
}

/// Identifies a timer that was set.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct TimerKey {
    due: Instant,
    order: u64,
}

impl Timers {
    pub(crate) fn set(&mut self, due: Instant, waker: Waker) -> TimerKey {
        let key = TimerKey { due, order: self.next };
        self.next += 1;
        self.pending.insert(key, waker);
        key
    }

    /// Replaces the waker of a pending timer. Returns the previous waker, for the caller to drop.
    pub(crate) fn change(&mut self, key: TimerKey, waker: &Waker) -> Option<Waker> {
        let current = self.pending.get_mut(&key)?;
        (!current.will_wake(waker)).then(|| std::mem::replace(current, waker.clone()))
    }

    /// Removes a timer, unless it has fired. Returns its waker, for the caller to drop.
    pub(crate) fn cancel(&mut self, key: TimerKey) -> Option<Waker> {
        self.pending.remove(&key)
    }

    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.pending.first_key_value().map(|(key, _)| key.due)
    }

    /// Takes one waker that is due at `now`.
    pub(crate) fn take_due(&mut self, now: Instant) -> Option<Waker> {
        if self.next_due()? > now {
            return None;
        }
        self.pending.pop_first().map(|(_, waker)| waker)
    }
}
