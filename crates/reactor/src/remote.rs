//! Messages between reactors: run a job there, get the answer here.
//!
//! Owns the handles that may cross threads. Always true: what lives on a reactor is touched by jobs on that reactor
//! only; a job for a reactor that has shut down is reported, never silently lost.

use std::collections::HashMap;
use std::future::Future;
use std::hash::{BuildHasherDefault, Hasher};
use std::marker::PhantomData;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::task::{Context, Waker};
use std::time::Duration;
use std::{any::Any, cell::RefCell};

use futures_channel::oneshot;

use crate::call::Calling;
use crate::shared::{Message, Shared};
use crate::{Clock, Driver, Instant, Reactor, Rouse};

/// A handle on another thread's reactor.
#[derive(Clone)]
pub struct Remote {
    shared: Arc<Shared>,
}

/// The reactor has shut down.
#[derive(Debug, thiserror::Error, PartialEq, Eq, Clone, Copy)]
#[error("the reactor has shut down")]
pub struct ReactorGone;

impl Remote {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    /// True on the reactor's own thread.
    pub fn is_current(&self) -> bool {
        self.shared.is_current()
    }

    /// True if both are of one reactor.
    pub fn is_same(&self, other: &Remote) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }

    /// Runs `job` on the reactor, soon.
    ///
    /// # Errors
    /// When the reactor has shut down: the job has been dropped.
    pub fn post(&self, job: impl FnOnce() + Send + 'static) -> Result<(), ReactorGone> {
        if self.shared.post(Message::Job(Box::new(job))) { Ok(()) } else { Err(ReactorGone) }
    }

    /// Runs `work` on the reactor and gives its result, to any thread and any executor. What it cannot do at once goes on as a
    /// task.
    ///
    /// # Errors
    /// When the reactor has shut down, before the task or during it.
    pub async fn call<T, F>(&self, work: impl FnOnce() -> F + Send + 'static) -> Result<T, ReactorGone>
    where
        F: Future<Output = T> + 'static,
        T: Send + 'static,
    {
        self.ask(move || Some(work())).await
    }

    /// As [`Remote::call`], for work that may turn out not to be possible any more.
    async fn ask<T, F>(&self, work: impl FnOnce() -> Option<F> + Send + 'static) -> Result<T, ReactorGone>
    where
        F: Future<Output = T> + 'static,
        T: Send + 'static,
    {
        if let Some(caller) = Reactor::current_shared() {
            return Calling::new(caller, &self.shared, work).await;
        }
        // Nobody takes messages on this thread.
        let (sender, receiver) = oneshot::channel();
        self.post(move || {
            if let Some(work) = work() {
                // The caller may have gone; the work is done all the same.
                begin(work, |answer| drop(sender.send(answer)));
            }
        })?;
        receiver.await.map_err(|_| ReactorGone)
    }
}

/// Does what can be done at once, which on memory drives is all, and leaves the rest to a task, which polls again at once: so nobody
/// has to wake the waker of here.
pub(crate) fn begin<T: 'static>(work: impl Future<Output = T> + 'static, then: impl FnOnce(T) + 'static) {
    let mut work = Box::pin(async move { then(work.await) });
    if work.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending() {
        Reactor::current().spawn(work).detach();
    }
}

thread_local! {
    static RESIDENTS: RefCell<HashMap<u64, Rc<dyn Any>, BuildHasherDefault<Numbers>>> = RefCell::default();
}

/// For keys that are numbers in turn: they are spread well as they are, once multiplied.
#[derive(Default)]
struct Numbers(u64);

impl Hasher for Numbers {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, number: u64) {
        // The golden ratio's fraction (Knuth, The Art of Computer Programming, 6.4).
        self.0 = (self.0 ^ number).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
}

/// What is settled on this thread under a key.
fn resident<T: 'static>(key: u64) -> Option<Rc<T>> {
    let resident = RESIDENTS.with_borrow(|residents| residents.get(&key).cloned())?;
    resident.downcast().ok()
}

/// Forgets everything that is settled on this thread: its reactor shuts down.
pub(crate) fn forget_residents() {
    let gone = RESIDENTS.with_borrow_mut(std::mem::take);
    drop(gone);
}

/// A handle, for any thread, on something that lives on one reactor.
pub struct Home<T> {
    remote: Remote,
    key: u64,
    resident: PhantomData<fn() -> T>,
}

impl<T> Clone for Home<T> {
    fn clone(&self) -> Self {
        Self { remote: self.remote.clone(), key: self.key, resident: PhantomData }
    }
}

impl<T: 'static> Home<T> {
    /// Lets `resident` be found from other threads until [`Home::evict`].
    pub fn settle(reactor: &Reactor, resident: Rc<T>) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let key = NEXT.fetch_add(1, Ordering::Relaxed);
        RESIDENTS.with_borrow_mut(|residents| residents.insert(key, resident as Rc<dyn Any>));
        Self { remote: reactor.remote(), key, resident: PhantomData }
    }

    /// The resident itself, on its own thread and while it is settled.
    pub fn local(&self) -> Option<Rc<T>> {
        if !self.remote.is_current() {
            return None;
        }
        resident(self.key)
    }

    /// Runs `work` with the resident on its reactor.
    ///
    /// # Errors
    /// When the reactor has shut down or the resident was evicted.
    pub async fn call<R, F>(&self, work: impl FnOnce(Rc<T>) -> F + Send + 'static) -> Result<R, ReactorGone>
    where
        F: Future<Output = R> + 'static,
        R: Send + 'static,
    {
        if let Some(resident) = self.local() {
            let way =
                Reactor::try_current().map_or(Duration::ZERO, |reactor| reactor.on_the_way(self.key, true));
            if way.is_zero() {
                return Ok(work(resident).await);
            }
            return Box::pin(self.call_from_afar(way, work)).await;
        }
        // The key alone goes there: a handle would be counted, on a line that all who call share.
        let key = self.key;
        self.remote.ask(move || resident(key).map(work)).await
    }

    /// As [`Home::call`], of a resident of the same reactor to which it takes time.
    async fn call_from_afar<R, F>(
        &self,
        way: Duration,
        work: impl FnOnce(Rc<T>) -> F,
    ) -> Result<R, ReactorGone>
    where
        F: Future<Output = R>,
    {
        let reactor = Reactor::current();
        reactor.sleep(way).await;
        let resident = self.local().ok_or(ReactorGone)?;
        let answer = work(resident).await;
        reactor.sleep(reactor.on_the_way(self.key, false)).await;
        Ok(answer)
    }

    /// Forgets the resident. Call it on the resident's own thread.
    pub fn evict(&self) {
        assert!(self.remote.is_current(), "evicted from another thread");
        let gone = RESIDENTS.with_borrow_mut(|residents| residents.remove(&self.key));
        drop(gone);
    }

    /// The reactor that the resident lives on.
    pub fn remote(&self) -> &Remote {
        &self.remote
    }
}

/// A driver with nothing to drive: sleeps on a condition variable. For reactors that only run memory drives.
pub struct ParkDriver {
    clock: Rc<dyn Clock>,
    parker: Arc<Parker>,
}

struct Parker {
    roused: Mutex<bool>,
    changed: Condvar,
}

impl ParkDriver {
    /// A driver that measures its sleep by `clock`, which must be the system's.
    pub fn new(clock: Rc<dyn Clock>) -> Rc<Self> {
        let parker = Arc::new(Parker { roused: Mutex::new(false), changed: Condvar::new() });
        Rc::new(Self { clock, parker })
    }
}

impl Driver for ParkDriver {
    fn poll(&self) -> bool {
        false
    }

    fn sleep(&self, until: Option<Instant>) {
        let length = until.map_or(Duration::from_secs(3600), |until| until.since(self.clock.now()));
        let roused = self.parker.roused.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let waited = self.parker.changed.wait_timeout_while(roused, length, |roused| !*roused);
        let (mut roused, _) = waited.unwrap_or_else(|poisoned| poisoned.into_inner());
        *roused = false;
    }

    fn rouser(&self) -> Arc<dyn Rouse> {
        self.parker.clone()
    }
}

impl Rouse for Parker {
    fn rouse(&self) {
        *self.roused.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = true;
        self.changed.notify_one();
    }
}
