//! The stop signal for everything on one reactor.
//!
//! Always true: once raised it stays raised; a waiter is woken once, and forgotten when it stops
//! waiting.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use slab::Slab;

/// A signal to finish and close. Clones share the same signal.
#[derive(Clone, Default)]
pub struct Stop {
    shared: Rc<StopState>,
}

#[derive(Default)]
struct StopState {
    raised: Cell<bool>,
    waiting: RefCell<Slab<Waker>>,
}

impl Stop {
    /// Raises the signal permanently.
    pub fn raise(&self) {
        self.shared.raised.set(true);
        let waiting = self.shared.waiting.take();
        for (_, waker) in waiting {
            waker.wake();
        }
    }

    /// Returns true once it was raised.
    pub fn is_raised(&self) -> bool {
        self.shared.raised.get()
    }

    /// Waits until it is raised.
    pub fn raised(&self) -> impl Future<Output = ()> + use<> {
        Raised { shared: self.shared.clone(), slot: None }
    }
}

/// The future of [`Stop::raised`].
struct Raised {
    shared: Rc<StopState>,
    /// The slot of our waker.
    slot: Option<usize>,
}

impl Future for Raised {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.shared.raised.get() {
            self.slot = None;
            return Poll::Ready(());
        }
        let shared = self.shared.clone();
        let mut waiting = shared.waiting.borrow_mut();
        match self.slot.and_then(|slot| waiting.get_mut(slot)) {
            Some(waker) => waker.clone_from(context.waker()),
            None => self.slot = Some(waiting.insert(context.waker().clone())),
        }
        Poll::Pending
    }
}

impl Drop for Raised {
    fn drop(&mut self) {
        if let Some(slot) = self.slot {
            let waker = self.shared.waiting.borrow_mut().try_remove(slot);
            drop(waker);
        }
    }
}

#[cfg(test)]
#[path = "stop_tests.rs"]
mod tests;
