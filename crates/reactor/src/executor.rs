//! The executor: one thread's tasks, in the order in which they became ready.
//!
//! A cycle runs the tasks that were ready when it began, takes messages from other threads, reaps the driver and
//! fires timers. With nothing to do it polls for a while if it was busy lately, then sleeps in the driver. Whoever
//! wakes one of its tasks from another thread rouses it.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::{Pin, pin};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use slab::Slab;

use crate::remote::Remote;
use crate::shared::Shared;
use crate::timer::{Sleep, Timers};
use crate::{Clock, Driver, Instant, Patience};

/// A spawned task: await it for its result, [`Task::detach`] it to let it run; dropping it cancels it.
pub type Task<T> = async_task::Task<T>;

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
    patience: Cell<Patience>,
    /// When something last happened.
    busy_at: Cell<Instant>,
    /// How many of [`Rest`] there are.
    resting: Cell<usize>,
}

thread_local! {
    static CURRENT: RefCell<Option<Reactor>> = const { RefCell::new(None) };
}

impl Reactor {
    /// An executor on this thread that waits in `driver` and tells time by `clock`.
    pub fn new(driver: Rc<dyn Driver>, clock: Rc<dyn Clock>) -> Self {
        let shared = Shared::new(driver.rouser());
        let busy_at = Cell::new(clock.now());
        let inner = Inner {
            shared,
            driver,
            clock,
            timers: RefCell::default(),
            alive: RefCell::default(),
            patience: Cell::new(Patience::new(Duration::ZERO)),
            busy_at,
            resting: Cell::new(0),
        };
        Self { inner: Rc::new(inner) }
    }

    /// How long an idle reactor polls for more work before it sleeps, at most; zero at first.
    pub fn set_poll_before_sleep(&self, length: Duration) {
        self.inner.patience.set(Patience::new(length));
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

    /// As [`Reactor::current`]; `None` outside of one, as while its tasks are dropped at its end.
    pub fn try_current() -> Option<Self> {
        CURRENT.with_borrow(Clone::clone)
    }

    /// What other threads can reach of the reactor of this thread, if there is one.
    pub(crate) fn current_shared() -> Option<Arc<Shared>> {
        CURRENT.with_borrow(|current| current.as_ref().map(|reactor| reactor.inner.shared.clone()))
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
        Sleep::new(self.clone(), due)
    }

    /// Waits for `length`.
    pub fn sleep(&self, length: Duration) -> Sleep {
        self.sleep_until(self.now() + length)
    }

    /// See [`Driver::on_the_way`].
    pub(crate) fn on_the_way(&self, key: u64, there: bool) -> Duration {
        self.inner.driver.on_the_way(key, there)
    }

    /// Waits for `length` asleep, unless something else is to be done: a reactor does not poll for anything meanwhile.
    pub fn rest(&self, length: Duration) -> Rest {
        self.inner.resting.set(self.inner.resting.get() + 1);
        Rest { sleep: self.sleep(length) }
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

    /// True if an idle reactor looks for more work before it sleeps.
    fn polls(&self) -> bool {
        self.inner.resting.get() == 0 && !self.inner.patience.get().length().is_zero()
    }

    /// True while the time since the last work is shorter than the polling time.
    fn keep_polling(&self) -> bool {
        let patience = self.inner.patience.get();
        if patience.is_off() || self.inner.resting.get() > 0 {
            return false;
        }
        let now = self.now();
        // See `mark_busy`.
        if self.inner.busy_at.get() > now {
            self.inner.busy_at.set(now);
        }
        now.since(self.inner.busy_at.get()) < patience.length()
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
            self.inner.driver.sleep(until);
            if self.inner.resting.get() == 0 {
                self.learn_from_pause();
            }
        }
        shared.wake_up();
    }

    /// Something has ended a sleep.
    fn learn_from_pause(&self) {
        let mut patience = self.inner.patience.get();
        if !patience.is_off() {
            patience.slept_through(self.now().since(self.inner.busy_at.get()));
            self.inner.patience.set(patience);
        }
    }

    /// Refuses messages from now on and drops every task, where it stands, and everything settled on this thread.
    pub fn shut_down(&self) {
        let shared = &self.inner.shared;
        shared.close();
        let alive: Vec<Waker> = self.inner.alive.borrow().iter().map(|(_, waker)| waker.clone()).collect();
        for waker in alive {
            waker.wake();
        }
        shared.drop_all();
        crate::remote::forget_residents();
    }

    pub(crate) fn timers(&self) -> &RefCell<Timers> {
        &self.inner.timers
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

/// See [`Reactor::rest`].
pub struct Rest {
    sleep: Sleep,
}

impl Future for Rest {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        Pin::new(&mut self.sleep).poll(context)
    }
}

impl Drop for Rest {
    fn drop(&mut self) {
        let resting = &self.sleep.reactor().inner.resting;
        resting.set(resting.get() - 1);
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
