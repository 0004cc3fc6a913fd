//! Memory that requests of one reactor share.
//!
//! Always true: what was taken is given back exactly once; who asked first gets first, so that small requests do not
//! keep a large one waiting for ever.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};

/// Memory for the payload of many requests of one reactor. A clone is another handle on the same.
#[derive(Clone)]
pub struct Reserve {
    shared: Rc<Shared>,
}

struct Shared {
    size: usize,
    left: Cell<usize>,
    queue: RefCell<VecDeque<Rc<Turn>>>,
}

/// Somebody's place in the queue.
struct Turn {
    bytes: usize,
    granted: Cell<bool>,
    waker: Cell<Option<Waker>>,
}

/// A part of the reserve, in use until it is dropped.
pub(crate) struct Share {
    reserve: Reserve,
    bytes: usize,
}

impl Reserve {
    /// A reserve of this many bytes.
    pub fn new(bytes: usize) -> Self {
        let shared = Shared { size: bytes, left: Cell::new(bytes), queue: RefCell::default() };
        Self { shared: Rc::new(shared) }
    }

    /// Waits for `bytes` of it; for all of it if there are not as many.
    pub(crate) async fn take(&self, bytes: usize) -> Share {
        let bytes = bytes.min(self.shared.size);
        let mut queued = Queued { reserve: self, turn: None };
        if self.shared.queue.borrow().is_empty() && bytes <= self.shared.left.get() {
            self.shared.left.set(self.shared.left.get() - bytes);
        } else {
            queued.wait(bytes).await;
        }
        Share { reserve: self.clone(), bytes }
    }

    fn give_back(&self, bytes: usize) {
        self.shared.left.set(self.shared.left.get() + bytes);
        self.grant();
    }

    /// Gives to those who wait, in order, as far as there is anything.
    fn grant(&self) {
        loop {
            let mut queue = self.shared.queue.borrow_mut();
            let left = self.shared.left.get();
            let Some(turn) = queue.pop_front_if(|turn| turn.bytes <= left) else { return };
            drop(queue);
            self.shared.left.set(left - turn.bytes);
            turn.granted.set(true);
            if let Some(waker) = turn.waker.take() {
                waker.wake();
            }
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.reserve.give_back(self.bytes);
    }
}

/// A wait in the queue. Given up, it leaves the queue, and gives back what it was granted and has not taken.
struct Queued<'a> {
    reserve: &'a Reserve,
    turn: Option<Rc<Turn>>,
}

impl Queued<'_> {
    async fn wait(&mut self, bytes: usize) {
        let turn = Rc::new(Turn { bytes, granted: Cell::new(false), waker: Cell::new(None) });
        self.reserve.shared.queue.borrow_mut().push_back(turn.clone());
        self.turn = Some(turn.clone());
        poll_fn(|context| {
            if turn.granted.get() {
                return Poll::Ready(());
            }
            turn.waker.set(Some(context.waker().clone()));
            Poll::Pending
        })
        .await;
        self.turn = None;
    }
}

impl Drop for Queued<'_> {
    fn drop(&mut self) {
        let Some(turn) = self.turn.take() else { return };
        if turn.granted.get() {
            return self.reserve.give_back(turn.bytes);
        }
        self.reserve.shared.queue.borrow_mut().retain(|other| !Rc::ptr_eq(other, &turn));
        // Whoever is behind may have waited for this one only.
        self.reserve.grant();
    }
}

#[cfg(test)]
#[path = "reserve_tests.rs"]
mod tests;
