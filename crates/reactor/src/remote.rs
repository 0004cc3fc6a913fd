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

use crate::call::CallFuture;
use crate::shared::{RemoteMessage, Shared};
use crate::{Clock, Driver, Instant, Reactor, WakeHandle};

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
        if self.shared.post(RemoteMessage::Job(Box::new(job))) { Ok(()) } else { Err(ReactorGone) }
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
        self.request(move || Some(work())).await
    }

    /// As [`Remote::call`], for work that may turn out not to be possible any more.
    async fn request<T, F>(&self, work: impl FnOnce() -> Option<F> + Send + 'static) -> Result<T, ReactorGone>
    where
        F: Future<Output = T> + 'static,
        T: Send + 'static,
    {
        if let Some(caller) = Reactor::current_shared() {
            return CallFuture::new(caller, &self.shared, work).await;
        }
        // Nobody takes messages on this thread.
        let (sender, receiver) = oneshot::channel();
        self.post(move || {
            if let Some(work) = work() {
                // The caller may have gone; the work is done all the same.
                poll_then_spawn(work, |answer| drop(sender.send(answer)));
            }
        })?;
        receiver.await.map_err(|_| ReactorGone)
    }
}

/// Does what can be done at once, which on memory drives is all, and leaves the rest to a task, which polls again at once: so nobody
/// has to wake the waker of here.
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

/// For keys that are numbers in turn: they are spread well as they are, once multiplied.
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
        // The golden ratio's fraction (Knuth, The Art of Computer Programming, 6.4).
        self.0 = (self.0 ^ number).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
}

/// What is settled on this thread under a key.
fn object<T: 'static>(key: u64) -> Option<Rc<T>> {
    let object = OBJECTS.with_borrow(|objects| objects.get(&key).cloned())?;
    object.downcast().ok()
}

/// Forgets everything that is settled on this thread: its reactor shuts down.
pub(crate) fn unregister_all() {
    let gone = OBJECTS.with_borrow_mut(std::mem::take);
    drop(gone);
}

/// A handle, for any thread, on something that lives on one reactor.
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
    /// Lets `object` be found from other threads until [`Handle::unregister`].
    pub fn register(reactor: &Reactor, object: Rc<T>) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let key = NEXT.fetch_add(1, Ordering::Relaxed);
        OBJECTS.with_borrow_mut(|objects| objects.insert(key, object as Rc<dyn Any>));
        Self { remote: reactor.remote(), key, object: PhantomData }
    }

    /// The object itself, on its own thread and while it is settled.
    pub fn local(&self) -> Option<Rc<T>> {
        if !self.remote.is_current() {
            return None;
        }
        object(self.key)
    }

    /// Runs `work` with the object on its reactor.
    ///
    /// # Errors
    /// When the reactor has shut down or the object was evicted.
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
        // The key alone goes there: a handle would be counted, on a line that all who call share.
        let key = self.key;
        self.remote.request(move || object(key).map(work)).await
    }

    /// As [`Handle::call`], of a object of the same reactor to which it takes time.
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

    /// Forgets the object. Call it on the object's own thread.
    pub fn unregister(&self) {
        assert!(self.remote.is_current(), "unregistered from another thread");
        let gone = OBJECTS.with_borrow_mut(|objects| objects.remove(&self.key));
        drop(gone);
    }

    /// The reactor that the object lives on.
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
    signalled: Mutex<bool>,
    changed: Condvar,
}

impl ParkDriver {
    /// A driver that measures its sleep by `clock`, which must be the system's.
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
