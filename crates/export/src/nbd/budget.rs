//! What the requests of one connection cost at present.
//!
//! Always true: what was charged is given back exactly once, when the [`Charge`] is dropped. Only the connection's own
//! task waits here. A connection always has a little memory of its own, so that those who use up what all share do not
//! stop the others.

use std::cell::Cell;
use std::rc::Rc;

use reactor::Notify;

use super::limits::{Limits, OWN_BYTES};
use crate::reserve::{Reserve, Share};

/// Requests and payload that are worked on.
pub(super) struct Budget {
    requests: Cell<usize>,
    bytes: Cell<usize>,
    /// Those of the bytes that are not the reserve's.
    own_bytes: Cell<usize>,
    requests_max: usize,
    bytes_max: usize,
    reserve: Reserve,
    waiting: Cell<bool>,
    released: Notify,
}

/// A part of the budget, in use until it is dropped.
pub(super) struct Charge {
    budget: Rc<Budget>,
    requests: usize,
    bytes: usize,
    share: Option<Share>,
}

impl Budget {
    pub(super) fn new(limits: &Limits, reserve: &Reserve) -> Rc<Self> {
        Rc::new(Self {
            requests: Cell::new(0),
            bytes: Cell::new(0),
            own_bytes: Cell::new(0),
            requests_max: limits.requests.max(1),
            bytes_max: limits.payload_bytes,
            reserve: reserve.clone(),
            waiting: Cell::new(false),
            released: Notify::default(),
        })
    }

    /// Waits until there is room for one more request with this much payload. A request of any size gets in when there
    /// is no other.
    pub(super) async fn charge_request(self: &Rc<Self>, bytes: usize) -> Charge {
        let fits = || self.requests.get() < self.requests_max && self.has_room(bytes);
        self.until(fits).await;
        self.charge(1, bytes).await
    }

    /// Waits until there is room for this much more payload of a request that has been charged.
    pub(super) async fn charge_bytes(self: &Rc<Self>, bytes: usize) -> Charge {
        self.until(|| self.has_room(bytes)).await;
        self.charge(0, bytes).await
    }

    /// Waits until no request is worked on any more.
    pub(super) async fn idle(&self) {
        self.until(|| self.requests.get() == 0).await;
    }

    fn has_room(&self, bytes: usize) -> bool {
        self.bytes.get() == 0 || self.bytes.get().saturating_add(bytes) <= self.bytes_max
    }

    async fn charge(self: &Rc<Self>, requests: usize, bytes: usize) -> Charge {
        let own = self.own_bytes.get().saturating_add(bytes);
        let share = match own <= OWN_BYTES {
            true => None,
            false => Some(self.reserve.take(bytes).await),
        };
        if share.is_none() {
            self.own_bytes.set(own);
        }
        self.requests.set(self.requests.get() + requests);
        self.bytes.set(self.bytes.get() + bytes);
        Charge { budget: self.clone(), requests, bytes, share }
    }

    async fn until(&self, condition: impl Fn() -> bool) {
        while !condition() {
            self.waiting.set(true);
            self.released.notified().await;
        }
        self.waiting.set(false);
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        let budget = &self.budget;
        budget.requests.set(budget.requests.get() - self.requests);
        budget.bytes.set(budget.bytes.get() - self.bytes);
        if self.share.is_none() {
            budget.own_bytes.set(budget.own_bytes.get() - self.bytes);
        }
        if budget.waiting.get() {
            budget.released.notify();
        }
    }
}

#[cfg(test)]
#[path = "budget_tests.rs"]
mod tests;
