//! Calls between reactors: run work on another reactor and return its result.
//!
//! Owns the handles that may cross threads. Invariants: only work running on a reactor touches the
//! objects of that reactor; work for a reactor that has shut down fails and is never lost silently.

use std::future::Future;
use std::marker::PhantomData;
use std::rc::Rc;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use futures_channel::oneshot;

use crate::call::{CallFuture, ReactorGone, poll_then_spawn};
use crate::message::RemoteMessage;
use crate::shared::Shared;
use crate::{Clock, Driver, Instant, Reactor, WakeHandle, objects};

/// A handle to the reactor of another thread.
#[derive(Clone)]
pub struct Remote {
    shared: Arc<Shared>,
}

impl Reactor {
    /// Returns a handle for other threads.
    pub fn remote(&self) -> Remote {
        Remote { shared: self.shared().clone() }
    }
}

impl Remote {
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
        Self { remote: reactor.remote(), key: objects::register(object), object: PhantomData }
    }

    /// Returns the object on its own thread, while it is registered.
    pub fn local(&self) -> Option<Rc<T>> {
        if !self.remote.is_current() {
            return None;
        }
        objects::object(self.key)
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
        self.remote.request(move || objects::object(key).map(work)).await
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
        objects::unregister(self.key);
    }

    /// True if both handles name the same object.
    pub fn is_same(&self, other: &Self) -> bool {
        self.key == other.key
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
