//! A call from one reactor to another. The request, its reply and the caller's waker share one
//! allocation.
//!
//! The calling thread allocates and frees this memory, and only one side touches it at a time:
//! memory freed by another thread, and cache lines written by both, would cost more than the call.
//!
//! Invariants: the caller is woken whether the work completed or was dropped on either side; no
//! code of the caller or of the work runs, or is dropped, under the lock.

use std::cell::RefCell;
use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};

use crate::message::{CallEnd, Callee, RemoteMessage, ReplyMsg, RequestMsg};
use crate::shared::Shared;
use crate::{BoxedTask, Reactor};

/// The error of a call to a reactor that has shut down.
#[derive(Debug, thiserror::Error, PartialEq, Eq, Clone, Copy)]
#[error("the reactor has shut down")]
pub struct ReactorGone;

/// The future of a call. Sends the request when it is first polled.
pub(crate) struct CallFuture<'a, W, T> {
    call: Arc<Call<W, T>>,
    /// The reactor to call; `None` once the request is sent.
    callee: Option<&'a Shared>,
}

/// The shared memory of a call; see the module documentation.
struct Call<W, T> {
    caller: Arc<Shared>,
    state: Mutex<CallState<W, T>>,
}

struct CallState<W, T> {
    progress: Progress<W, T>,
    waiting: Option<Waker>,
}

enum Progress<W, T> {
    Requested(W),
    Running,
    Replied(T),
    Dropped,
}

/// A call in progress. Dropping it fails the call.
struct RunningCall<W: Send + 'static, T: Send + 'static>(Option<Arc<Call<W, T>>>);

impl<'a, W, F, T> CallFuture<'a, W, T>
where
    W: FnOnce() -> Option<F> + Send + 'static,
    F: Future<Output = T> + 'static,
    T: Send + 'static,
{
    /// Returns a call that runs `work` on `callee`. `work` returns the future of the reply, or
    /// `None` if its object no longer exists.
    pub(crate) fn new(caller: Arc<Shared>, callee: &'a Shared, work: W) -> Self {
        let state = CallState { progress: Progress::Requested(work), waiting: None };
        Self { call: Arc::new(Call { caller, state: Mutex::new(state) }), callee: Some(callee) }
    }
}

impl<W, F, T> Future for CallFuture<'_, W, T>
where
    W: FnOnce() -> Option<F> + Send + 'static,
    F: Future<Output = T> + 'static,
    T: Send + 'static,
{
    type Output = Result<T, ReactorGone>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if let Some(result) = self.call.poll_reply(context.waker()) {
            return Poll::Ready(result);
        }
        // Sent after the waker is stored: this thread does not touch the call again until the reply
        // is back.
        match self.callee.take() {
            Some(callee) if !callee.post(RemoteMessage::Call(RequestMsg(Some(self.call.clone())))) => {
                Poll::Ready(Err(ReactorGone))
            }
            _ => Poll::Pending,
        }
    }
}

impl<W, T> Call<W, T> {
    fn state(&self) -> MutexGuard<'_, CallState<W, T>> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn replace_progress(&self, progress: Progress<W, T>) -> Progress<W, T> {
        mem::replace(&mut self.state().progress, progress)
    }

    /// Returns the reply, or [`ReactorGone`] if there will be none. Returns `None` while the call
    /// is pending; `waker` is woken when it ends.
    fn poll_reply(&self, waker: &Waker) -> Option<Result<T, ReactorGone>> {
        let mut state = self.state();
        match mem::replace(&mut state.progress, Progress::Dropped) {
            Progress::Replied(answer) => Some(Ok(answer)),
            Progress::Dropped => Some(Err(ReactorGone)),
            unanswered => {
                state.progress = unanswered;
                let before = state.waiting.replace(waker.clone());
                drop(state);
                drop(before);
                None
            }
        }
    }
}

impl<W, F, T> Callee for Call<W, T>
where
    W: FnOnce() -> Option<F> + Send + 'static,
    F: Future<Output = T> + 'static,
    T: Send + 'static,
{
    fn run(self: Arc<Self>) {
        let progress = self.replace_progress(Progress::Running);
        let running = RunningCall(Some(self));
        if let Progress::Requested(work) = progress
            && let Some(work) = work()
        {
            poll_then_spawn(work, |answer| running.reply(answer));
        }
    }
}

impl<W: Send + 'static, T: Send + 'static> CallEnd for Call<W, T> {
    fn fail(self: Arc<Self>) {
        drop(RunningCall(Some(self)));
    }

    fn wake(&self) {
        let waiting = self.state().waiting.take();
        if let Some(waiting) = waiting {
            waiting.wake();
        }
    }
}

impl<W: Send + 'static, T: Send + 'static> RunningCall<W, T> {
    fn reply(mut self, answer: T) {
        self.finish(Progress::Replied(answer));
    }

    fn finish(&mut self, progress: Progress<W, T>) {
        if let Some(call) = self.0.take() {
            drop(call.replace_progress(progress));
            let caller = local_caller_ref(&call.caller);
            caller.0.post(RemoteMessage::Reply(ReplyMsg(call)));
        }
    }
}

impl<W: Send + 'static, T: Send + 'static> Drop for RunningCall<W, T> {
    fn drop(&mut self) {
        self.finish(Progress::Dropped);
    }
}

/// Polls `work` once, which suffices on memory drives, and spawns a task for the rest. The task
/// polls again at once, so the no-op waker of the first poll loses no wake-up.
pub(crate) fn poll_then_spawn<T: 'static>(
    work: impl Future<Output = T> + 'static,
    then: impl FnOnce(T) + 'static,
) {
    let mut work: BoxedTask<()> = Box::pin(async move { then(work.await) });
    if work.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending() {
        Reactor::current().spawn_boxed(work).detach();
    }
}

/// A reference to the calling reactor, counted on this thread. The call's own reference may be gone
/// as soon as the reply is posted, and incrementing its count would write to a cache line of the
/// caller.
struct CallerRef(Arc<Shared>);

thread_local! {
    /// The reactors that have called this thread.
    static CALLERS: RefCell<Vec<Rc<CallerRef>>> = const { RefCell::new(Vec::new()) };
}

fn local_caller_ref(caller: &Arc<Shared>) -> Rc<CallerRef> {
    let found = CALLERS.try_with(|callers| {
        let mut callers = callers.borrow_mut();
        if let Some(existing) = callers.iter().find(|existing| Arc::ptr_eq(&existing.0, caller)) {
            return existing.clone();
        }
        callers.retain(|existing| !existing.0.is_closed());
        let new = Rc::new(CallerRef(caller.clone()));
        callers.push(new.clone());
        new
    });
    // The thread is exiting, and its table is gone.
    found.unwrap_or_else(|_| Rc::new(CallerRef(caller.clone())))
}

#[cfg(test)]
#[path = "call_tests.rs"]
mod tests;
