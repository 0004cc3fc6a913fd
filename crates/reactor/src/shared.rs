//! The state of a reactor that other threads access: its queues, and whether it sleeps.
//!
//! Invariants: only the reactor's own thread touches the ready tasks; a thread that pushes a
//! message finds the reactor awake or wakes it. Does not know drivers and timers.
#![allow(unsafe_code)]

use std::cell::{Cell, UnsafeCell};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};

use async_task::Runnable;
use crossbeam_queue::SegQueue;

use crate::WakeHandle;
use crate::message::RemoteMessage;

/// Messages of each kind taken per cycle: a constant stream of messages must not starve the tasks.
const MESSAGES_PER_CYCLE: usize = 256;

/// The state of a reactor that other threads access. Fields written by its own thread, fields
/// written with every message, and fields that are mostly read are on separate cache lines, because
/// a line written by two cores moves between them.
pub(crate) struct Shared {
    thread: u64,
    /// Tasks ready to run. Only the reactor's own thread touches them.
    ready: OwnCacheLine<UnsafeCell<VecDeque<Runnable>>>,
    woken: SegQueue<Runnable>,
    messages: SegQueue<RemoteMessage>,
    /// True if a queue above may be non-empty. Cheaper to load than the queues are to check.
    has_messages: OwnCacheLine<AtomicBool>,
    asleep: AtomicBool,
    closed: AtomicBool,
    wake_handle: Arc<dyn WakeHandle>,
}

/// A value alone on its cache line and on the adjacent one, which processors fetch with it.
#[repr(align(128))]
struct OwnCacheLine<T>(T);

// SAFETY: `ready` is touched only after a check that the current thread is the reactor's own; the
// rest is Sync.
unsafe impl Sync for Shared {}
// SAFETY: as above. Runnables of non-Send futures are only moved between threads as handles and are
// run and dropped on their own thread: async-task's local tasks check that themselves.
unsafe impl Send for Shared {}

/// Returns an identifier of the current thread, at a lower cost than the standard library's.
fn current_thread_id() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    thread_local! {
        static IDENTITY: Cell<u64> = const { Cell::new(0) };
    }
    IDENTITY.with(|identity| {
        if identity.get() == 0 {
            identity.set(NEXT.fetch_add(1, Ordering::Relaxed));
        }
        identity.get()
    })
}

impl Shared {
    /// Returns the shared state of a reactor on this thread.
    pub(crate) fn new(wake_handle: Arc<dyn WakeHandle>) -> Arc<Self> {
        Arc::new(Self {
            thread: current_thread_id(),
            ready: OwnCacheLine(UnsafeCell::new(VecDeque::new())),
            woken: SegQueue::new(),
            messages: SegQueue::new(),
            has_messages: OwnCacheLine(AtomicBool::new(false)),
            asleep: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            wake_handle,
        })
    }

    /// Queues a ready task, from any thread.
    pub(crate) fn schedule(&self, task: Runnable) {
        if self.thread == current_thread_id() {
            // SAFETY: on the reactor's own thread, and no other borrow of the queue is live: every
            // access is one push, pop or swap that calls nothing.
            unsafe { (*self.ready.0.get()).push_back(task) };
            return;
        }
        self.woken.push(task);
        self.signal_push();
    }

    /// Queues a message. False if the reactor has shut down; the message is dropped.
    pub(crate) fn post(&self, message: RemoteMessage) -> bool {
        if self.is_closed() {
            return false;
        }
        self.messages.push(message);
        self.signal_push();
        // `signal_push` is a full fence: either the shutdown sees the message, or this thread sees
        // the shutdown and drops the message for it.
        if self.is_closed() {
            while let Some(message) = self.messages.pop() {
                drop(message);
            }
        }
        true
    }

    /// True once the reactor has shut down.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Signals the reactor that something was pushed.
    fn signal_push(&self) {
        // Pairs with the fence in `take_messages`: either the reactor, which has cleared the flag,
        // sees the push, or this thread sees the cleared flag. A flag that is already set is not
        // written again, which would invalidate the cache line on other cores, and needs no second
        // fence: the reactor does not fall asleep while it is set.
        fence(Ordering::SeqCst);
        if self.has_messages.0.load(Ordering::Relaxed) {
            // The thread that set the flag may not have woken the reactor yet.
            self.wake_sleeper();
        } else {
            self.has_messages.0.store(true, Ordering::Release);
            self.wake();
        }
    }

    /// True on the reactor's own thread.
    pub(crate) fn is_current(&self) -> bool {
        self.thread == current_thread_id()
    }

    /// Wakes the reactor if it sleeps.
    pub(crate) fn wake(&self) {
        // Pairs with the fence in `fall_asleep`: either the sleeper sees prior writes, or this
        // thread sees it asleep.
        fence(Ordering::SeqCst);
        self.wake_sleeper();
    }

    fn wake_sleeper(&self) {
        // Loaded before it is swapped: the reactor is usually awake.
        if self.asleep.load(Ordering::Relaxed) && self.asleep.swap(false, Ordering::AcqRel) {
            self.wake_handle.wake();
        }
    }

    /// Returns the next ready task. Only on the reactor's own thread.
    pub(crate) fn next_ready(&self) -> Option<Runnable> {
        assert!(self.is_current(), "the ready tasks were touched from another thread");
        // SAFETY: called by the reactor on its own thread only; see `schedule`.
        unsafe { (*self.ready.0.get()).pop_front() }
    }

    /// Returns the number of ready tasks. Only on the reactor's own thread.
    pub(crate) fn ready_len(&self) -> usize {
        assert!(self.is_current(), "the ready tasks were touched from another thread");
        // SAFETY: as above.
        unsafe { (*self.ready.0.get()).len() }
    }

    /// Moves woken tasks to the ready queue and processes messages, up to a limit. True if there
    /// may have been any.
    pub(crate) fn take_messages(&self) -> bool {
        if !self.has_messages.0.load(Ordering::Relaxed) {
            return false;
        }
        // Cleared before the queues are emptied: a later push sets it again.
        self.has_messages.0.swap(false, Ordering::AcqRel);
        fence(Ordering::SeqCst);
        for _ in 0..MESSAGES_PER_CYCLE {
            let (task, message) = (self.woken.pop(), self.messages.pop());
            if task.is_none() && message.is_none() {
                return true;
            }
            if let Some(task) = task {
                self.schedule(task);
            }
            match message {
                Some(RemoteMessage::Job(job)) => job(),
                Some(RemoteMessage::Call(request)) => request.run(),
                Some(RemoteMessage::Reply(reply)) => drop(reply),
                None => {}
            }
        }
        // More messages may be queued: they follow the tasks that are ready now.
        self.has_messages.0.store(true, Ordering::Release);
        true
    }

    /// Announces a sleep. False if messages are queued and the reactor must not sleep. Conditions
    /// that other threads set before [`Shared::wake`] must be checked after this.
    pub(crate) fn fall_asleep(&self) -> bool {
        self.asleep.store(true, Ordering::Release);
        fence(Ordering::SeqCst);
        !self.has_messages.0.load(Ordering::Acquire)
    }

    /// Records that the sleep ended, or was not started.
    pub(crate) fn wake_up(&self) {
        self.asleep.store(false, Ordering::Release);
    }

    /// Refuses messages from now on.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        // Pairs with the fence that `post` passes after it has pushed.
        fence(Ordering::SeqCst);
    }

    /// Drops every ready or woken task and every message, and every task that becomes ready by
    /// these drops.
    pub(crate) fn drop_all(&self) {
        loop {
            while let Some(task) = self.woken.pop() {
                drop(task);
            }
            while let Some(message) = self.messages.pop() {
                drop(message);
            }
            let Some(task) = self.next_ready() else { return };
            drop(task);
        }
    }
}
