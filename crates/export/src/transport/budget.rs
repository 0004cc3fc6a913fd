//! Limits on the requests in flight of one connection.
//!
//! Always true: each charge is released exactly once, when its [`Charge`] is dropped. Only the
//! connection's own task waits here. Each connection has a little memory of its own, so that
//! connections that use up the shared memory do not stop the others.

use std::cell::Cell;
use std::rc::Rc;

use reactor::Notify;

use crate::reserve::{Reserve, ReservedBytes};

/// Bytes of payload that a connection may always have in flight, independent of other connections.
pub(crate) const OWN_BYTES: usize = 1 << 20;

/// Requests and payload in flight.
pub(crate) struct Budget {
    requests: Cell<usize>,
    bytes: Cell<usize>,
    /// The part of the bytes that is not taken from the reserve.
    own_bytes: Cell<usize>,
    requests_max: usize,
    bytes_max: usize,
    reserve: Reserve,
    waiting: Cell<bool>,
    released: Notify,
}

/// A part of the budget, in use until this is dropped.
pub(crate) struct Charge {
    budget: Rc<Budget>,
    requests: usize,
    bytes: usize,
    share: Option<ReservedBytes>,
}

impl Budget {
    /// Creates a budget of this many requests, at least one, and bytes of payload. Payload beyond
    /// [`OWN_BYTES`] is taken from `reserve` too.
    pub(crate) fn new(requests: usize, payload_bytes: usize, reserve: &Reserve) -> Rc<Self> {
        Rc::new(Self {
            requests: Cell::new(0),
            bytes: Cell::new(0),
            own_bytes: Cell::new(0),
            requests_max: requests.max(1),
            bytes_max: payload_bytes,
            reserve: reserve.clone(),
            waiting: Cell::new(false),
            released: Notify::default(),
        })
    }

    /// Waits until one more request with this much payload fits. A request of any size fits when no
    /// other is in flight.
    pub(crate) async fn charge_request(self: &Rc<Self>, bytes: usize) -> Charge {
        let fits = || self.requests.get() < self.requests_max && self.has_room(bytes);
        self.until(fits).await;
        self.charge(1, bytes).await
    }

    /// Waits until this much more payload fits for a request that is already charged.
    pub(crate) async fn charge_bytes(self: &Rc<Self>, bytes: usize) -> Charge {
        self.until(|| self.has_room(bytes)).await;
        self.charge(0, bytes).await
    }

    /// A charge for a message without payload that needs no room of its own.
    pub(crate) fn empty_charge(self: &Rc<Self>) -> Charge {
        Charge { budget: self.clone(), requests: 0, bytes: 0, share: None }
    }

    /// Waits until no request is in flight.
    pub(crate) async fn idle(&self) {
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
