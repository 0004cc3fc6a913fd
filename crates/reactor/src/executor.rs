//! The executor: one thread's tasks, in the order in which they became ready.
//!
//! A cycle runs the tasks that were ready when it began, takes messages from other threads, reaps the driver and
//! fires timers. With nothing to do it polls for a while if it was busy lately, then sleeps in the driver. Whoever
//! wakes one of its tasks from another thread rouses it.
#![allow(unsafe_code)]

use std::cell::{Cell, RefCell, UnsafeCell};
use std::collections::VecDeque;
use std::future::Future;
use std::pin::{Pin, pin};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use async_task::Runnable;
use crossbeam_queue::SegQueue;
use slab::Slab;

use crate::remote::Remote;
use crate::timer::{TimerKey, Timers};
use crate::{Clock, Instant};

/// A spawned task: await it for its result, [`Task::detach`] it to let it run; dropping it cancels it.
pub type Task<T> = async_task::Task<T>;

/// What a reactor waits in: the source of completions.
pub trait Driver {
    /// Hands over what was queued and completes what has ended. True if anything completed.
    fn poll(&self) -> bool;

    /// As [`Driver::poll`], but nothing is ready to run: unless this completes something, [`Driver::sleep`] follows at
    /// once, which may be the better moment to hand over what was queued.
    fn poll_before_sleep(&self) -> bool {
        self.poll()
    }

    /// Hands over what was queued and sleeps until something may have completed, [`Rouse::rouse`] is called, or `until` (never, if `None`).
    fn sleep(&self, until: Option<Instant>);

    /// What another thread calls to end [`Driver::sleep`].
    fn rouser(&self) -> Arc<dyn Rouse>;
}

/// Ends a reactor's sleep, from any thread.
pub trait Rouse: Send + Sync {
    /// Ends the sleep now, or the next one at once.
    fn rouse(&self);
}

/// Messages of each kind taken in one cycle: senders that never stop must not keep the tasks from running.
const MESSAGES_PER_CYCLE: usize = 256;

/// A job from another thread.
pub(crate) type Job = Box<dyn FnOnce() + Send>;

/// What other threads can reach of a reactor.
pub(crate) struct Shared {
    thread: u64,
    /// Tasks ready to run. Touched by the reactor's own thread only.
    ready: UnsafeCell<VecDeque<Runnable>>,
    woken: SegQueue<Runnable>,
    jobs: SegQueue<Job>,
    /// Something was pushed to one of the queues above since they were last emptied: cheaper to ask than they are.
    mail: AtomicBool,
    asleep: AtomicBool,
    closed: AtomicBool,
    rouser: Arc<dyn Rouse>,
}

// SAFETY: `ready` is touched only after a check that the current thread is the reactor's own; the rest is Sync.
unsafe impl Sync for Shared {}
// SAFETY: as above. Runnables of non-Send futures are only moved between threads as handles and are run and dropped
// on their own thread: async-task's local tasks check that themselves.
unsafe impl Send for Shared {}

/// An identity of the current thread, cheaper than the standard library's.
pub(crate) fn thread_identity() -> u64 {
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
    fn schedule(&self, task: Runnable) {
        if self.thread == thread_identity() {
            // SAFETY: on the reactor's own thread, and no other borrow of the queue is live: every access is one
            // push, pop or swap that calls nothing.
            unsafe { (*self.ready.get()).push_back(task) };
            return;
        }
        self.woken.push(task);
        self.deliver();
    }

    /// Queues a job; false if the reactor has shut down, and the job is dropped.
    pub(crate) fn post(&self, job: Job) -> bool {
        if self.closed.load(Ordering::Acquire) {
            return false;
        }
        self.jobs.push(job);
        self.deliver();
        // `deliver` is a full fence: either the shutdown sees the job, or we see the shutdown and drop the job for it.
        if self.closed.load(Ordering::Acquire) {
            while let Some(job) = self.jobs.pop() {
                drop(job);
            }
        }
        true
    }

    /// Tells the reactor that something was pushed.
    fn deliver(&self) {
        self.mail.store(true, Ordering::Release);
        self.rouse();
    }

    pub(crate) fn is_current(&self) -> bool {
        self.thread == thread_identity()
    }

    fn rouse(&self) {
        // Pairs with the fence in `Reactor::sleep_in_driver`: either the sleeper sees what was pushed, or we see it asleep.
        std::sync::atomic::fence(Ordering::SeqCst);
        if self.asleep.swap(false, Ordering::AcqRel) {
            self.rouser.rouse();
        }
    }

    fn next_ready(&self) -> Option<Runnable> {
        // SAFETY: called by the reactor on its own thread only; see `schedule`.
        unsafe { (*self.ready.get()).pop_front() }
    }

    fn ready_len(&self) -> usize {
        // SAFETY: as above.
        unsafe { (*self.ready.get()).len() }
    }
}

/// A handle on this thread's executor.
#[derive(Clone)]
pub struct Reactor {
    inner: Rc<Inner>,
}

struct Inner {
    shared: Arc<Shared>,
    driver: Rc<dyn Driver>,
    clock: Rc<dyn Clock>,
    timers: RefCell<Timers>,
    /// A waker for every task that has not ended, so that [`Reactor::shut_down`] reaches those that wait.
    alive: RefCell<Slab<Waker>>,
    /// How long to poll for more work before sleeping.
    poll_for: Cell<Duration>,
    /// When something last happened.
    busy_at: Cell<Instant>,
}

thread_local! {
    static CURRENT: RefCell<Option<Reactor>> = const { RefCell::new(None) };
}

impl Reactor {
    /// An executor on this thread that waits in `driver` and tells time by `clock`.
    pub fn new(driver: Rc<dyn Driver>, clock: Rc<dyn Clock>) -> Self {
        let shared = Arc::new(Shared {
            thread: thread_identity(),
            ready: UnsafeCell::new(VecDeque::new()),
            woken: SegQueue::new(),
            jobs: SegQueue::new(),
            mail: AtomicBool::new(false),
            asleep: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            rouser: driver.rouser(),
        });
        let busy_at = Cell::new(clock.now());
        let inner = Inner {
            shared,
            driver,
            clock,
            timers: RefCell::default(),
            alive: RefCell::default(),
            poll_for: Cell::new(Duration::ZERO),
            busy_at,
        };
        Self { inner: Rc::new(inner) }
    }

    /// How long an idle reactor polls for more work before it sleeps; zero at first.
    pub fn set_poll_before_sleep(&self, length: Duration) {
        self.inner.poll_for.set(length);
    }

    /// The reactor whose [`Reactor::run`] is on this thread's stack.
    ///
    /// # Panics
    /// Outside of one.
    pub fn current() -> Self {
        match CURRENT.with_borrow(Clone::clone) {
            Some(reactor) => reactor,
            None => panic!("no reactor runs on this thread"),
        }
    }

    /// A handle for other threads.
    pub fn remote(&self) -> Remote {
        Remote::new(self.inner.shared.clone())
    }

    /// The moment now.
    pub fn now(&self) -> Instant {
        self.inner.clock.now()
    }

    /// Starts a task. It first runs when the tasks that are ready now have run.
    pub fn spawn<T: 'static>(&self, future: impl Future<Output = T> + 'static) -> Task<T> {
        let shared = self.inner.shared.clone();
        let mut alive = self.inner.alive.borrow_mut();
        let entry = alive.vacant_entry();
        let registered = Registered { inner: Rc::downgrade(&self.inner), key: entry.key() };
        let future = async move {
            let _registered = registered;
            future.await
        };
        let (runnable, task) = async_task::spawn_local(future, move |runnable| shared.schedule(runnable));
        entry.insert(runnable.waker());
        runnable.schedule();
        task
    }

    /// Waits until `due`.
    pub fn sleep_until(&self, due: Instant) -> Sleep {
        Sleep { reactor: self.clone(), due, timer: None }
    }

    /// Waits for `length`.
    pub fn sleep(&self, length: Duration) -> Sleep {
        self.sleep_until(self.now() + length)
    }

    /// Lets every task that is ready run before this one goes on.
    pub fn yield_now(&self) -> Yield {
        Yield { yielded: false }
    }

    /// Runs tasks until `future` is done. Tasks left over stay and go on in the next call.
    pub fn run<T>(&self, future: impl Future<Output = T>) -> T {
        let outer = CURRENT.replace(Some(self.clone()));
        let restore = Restore(outer);
        let mut future = pin!(future);
        let (main_waker, main_woken) = self.main_waker();
        let result = loop {
            // Asked before it is swapped: a swap locks the cache line, every cycle.
            if main_woken.load(Ordering::Relaxed) && main_woken.swap(false, Ordering::Acquire) {
                self.mark_busy();
                if let Poll::Ready(result) = future.as_mut().poll(&mut Context::from_waker(&main_waker)) {
                    break result;
                }
            }
            self.cycle(&main_woken);
        };
        drop(restore);
        result
    }

    /// A waker for the future that [`Reactor::run`] drives itself, and the flag that it raises.
    fn main_waker(&self) -> (Waker, Arc<AtomicBool>) {
        struct Main {
            woken: Arc<AtomicBool>,
            shared: Arc<Shared>,
        }
        impl std::task::Wake for Main {
            fn wake(self: Arc<Self>) {
                self.woken.store(true, Ordering::Release);
                if !self.shared.is_current() {
                    self.shared.rouse();
                }
            }
        }
        let woken = Arc::new(AtomicBool::new(true));
        let main = Main { woken: woken.clone(), shared: self.inner.shared.clone() };
        (Waker::from(Arc::new(main)), woken)
    }

    /// One round: ready tasks, messages, completions, timers; polls or sleeps if nothing is ready then.
    fn cycle(&self, main_woken: &AtomicBool) {
        let shared = &self.inner.shared;
        let mut worked = self.run_ready();
        worked |= self.take_messages();
        let more = || shared.ready_len() > 0 || main_woken.load(Ordering::Acquire);
        let may_sleep = self.inner.poll_for.get().is_zero() && !more();
        let driver = &self.inner.driver;
        worked |= if may_sleep { driver.poll_before_sleep() } else { driver.poll() };
        worked |= self.fire_timers();
        if worked {
            self.mark_busy();
        }
        if more() {
            return;
        }
        if self.keep_polling() {
            std::hint::spin_loop();
            return;
        }
        self.sleep_in_driver(main_woken);
    }

    /// Runs the tasks that are ready now, but not those that they make ready. True if there were any.
    fn run_ready(&self) -> bool {
        let shared = &self.inner.shared;
        let ready = shared.ready_len();
        for _ in 0..ready {
            let Some(task) = shared.next_ready() else { break };
            task.run();
        }
        ready > 0
    }

    /// Something happened: the time of polling begins anew. The clock is read only once the reactor turns idle.
    fn mark_busy(&self) {
        self.inner.busy_at.set(Instant::from_nanos(u64::MAX));
    }

    /// True while the time since the last work is shorter than the polling time.
    fn keep_polling(&self) -> bool {
        let poll_for = self.inner.poll_for.get();
        if poll_for.is_zero() {
            return false;
        }
        let now = self.now();
        // See `mark_busy`.
        if self.inner.busy_at.get() > now {
            self.inner.busy_at.set(now);
        }
        now.since(self.inner.busy_at.get()) < poll_for
    }

    fn take_messages(&self) -> bool {
        let shared = &self.inner.shared;
        if !shared.mail.load(Ordering::Relaxed) {
            return false;
        }
        // Swapped before the queues are emptied: what is pushed meanwhile raises it again.
        shared.mail.swap(false, Ordering::AcqRel);
        for _ in 0..MESSAGES_PER_CYCLE {
            let (task, job) = (shared.woken.pop(), shared.jobs.pop());
            if task.is_none() && job.is_none() {
                return true;
            }
            if let Some(task) = task {
                shared.schedule(task);
            }
            if let Some(job) = job {
                job();
            }
        }
        // There may be more: they come after the tasks that are ready now.
        shared.mail.store(true, Ordering::Release);
        true
    }

    fn fire_timers(&self) -> bool {
        if self.inner.timers.borrow().next_due().is_none() {
            return false;
        }
        let now = self.now();
        let mut fired = false;
        loop {
            let Some(waker) = self.inner.timers.borrow_mut().take_due(now) else { return fired };
            fired = true;
            waker.wake();
        }
    }

    fn sleep_in_driver(&self, main_woken: &AtomicBool) {
        let shared = &self.inner.shared;
        shared.asleep.store(true, Ordering::Release);
        std::sync::atomic::fence(Ordering::SeqCst);
        let idle = !shared.mail.load(Ordering::Acquire) && !main_woken.load(Ordering::Acquire);
        if idle {
            let until = self.inner.timers.borrow().next_due();
            self.inner.driver.sleep(until);
        }
        shared.asleep.store(false, Ordering::Release);
    }

    /// Refuses messages from now on and drops every task, where it stands.
    pub fn shut_down(&self) {
        let shared = &self.inner.shared;
        shared.closed.store(true, Ordering::Release);
        // Pairs with the fence in `Shared::post`.
        std::sync::atomic::fence(Ordering::SeqCst);
        let alive: Vec<Waker> = self.inner.alive.borrow().iter().map(|(_, waker)| waker.clone()).collect();
        for waker in alive {
            waker.wake();
        }
        loop {
            while let Some(task) = shared.woken.pop() {
                drop(task);
            }
            while let Some(job) = shared.jobs.pop() {
                drop(job);
            }
            let Some(task) = shared.next_ready() else { return };
            drop(task);
        }
    }
}

/// A task's entry in the list of living tasks; leaves the list when the task ends or is dropped.
struct Registered {
    inner: Weak<Inner>,
    key: usize,
}

impl Drop for Registered {
    fn drop(&mut self) {
        if let Some(inner) = self.inner.upgrade() {
            let waker = inner.alive.borrow_mut().try_remove(self.key);
            drop(waker);
        }
    }
}

struct Restore(Option<Reactor>);

impl Drop for Restore {
    fn drop(&mut self) {
        CURRENT.set(self.0.take());
    }
}

/// See [`Reactor::sleep`]. Dropping it forgets the timer.
pub struct Sleep {
    reactor: Reactor,
    due: Instant,
    timer: Option<TimerKey>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.reactor.now() >= self.due {
            return Poll::Ready(());
        }
        let due = self.due;
        let mut timers = self.reactor.inner.timers.borrow_mut();
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
        // Dropped after the timers are let go of: a waker may be the last hold on a task that sets timers itself.
        let waker = self.reactor.inner.timers.borrow_mut().cancel(key);
        drop(waker);
    }
}

/// See [`Reactor::yield_now`].
pub struct Yield {
    yielded: bool,
}

impl Future for Yield {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.yielded {
            return Poll::Ready(());
        }
        self.yielded = true;
        context.waker().wake_by_ref();
        Poll::Pending
    }
}

#[cfg(test)]
#[path = "executor_tests.rs"]
mod tests;
