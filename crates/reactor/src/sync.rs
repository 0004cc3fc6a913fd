//! Synchronisation between tasks of one reactor. Single-threaded; no state is held across a panic.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// A list of tasks that wait for a condition. A woken task checks again.
#[derive(Default)]
pub struct WaitList {
    waiting: RefCell<VecDeque<Waker>>,
}

impl WaitList {
    /// Wakes every waiting task.
    pub fn wake_all(&self) {
        let waiting = self.waiting.take();
        for waker in waiting {
            waker.wake();
        }
    }

    /// Waits until `check` returns a value. Calls `check` at once and after every
    /// [`WaitList::wake_all`].
    pub async fn until<T>(&self, mut check: impl FnMut() -> Option<T>) -> T {
        std::future::poll_fn(|context| match check() {
            Some(value) => Poll::Ready(value),
            None => {
                self.waiting.borrow_mut().push_back(context.waker().clone());
                Poll::Pending
            }
        })
        .await
    }
}

/// A signal that stays raised until it is taken: many notifiers, one waiting task.
#[derive(Default)]
pub struct Notify {
    raised: Cell<bool>,
    waiter: Cell<Option<Waker>>,
}

impl Notify {
    /// Raises the signal and wakes the waiting task.
    pub fn notify(&self) {
        self.raised.set(true);
        if let Some(waker) = self.waiter.take() {
            waker.wake();
        }
    }

    /// Waits for the signal and takes it.
    pub async fn notified(&self) {
        std::future::poll_fn(|context| {
            if self.raised.take() {
                return Poll::Ready(());
            }
            self.waiter.set(Some(context.waker().clone()));
            Poll::Pending
        })
        .await;
    }
}

/// A gate that tasks pass while it is open and wait at while it is shut.
#[derive(Default)]
pub struct Gate {
    shut: Cell<u32>,
    waiting: WaitList,
}

impl Gate {
    /// Shuts the gate. Each call needs its own [`Gate::open`].
    pub fn shut(&self) {
        self.shut.set(self.shut.get() + 1);
    }

    /// Undoes one [`Gate::shut`].
    ///
    /// # Panics
    /// If the gate is not shut.
    pub fn open(&self) {
        assert!(self.shut.get() > 0, "an open gate was opened");
        self.shut.set(self.shut.get() - 1);
        if self.shut.get() == 0 {
            self.waiting.wake_all();
        }
    }

    /// True if no [`Gate::shut`] is outstanding.
    pub fn is_open(&self) -> bool {
        self.shut.get() == 0
    }

    /// Waits until the gate is open.
    pub async fn pass(&self) {
        self.waiting.until(|| self.is_open().then_some(())).await;
    }
}

/// A counting semaphore; tasks wait in FIFO order.
pub struct Semaphore {
    free: Cell<usize>,
    queue: RefCell<VecDeque<Rc<Waiter>>>,
}

struct Waiter {
    state: Cell<WaiterState>,
    waker: Cell<Option<Waker>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum WaiterState {
    /// In the queue.
    Waiting,
    /// Removed from the queue with a permit that the task has not seen yet.
    Granted,
    /// Removed from the queue; the task has the permit.
    Taken,
}

/// A task's queue entry. Dropped before the permit is taken, it passes the permit on.
struct QueueEntry<'a> {
    semaphore: &'a Semaphore,
    waiter: Rc<Waiter>,
}

impl Drop for QueueEntry<'_> {
    fn drop(&mut self) {
        match self.waiter.state.get() {
            WaiterState::Waiting => {
                self.semaphore.queue.borrow_mut().retain(|waiter| !Rc::ptr_eq(waiter, &self.waiter));
            }
            WaiterState::Granted => self.semaphore.release(),
            WaiterState::Taken => {}
        }
    }
}

/// A permit of a [`Semaphore`]; dropping it releases the permit.
pub struct Permit {
    semaphore: Rc<Semaphore>,
}

impl Semaphore {
    /// Returns a semaphore with `permits` permits.
    pub fn new(permits: usize) -> Rc<Self> {
        Rc::new(Self { free: Cell::new(permits), queue: RefCell::default() })
    }

    /// Takes a permit, waiting if none is free.
    pub async fn acquire(self: &Rc<Self>) -> Permit {
        if self.free.get() > 0 && self.queue.borrow().is_empty() {
            self.free.set(self.free.get() - 1);
            return Permit { semaphore: self.clone() };
        }
        let waiter = Rc::new(Waiter { state: Cell::new(WaiterState::Waiting), waker: Cell::new(None) });
        self.queue.borrow_mut().push_back(waiter.clone());
        let queued = QueueEntry { semaphore: self, waiter };
        std::future::poll_fn(|context| {
            if queued.waiter.state.get() == WaiterState::Granted {
                return Poll::Ready(());
            }
            queued.waiter.waker.set(Some(context.waker().clone()));
            Poll::Pending
        })
        .await;
        queued.waiter.state.set(WaiterState::Taken);
        Permit { semaphore: self.clone() }
    }

    fn release(&self) {
        let next = self.queue.borrow_mut().pop_front();
        match next {
            Some(waiter) => {
                waiter.state.set(WaiterState::Granted);
                if let Some(waker) = waiter.waker.take() {
                    waker.wake();
                }
            }
            None => self.free.set(self.free.get() + 1),
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.semaphore.release();
    }
}

struct OneshotCell<T> {
    value: Cell<Option<T>>,
    waker: Cell<Option<Waker>>,
    closed: Cell<bool>,
}

/// The sending end of [`local_oneshot`].
pub struct LocalSender<T>(Rc<OneshotCell<T>>);

/// The receiving end of [`local_oneshot`]; resolves to `None` if the sender is dropped unused.
pub struct LocalReceiver<T>(Rc<OneshotCell<T>>);

/// Returns a channel for one value between two tasks of one reactor.
pub fn local_oneshot<T>() -> (LocalSender<T>, LocalReceiver<T>) {
    let cell =
        Rc::new(OneshotCell { value: Cell::new(None), waker: Cell::new(None), closed: Cell::new(false) });
    (LocalSender(cell.clone()), LocalReceiver(cell))
}

impl<T> LocalSender<T> {
    /// Sends the value.
    pub fn send(self, value: T) {
        self.0.value.set(Some(value));
    }
}

impl<T> Drop for LocalSender<T> {
    fn drop(&mut self) {
        self.0.closed.set(true);
        if let Some(waker) = self.0.waker.take() {
            waker.wake();
        }
    }
}

impl<T> Future for LocalReceiver<T> {
    type Output = Option<T>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<T>> {
        if let Some(value) = self.0.value.take() {
            return Poll::Ready(Some(value));
        }
        if self.0.closed.get() {
            return Poll::Ready(None);
        }
        self.0.waker.set(Some(context.waker().clone()));
        Poll::Pending
    }
}

#[cfg(test)]
#[path = "sync_tests.rs"]
mod tests;
