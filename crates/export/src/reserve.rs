//! Memory that the requests of one reactor share.
//!
//! Always true: each reservation is released exactly once; waiters are served in order, so that
//! small requests do not starve a large one.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};

/// A memory budget for the payload of many requests of one reactor. A clone is another handle on
/// the same budget.
#[derive(Clone)]
pub struct Reserve {
    shared: Rc<ReserveState>,
}

struct ReserveState {
    size: usize,
    left: Cell<usize>,
    queue: RefCell<VecDeque<Rc<Waiter>>>,
}

/// A request that waits for memory.
struct Waiter {
    bytes: usize,
    granted: Cell<bool>,
    waker: Cell<Option<Waker>>,
}

/// Bytes of the reserve, in use until this is dropped.
pub(crate) struct ReservedBytes {
    reserve: Reserve,
    bytes: usize,
}

impl Reserve {
    /// Creates a reserve of this many bytes.
    pub fn new(bytes: usize) -> Self {
        let shared = ReserveState { size: bytes, left: Cell::new(bytes), queue: RefCell::default() };
        Self { shared: Rc::new(shared) }
    }

    /// Waits for `bytes`; for the whole reserve if it is smaller.
    pub(crate) async fn take(&self, bytes: usize) -> ReservedBytes {
        let bytes = bytes.min(self.shared.size);
        let mut queued = QueuedWaiter { reserve: self, waiter: None };
        if self.shared.queue.borrow().is_empty() && bytes <= self.shared.left.get() {
            self.shared.left.set(self.shared.left.get() - bytes);
        } else {
            queued.wait(bytes).await;
        }
        ReservedBytes { reserve: self.clone(), bytes }
    }

    fn release(&self, bytes: usize) {
        self.shared.left.set(self.shared.left.get() + bytes);
        self.grant();
    }

    /// Grants memory to waiters in order, as long as enough is left.
    fn grant(&self) {
        loop {
            let mut queue = self.shared.queue.borrow_mut();
            let left = self.shared.left.get();
            let Some(waiter) = queue.pop_front_if(|waiter| waiter.bytes <= left) else { return };
            drop(queue);
            self.shared.left.set(left - waiter.bytes);
            waiter.granted.set(true);
            if let Some(waker) = waiter.waker.take() {
                waker.wake();
            }
        }
    }
}

impl Drop for ReservedBytes {
    fn drop(&mut self) {
        self.reserve.release(self.bytes);
    }
}

/// A place in the queue of waiters. Dropped early, it leaves the queue and releases memory that was
/// granted and not taken.
struct QueuedWaiter<'a> {
    reserve: &'a Reserve,
    waiter: Option<Rc<Waiter>>,
}

impl QueuedWaiter<'_> {
    async fn wait(&mut self, bytes: usize) {
        let waiter = Rc::new(Waiter { bytes, granted: Cell::new(false), waker: Cell::new(None) });
        self.reserve.shared.queue.borrow_mut().push_back(waiter.clone());
        self.waiter = Some(waiter.clone());
        poll_fn(|context| {
            if waiter.granted.get() {
                return Poll::Ready(());
            }
            waiter.waker.set(Some(context.waker().clone()));
            Poll::Pending
        })
        .await;
        self.waiter = None;
    }
}

impl Drop for QueuedWaiter<'_> {
    fn drop(&mut self) {
        let Some(waiter) = self.waiter.take() else { return };
        if waiter.granted.get() {
            return self.reserve.release(waiter.bytes);
        }
        self.reserve.shared.queue.borrow_mut().retain(|other| !Rc::ptr_eq(other, &waiter));
        // The next waiter may fit now.
        self.reserve.grant();
    }
}

#[cfg(test)]
#[path = "reserve_tests.rs"]
mod tests;
