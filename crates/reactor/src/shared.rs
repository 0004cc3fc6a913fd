//! What other threads can reach of a reactor: its queues, and whether it sleeps.
//!
//! Always true: the ready tasks are touched on the reactor's own thread only; whoever pushes a message finds the
//! reactor awake or rouses it. Knows nothing of drivers and timers.
#![allow(unsafe_code)]

use std::cell::{Cell, UnsafeCell};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};

use async_task::Runnable;
use crossbeam_queue::SegQueue;

use crate::WakeHandle;
use crate::call::{ReplyMsg, RequestMsg};

/// Messages of each kind taken in one cycle: senders that never stop must not keep the tasks from running.
const MESSAGES_PER_CYCLE: usize = 256;

/// What another thread has for a reactor.
pub(crate) enum RemoteMessage {
    Job(Box<dyn FnOnce() + Send>),
    Call(RequestMsg),
    Reply(ReplyMsg),
}

/// What other threads can reach of a reactor. What its own thread writes with every task, what others write with every message,
/// and what all read and hardly anybody writes lie on lines of their own: a line that two cores write goes to and fro between
/// them.
pub(crate) struct Shared {
    thread: u64,
    /// Tasks ready to run. Touched by the reactor's own thread only.
    ready: OwnCacheLine<UnsafeCell<VecDeque<Runnable>>>,
    woken: SegQueue<Runnable>,
    messages: SegQueue<RemoteMessage>,
    /// Something was pushed to one of the queues above since they were last emptied: cheaper to ask than they are.
    has_messages: OwnCacheLine<AtomicBool>,
    asleep: AtomicBool,
    closed: AtomicBool,
    wake_handle: Arc<dyn WakeHandle>,
}

/// Something with its cache line, and the one that processors fetch with it, for itself.
#[repr(align(128))]
struct OwnCacheLine<T>(T);

// SAFETY: `ready` is touched only after a check that the current thread is the reactor's own; the rest is Sync.
unsafe impl Sync for Shared {}
// SAFETY: as above. Runnables of non-Send futures are only moved between threads as handles and are run and dropped
// on their own thread: async-task's local tasks check that themselves.
unsafe impl Send for Shared {}

/// An identity of the current thread, cheaper than the standard library's.
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
    /// What other threads reach of a reactor of this thread.
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

    /// Queues a task that has become ready, from any thread.
    pub(crate) fn schedule(&self, task: Runnable) {
        if self.thread == current_thread_id() {
            // SAFETY: on the reactor's own thread, and no other borrow of the queue is live: every access is one
            // push, pop or swap that calls nothing.
            unsafe { (*self.ready.0.get()).push_back(task) };
            return;
        }
        self.woken.push(task);
        self.signal_push();
    }

    /// Queues a message; false if the reactor has shut down, and the message is dropped.
    pub(crate) fn post(&self, message: RemoteMessage) -> bool {
        if self.is_closed() {
            return false;
        }
        self.messages.push(message);
        self.signal_push();
        // `deliver` is a full fence: either the shutdown sees the message, or we see the shutdown and drop the message for it.
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

    /// Tells the reactor that something was pushed.
    fn signal_push(&self) {
        // Pairs with the fence in `take_messages`: either the reactor, which has put the sign away, sees what was pushed, or we
        // see that it has. A sign that is up already need not be written, which would take its line away from the others, and needs no
        // second fence: the reactor does not fall asleep while it is up.
        fence(Ordering::SeqCst);
        if self.has_messages.0.load(Ordering::Relaxed) {
            // Whoever put it up may not have come to this yet.
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

    /// Ends the reactor's sleep if it sleeps.
    pub(crate) fn wake(&self) {
        // Pairs with the fence in `fall_asleep`: either the sleeper sees what was done before, or we see it asleep.
        fence(Ordering::SeqCst);
        self.wake_sleeper();
    }

    fn wake_sleeper(&self) {
        // Asked before it is swapped: mostly it is awake.
        if self.asleep.load(Ordering::Relaxed) && self.asleep.swap(false, Ordering::AcqRel) {
            self.wake_handle.wake();
        }
    }

    /// The task that became ready first. On the reactor's own thread only.
    pub(crate) fn next_ready(&self) -> Option<Runnable> {
        assert!(self.is_current(), "the ready tasks were touched from another thread");
        // SAFETY: called by the reactor on its own thread only; see `schedule`.
        unsafe { (*self.ready.0.get()).pop_front() }
    }

    /// How many tasks are ready. On the reactor's own thread only.
    pub(crate) fn ready_len(&self) -> usize {
        assert!(self.is_current(), "the ready tasks were touched from another thread");
        // SAFETY: as above.
        unsafe { (*self.ready.0.get()).len() }
    }

    /// Makes the woken tasks ready and does what the messages say, up to a limit. True if there may have been any.
    pub(crate) fn take_messages(&self) -> bool {
        if !self.has_messages.0.load(Ordering::Relaxed) {
            return false;
        }
        // Swapped before the queues are emptied: what is pushed meanwhile raises it again.
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
        // There may be more: they come after the tasks that are ready now.
        self.has_messages.0.store(true, Ordering::Release);
        true
    }

    /// Announces a sleep. False if it must not begin, because there are messages. What else others do before they call
    /// [`Shared::wake`] is to be looked at after this.
    pub(crate) fn fall_asleep(&self) -> bool {
        self.asleep.store(true, Ordering::Release);
        fence(Ordering::SeqCst);
        !self.has_messages.0.load(Ordering::Acquire)
    }

    /// The sleep is over, or did not begin.
    pub(crate) fn wake_up(&self) {
        self.asleep.store(false, Ordering::Release);
    }

    /// Refuses messages from now on.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        // Pairs with the fence that `post` passes after it has pushed.
        fence(Ordering::SeqCst);
    }

    /// Drops every task that is ready or woken, and every message, and what these make ready by that.
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
