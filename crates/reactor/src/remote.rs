//! Calls between reactors: run work on another reactor and return its result.
//!
//! Owns the handles that may cross threads. Invariants: only work running on a reactor touches the
//! objects of that reactor; work for a reactor that has shut down fails and is never lost silently.

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

use crate::call::CallFuture;
use crate::shared::{RemoteMessage, Shared};
use crate::{Clock, Driver, Instant, Reactor, WakeHandle};

/// A handle to the reactor of another thread.
#[derive(Clone)]
pub struct Remote {
    shared: Arc<Shared>,
}

/// The error of a call to a reactor that has shut down.
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

    /// True if both handles refer to the same reactor.
    pub fn is_same(&self, other: &Remote) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }

    /// Queues `job` to run on the reactor.
    ///
    /// # Errors
    /// If the reactor has shut down; the job has been dropped.
    pub fn post(&self, job: impl FnOnce() + Send + 'static) -> Result<(), ReactorGone> {
        if self.shared.post(RemoteMessage::Job(Box::new(job))) { Ok(()) } else { Err(ReactorGone) }
    }

    /// Runs `work` on the reactor and returns its result, from any thread and any executor. Work
    /// that cannot complete at once continues as a task.
    ///
    /// # Errors
    /// If the reactor shuts down before the work completes.
    pub async fn call<T, F>(&self, work: impl FnOnce() -> F + Send + 'static) -> Result<T, ReactorGone>
    where
        F: Future<Output = T> + 'static,
        T: Send + 'static,
    {
        self.request(move || Some(work())).await
    }

    /// Like [`Remote::call`], for work on an object that may no longer exist.
    async fn request<T, F>(&self, work: impl FnOnce() -> Option<F> + Send + 'static) -> Result<T, ReactorGone>
    where
        F: Future<Output = T> + 'static,
        T: Send + 'static,
    {
        if let Some(caller) = Reactor::current_shared() {
            return CallFuture::new(caller, &self.shared, work).await;
        }
        // No reactor runs on this thread to receive the reply.
        let (sender, receiver) = oneshot::channel();
        self.post(move || {
            if let Some(work) = work() {
                // The work completes even if the caller has given up.
                poll_then_spawn(work, |answer| drop(sender.send(answer)));
            }
        })?;
        receiver.await.map_err(|_| ReactorGone)
    }
}

/// Polls `work` once, which suffices on memory drives, and spawns a task for the rest. The task
/// polls again at once, so the no-op waker of the first poll loses no wake-up.
pub(crate) fn poll_then_spawn<T: 'static>(
    work: impl Future<Output = T> + 'static,
    then: impl FnOnce(T) + 'static,
) {
    let mut work = Box::pin(async move { then(work.await) });
    if work.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending() {
        Reactor::current().spawn(work).detach();
    }
}

thread_local! {
    static OBJECTS: RefCell<HashMap<u64, Rc<dyn Any>, BuildHasherDefault<KeyHasher>>> = RefCell::default();
}

/// A hasher for sequential keys: one multiplication spreads them well.
#[derive(Default)]
struct KeyHasher(u64);

impl Hasher for KeyHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, number: u64) {
        // The fractional part of the golden ratio (Knuth, The Art of Computer Programming, 6.4).
        self.0 = (self.0 ^ number).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
}

/// Returns the object registered on this thread under `key`.
fn object<T: 'static>(key: u64) -> Option<Rc<T>> {
    let object = OBJECTS.with_borrow(|objects| objects.get(&key).cloned())?;
    object.downcast().ok()
}

/// Unregisters every object of this thread. Called when its reactor shuts down.
pub(crate) fn unregister_all() {
    let gone = OBJECTS.with_borrow_mut(std::mem::take);
    drop(gone);
}

/// A handle, for any thread, to an object of one reactor.
pub struct Handle<T> {
    remote: Remote,
    key: u64,
    object: PhantomData<fn() -> T>,
}

impl<T> Clone for Handle<T> {
    fn clone(&self) -> Self {
        Self { remote: self.remote.clone(), key: self.key, object: PhantomData }
    }
}

impl<T: 'static> Handle<T> {
    /// Registers `object` so that other threads can call it until [`Handle::unregister`].
    pub fn register(reactor: &Reactor, object: Rc<T>) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let key = NEXT.fetch_add(1, Ordering::Relaxed);
        OBJECTS.with_borrow_mut(|objects| objects.insert(key, object as Rc<dyn Any>));
        Self { remote: reactor.remote(), key, object: PhantomData }
    }

    /// Returns the object on its own thread, while it is registered.
    pub fn local(&self) -> Option<Rc<T>> {
        if !self.remote.is_current() {
            return None;
        }
        object(self.key)
    }

    /// Runs `work` with the object on its reactor.
    ///
    /// # Errors
    /// If the reactor has shut down or the object is not registered.
    pub async fn call<R, F>(&self, work: impl FnOnce(Rc<T>) -> F + Send + 'static) -> Result<R, ReactorGone>
    where
        F: Future<Output = R> + 'static,
        R: Send + 'static,
    {
        if let Some(object) = self.local() {
            let delay = Reactor::try_current()
                .map_or(Duration::ZERO, |reactor| reactor.message_delay(self.key, true));
            if delay.is_zero() {
                return Ok(work(object).await);
            }
            return Box::pin(self.call_delayed(delay, work)).await;
        }
        // Sends the key, not a clone of the handle: its reference count is on a cache line that all
        // callers share.
        let key = self.key;
        self.remote.request(move || object(key).map(work)).await
    }

    /// Like [`Handle::call`], to an object of the same reactor with a simulated message delay.
    async fn call_delayed<R, F>(
        &self,
        delay: Duration,
        work: impl FnOnce(Rc<T>) -> F,
    ) -> Result<R, ReactorGone>
    where
        F: Future<Output = R>,
    {
        let reactor = Reactor::current();
        reactor.sleep(delay).await;
        let object = self.local().ok_or(ReactorGone)?;
        let answer = work(object).await;
        reactor.sleep(reactor.message_delay(self.key, false)).await;
        Ok(answer)
    }

    /// Unregisters the object.
    pub fn unregister(&self) {
        assert!(self.remote.is_current(), "unregistered from another thread");
        let gone = OBJECTS.with_borrow_mut(|objects| objects.remove(&self.key));
        drop(gone);
    }

    /// Returns the reactor of the object.
    pub fn remote(&self) -> &Remote {
        &self.remote
    }
}

/// A driver without I/O that sleeps on a condition variable, for reactors that only use memory
/// drives.
pub struct ParkDriver {
    clock: Rc<dyn Clock>,
    parker: Arc<Parker>,
}

struct Parker {
    signalled: Mutex<bool>,
    changed: Condvar,
}

impl ParkDriver {
    /// Returns a driver that measures its sleep by `clock`, which must be the system's.
    pub fn new(clock: Rc<dyn Clock>) -> Rc<Self> {
        let parker = Arc::new(Parker { signalled: Mutex::new(false), changed: Condvar::new() });
        Rc::new(Self { clock, parker })
    }
}

impl Driver for ParkDriver {
    fn poll(&self) -> bool {
        false
    }

    fn sleep(&self, until: Option<Instant>) {
        let length = until.map_or(Duration::from_secs(3600), |until| until.since(self.clock.now()));
        let signalled = self.parker.signalled.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let waited = self.parker.changed.wait_timeout_while(signalled, length, |signalled| !*signalled);
        let (mut signalled, _) = waited.unwrap_or_else(|poisoned| poisoned.into_inner());
        *signalled = false;
    }

    fn wake_handle(&self) -> Arc<dyn WakeHandle> {
        self.parker.clone()
    }
}

impl WakeHandle for Parker {
    fn wake(&self) {
        *self.signalled.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = true;
        self.changed.notify_one();
    }
}
