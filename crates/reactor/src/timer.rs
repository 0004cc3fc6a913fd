//! The timers of one reactor.
//!
//! Invariants: a dropped [`Sleep`] leaves no timer. Equal moments fire in the order in which they
//! were set, so that runs replay exactly.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use crate::{Instant, Reactor};

/// Pending timers, earliest first.
#[derive(Default)]
pub(crate) struct Timers {
    pending: BTreeMap<TimerKey, Waker>,
    next: u64,
}

/// Identifies a timer that was set.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct TimerKey {
    due: Instant,
    order: u64,
}

impl Timers {
    fn set(&mut self, due: Instant, waker: Waker) -> TimerKey {
        let key = TimerKey { due, order: self.next };
        self.next += 1;
        self.pending.insert(key, waker);
        key
    }

    /// Replaces the waker of a pending timer. Returns the previous waker, for the caller to drop.
    fn change(&mut self, key: TimerKey, waker: &Waker) -> Option<Waker> {
        let current = self.pending.get_mut(&key)?;
        (!current.will_wake(waker)).then(|| std::mem::replace(current, waker.clone()))
    }

    /// Removes a timer, unless it has fired. Returns its waker, for the caller to drop.
    fn cancel(&mut self, key: TimerKey) -> Option<Waker> {
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

/// The future of [`Reactor::sleep`]. Dropping it cancels the timer.
pub struct Sleep {
    reactor: Reactor,
    due: Instant,
    timer: Option<TimerKey>,
}

impl Sleep {
    pub(crate) fn new(reactor: Reactor, due: Instant) -> Self {
        Self { reactor, due, timer: None }
    }

    pub(crate) fn reactor(&self) -> &Reactor {
        &self.reactor
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.reactor.now() >= self.due {
            return Poll::Ready(());
        }
        let due = self.due;
        let mut timers = self.reactor.timers().borrow_mut();
        match self.timer {
            Some(key) => {
                let replaced = timers.change(key, context.waker());
                drop((timers, replaced));
            }
            None => {
                let key = timers.set(due, context.waker().clone());
                drop(timers);
                self.timer = Some(key);
            }
        }
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        let Some(key) = self.timer else { return };
        // Dropped after the borrow of the timers ends: a waker may be the last reference to a task
        // that itself sets timers.
        let waker = self.reactor.timers().borrow_mut().cancel(key);
        drop(waker);
    }
}
