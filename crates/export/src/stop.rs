//! The signal to stop, for everything on one reactor that it concerns.
//!
//! Always true: once raised it stays raised; whoever waits for it is woken once and forgotten when it stops waiting.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use slab::Slab;

/// Tells everybody who was given a clone of it to finish what they do and close.
#[derive(Clone, Default)]
pub struct Stop {
    shared: Rc<Shared>,
}

#[derive(Default)]
struct Shared {
    raised: Cell<bool>,
    waiting: RefCell<Slab<Waker>>,
}

impl Stop {
    /// Raises the signal, for good.
    pub fn raise(&self) {
        self.shared.raised.set(true);
        let waiting = self.shared.waiting.take();
        for (_, waker) in waiting {
            waker.wake();
        }
    }

    /// True once it was raised.
    pub fn is_raised(&self) -> bool {
        self.shared.raised.get()
    }

    /// Waits until it is raised.
    pub fn raised(&self) -> impl Future<Output = ()> + use<> {
        Raised { shared: self.shared.clone(), place: None }
    }
}

/// See [`Stop::raised`].
struct Raised {
    shared: Rc<Shared>,
    /// Where our waker is kept.
    place: Option<usize>,
}

impl Future for Raised {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.shared.raised.get() {
            self.place = None;
            return Poll::Ready(());
        }
        let shared = self.shared.clone();
        let mut waiting = shared.waiting.borrow_mut();
        match self.place.and_then(|place| waiting.get_mut(place)) {
            Some(waker) => waker.clone_from(context.waker()),
            None => self.place = Some(waiting.insert(context.waker().clone())),
        }
        Poll::Pending
    }
}

impl Drop for Raised {
    fn drop(&mut self) {
        if let Some(place) = self.place {
            let waker = self.shared.waiting.borrow_mut().try_remove(place);
            drop(waker);
        }
    }
}

#[cfg(test)]
#[path = "stop_tests.rs"]
mod tests;
