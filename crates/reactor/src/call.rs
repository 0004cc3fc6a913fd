//! A call of one reactor to another: the job, its answer and who waits for it, in one piece of memory.
//!
//! The piece is allocated and freed by the thread that calls. It goes callee and back as it is, and is touched by one of the two at a time: memory that one
//! thread frees for another, and lines that both write, cost more than the call.
//!
//! Always true: whoever waits is woken, whether the work was done or dropped on the way, callee or here; nothing of the caller's or of the work's is run or
//! dropped under the lock.

use std::cell::RefCell;
use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};

use crate::remote::{ReactorGone, poll_then_spawn};
use crate::shared::{RemoteMessage, Shared};

/// What waits for the answer of a call: sends it when it is polled first.
pub(crate) struct CallFuture<'a, W, T> {
    call: Arc<Call<W, T>>,
    /// Where it goes, until it has gone.
    callee: Option<&'a Shared>,
}

/// See the module.
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

/// A call on its way to where it is done.
pub(crate) struct RequestMsg(Option<Arc<dyn Callee>>);

/// A call on its way back. Dropped, it wakes who waits.
pub(crate) struct ReplyMsg(Arc<dyn CallEnd>);

/// A call that has been begun.
struct RunningCall<W: Send + 'static, T: Send + 'static>(Option<Arc<Call<W, T>>>);

trait Callee: CallEnd {
    fn run(self: Arc<Self>);
}

trait CallEnd: Send + Sync {
    /// There is no answer.
    fn fail(self: Arc<Self>);
    fn wake(&self);
}

impl<'a, W, F, T> CallFuture<'a, W, T>
where
    W: FnOnce() -> Option<F> + Send + 'static,
    F: Future<Output = T> + 'static,
    T: Send + 'static,
{
    /// `work` is done callee; it gives the future that gives the answer, if what it is about is still callee.
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
        if let Some(end) = self.call.wait(context.waker()) {
            return Poll::Ready(end);
        }
        // Sent once the waker is in it, so that nothing of it has to be touched here before it is back.
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

    /// The answer, or that callee will be none; `None` until then, and `waker` will be woken.
    fn wait(&self, waker: &Waker) -> Option<Result<T, ReactorGone>> {
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

impl RequestMsg {
    /// Does it, on the reactor that was called.
    pub(crate) fn run(mut self) {
        if let Some(call) = self.0.take() {
            call.run();
        }
    }
}

impl Drop for RequestMsg {
    fn drop(&mut self) {
        if let Some(call) = self.0.take() {
            call.fail();
        }
    }
}

impl Drop for ReplyMsg {
    fn drop(&mut self) {
        self.0.wake();
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

/// A caller, counted on this thread: its own handle may be gone as soon as the answer is callee, and counting that one is writing to a line of the caller's.
struct CallerRef(Arc<Shared>);

thread_local! {
    /// Those who have called this thread.
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
    // The thread is ending.
    found.unwrap_or_else(|_| Rc::new(CallerRef(caller.clone())))
}

#[cfg(test)]
#[path = "call_tests.rs"]
mod tests;
