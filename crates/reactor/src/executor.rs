//! The executor: runs one thread's tasks in the order in which they became ready.
//!
//! A cycle runs the tasks that were ready when it began, takes messages from other threads, reaps
//! completions and fires timers. An idle reactor polls for a while if it was busy recently, then
//! sleeps in the driver. Another thread that wakes one of its tasks also wakes the reactor.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::{Pin, pin};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use slab::Slab;

use crate::shared::Shared;
use crate::timer::Timers;
use crate::{AdaptivePoll, Clock, Driver, Instant, objects};

/// A spawned task: await it for its result, or [`Task::detach`] it to let it run; dropping it
/// cancels it.
pub type Task<T> = async_task::Task<T>;

/// The future of a task.
pub type BoxedTask<T> = Pin<Box<dyn Future<Output = T>>>;

/// A handle to this thread's executor.
#[derive(Clone)]
pub struct Reactor {
    inner: Rc<Inner>,
}

struct Inner {
    shared: Arc<Shared>,
    driver: Rc<dyn Driver>,
    clock: Rc<dyn Clock>,
    timers: RefCell<Timers>,
    /// The waker of every unfinished task, so that [`Reactor::shut_down`] reaches waiting tasks.
    alive: RefCell<Slab<Waker>>,
    /// The polling policy of an idle reactor.
    adaptive_poll: Cell<AdaptivePoll>,
    /// Time of the last work; see [`Reactor::mark_busy`].
    busy_at: Cell<Instant>,
    /// Time of the creation, for [`Reactor::busy_time`].
    created: Instant,
    /// Time without work, up to `idle_until`.
    idle: Cell<Duration>,
    /// Time up to which an idle reactor has counted its time without work.
    idle_until: Cell<Instant>,
    /// Number of live [`UnpolledSleep`](crate::UnpolledSleep)s.
    unpolled_sleeps: Cell<usize>,
}

thread_local! {
    static CURRENT: RefCell<Option<Reactor>> = const { RefCell::new(None) };
}

impl Reactor {
    /// Returns an executor on this thread that sleeps in `driver` and reads time from `clock`.
    pub fn new(driver: Rc<dyn Driver>, clock: Rc<dyn Clock>) -> Self {
        let shared = Shared::new(driver.wake_handle());
        let created = clock.now();
        let inner = Inner {
            shared,
            driver,
            clock,
            timers: RefCell::default(),
            alive: RefCell::default(),
            adaptive_poll: Cell::new(AdaptivePoll::new(Duration::ZERO)),
            busy_at: Cell::new(created),
            created,
            idle: Cell::new(Duration::ZERO),
            idle_until: Cell::new(created),
            unpolled_sleeps: Cell::new(0),
        };
        Self { inner: Rc::new(inner) }
    }

    /// Sets how long an idle reactor polls for work before it sleeps, at most. Zero at first.
    pub fn set_poll_before_sleep(&self, length: Duration) {
        self.inner.adaptive_poll.set(AdaptivePoll::new(length));
    }

    /// Returns the reactor whose [`Reactor::run`] is on this thread's stack.
    ///
    /// # Panics
    /// Outside of [`Reactor::run`].
    pub fn current() -> Self {
        match CURRENT.with_borrow(Clone::clone) {
            Some(reactor) => reactor,
            None => panic!("no reactor runs on this thread"),
        }
    }

    /// Like [`Reactor::current`]; `None` outside of [`Reactor::run`], and while tasks are dropped
    /// at shutdown.
    pub fn try_current() -> Option<Self> {
        CURRENT.with_borrow(Clone::clone)
    }

    /// Returns the state of this thread's reactor that other threads may access, if a reactor runs.
    pub(crate) fn current_shared() -> Option<Arc<Shared>> {
        CURRENT.with_borrow(|current| current.as_ref().map(|reactor| reactor.inner.shared.clone()))
    }

    /// Returns the current moment.
    pub fn now(&self) -> Instant {
        self.inner.clock.now()
    }

    /// Starts a task. It first runs after the tasks that are ready now.
    pub fn spawn<T: 'static>(&self, future: impl Future<Output = T> + 'static) -> Task<T> {
        self.spawn_boxed(Box::pin(future))
    }

    /// Like [`Reactor::spawn`]. The code of a task is compiled once for each type of result, and
    /// not for each future: there are a thousand of them.
    pub fn spawn_boxed<T: 'static>(&self, future: BoxedTask<T>) -> Task<T> {
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

    /// See [`Driver::message_delay`].
    pub(crate) fn message_delay(&self, key: u64, there: bool) -> Duration {
        self.inner.driver.message_delay(key, there)
    }

    /// Lets every ready task run before this one continues.
    pub fn yield_now(&self) -> Yield {
        Yield { yielded: false }
    }

    /// Runs tasks until `future` completes. Unfinished tasks stay and continue in the next call.
    pub fn run<T>(&self, future: impl Future<Output = T>) -> T {
        let outer = CURRENT.replace(Some(self.clone()));
        let restore = Restore(outer);
        let mut future = pin!(future);
        let (main_waker, main_woken) = self.main_waker();
        let result = loop {
            // Loaded before it is swapped: a swap in every cycle would lock the cache line.
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

    /// Returns a waker for the future that [`Reactor::run`] drives, and the flag that the waker
    /// raises.
    fn main_waker(&self) -> (Waker, Arc<AtomicBool>) {
        struct Main {
            woken: Arc<AtomicBool>,
            shared: Arc<Shared>,
        }
        impl std::task::Wake for Main {
            fn wake(self: Arc<Self>) {
                self.woken.store(true, Ordering::Release);
                if !self.shared.is_current() {
                    self.shared.wake();
                }
            }
        }
        let woken = Arc::new(AtomicBool::new(true));
        let main = Main { woken: woken.clone(), shared: self.inner.shared.clone() };
        (Waker::from(Arc::new(main)), woken)
    }

    /// Runs one cycle: ready tasks, messages, completions, timers. Polls or sleeps if nothing is
    /// ready then.
    fn cycle(&self, main_woken: &AtomicBool) {
        let shared = &self.inner.shared;
        let mut worked = self.run_ready();
        worked |= shared.take_messages();
        let more = || shared.ready_len() > 0 || main_woken.load(Ordering::Acquire);
        let may_sleep = !self.polls() && !more();
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

    /// Runs the tasks that are ready now, but not the tasks that become ready meanwhile. True if
    /// there were any.
    fn run_ready(&self) -> bool {
        let shared = &self.inner.shared;
        let ready = shared.ready_len();
        for _ in 0..ready {
            let Some(task) = shared.next_ready() else { break };
            task.run();
        }
        ready > 0
    }

    /// Restarts the polling time. The clock is read only once the reactor turns idle.
    fn mark_busy(&self) {
        self.inner.busy_at.set(Instant::from_nanos(u64::MAX));
    }

    /// True if an idle reactor polls before it sleeps.
    fn polls(&self) -> bool {
        self.inner.unpolled_sleeps.get() == 0 && !self.inner.adaptive_poll.get().poll_time().is_zero()
    }

    /// True while the time since the last work is shorter than the polling time.
    fn keep_polling(&self) -> bool {
        let adaptive_poll = self.inner.adaptive_poll.get();
        if adaptive_poll.is_disabled() || self.inner.unpolled_sleeps.get() > 0 {
            return false;
        }
        let now = self.now();
        // `mark_busy` stored the maximum: the idle time starts now.
        if self.inner.busy_at.get() > now {
            self.inner.busy_at.set(now);
        } else {
            self.count_idle(self.inner.idle_until.get(), now);
        }
        self.inner.idle_until.set(now);
        now.since(self.inner.busy_at.get()) < adaptive_poll.poll_time()
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
        if shared.fall_asleep() && !main_woken.load(Ordering::Acquire) {
            let until = self.inner.timers.borrow().next_due();
            let asleep_at = self.now();
            self.inner.driver.sleep(until);
            let now = self.now();
            self.count_idle(asleep_at, now);
            self.inner.idle_until.set(now);
            if self.inner.unpolled_sleeps.get() == 0 {
                self.record_pause(now);
            }
        }
        shared.wake_up();
    }

    fn count_idle(&self, from: Instant, to: Instant) {
        self.inner.idle.set(self.inner.idle.get() + to.since(from));
    }

    /// Returns the time since the creation in which the reactor worked: neither slept nor polled in
    /// vain. Only grows.
    pub fn busy_time(&self) -> Duration {
        self.now().since(self.inner.created).saturating_sub(self.inner.idle.get())
    }

    /// Updates the polling policy after a sleep that ended now.
    fn record_pause(&self, now: Instant) {
        let mut adaptive_poll = self.inner.adaptive_poll.get();
        if !adaptive_poll.is_disabled() {
            adaptive_poll.record_pause(now.since(self.inner.busy_at.get()));
            self.inner.adaptive_poll.set(adaptive_poll);
        }
    }

    /// Refuses further messages, drops every task in its current state, and unregisters every
    /// object of this thread.
    pub fn shut_down(&self) {
        let shared = &self.inner.shared;
        shared.close();
        let alive: Vec<Waker> = self.inner.alive.borrow().iter().map(|(_, waker)| waker.clone()).collect();
        for waker in alive {
            waker.wake();
        }
        shared.drop_all();
        objects::unregister_all();
    }

    /// Returns the state that other threads access.
    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.inner.shared
    }

    /// Returns the number of live [`UnpolledSleep`](crate::UnpolledSleep)s.
    pub(crate) fn unpolled_sleeps(&self) -> &Cell<usize> {
        &self.inner.unpolled_sleeps
    }

    pub(crate) fn timers(&self) -> &RefCell<Timers> {
        &self.inner.timers
    }
}

/// A task's entry in the list of unfinished tasks, removed when the task ends or is dropped.
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
