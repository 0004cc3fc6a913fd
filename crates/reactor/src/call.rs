//! A call of one reactor to another: the job, its answer and who waits for it, in one piece of memory.
//!
//! The piece is allocated and freed by the thread that calls. It goes there and back as it is, and is touched by one of the two at a time: memory that one
//! thread frees for another, and lines that both write, cost more than the call.
//!
//! Always true: whoever waits is woken, whether the work was done or dropped on the way, there or here; nothing of the caller's or of the work's is run or
//! dropped under the lock.

use std::cell::RefCell;
use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};

use crate::remote::{ReactorGone, begin};
use crate::shared::{Message, Shared};

/// What waits for the answer of a call: sends it when it is polled first.
pub(crate) struct Calling<'a, W, T> {
    call: Arc<Call<W, T>>,
    /// Where it goes, until it has gone.
    there: Option<&'a Shared>,
}

/// See the module.
struct Call<W, T> {
    caller: Arc<Shared>,
    state: Mutex<State<W, T>>,
}

struct State<W, T> {
    progress: Progress<W, T>,
    waiting: Option<Waker>,
}

enum Progress<W, T> {
    Asked(W),
    Begun,
    Answered(T),
    Dropped,
}

/// A call on its way to where it is done.
pub(crate) struct Errand(Option<Arc<dyn Ask>>);

/// A call on its way back. Dropped, it wakes who waits.
pub(crate) struct Answer(Arc<dyn Wait>);

/// A call that has been begun.
struct Due<W: Send + 'static, T: Send + 'static>(Option<Arc<Call<W, T>>>);

trait Ask: Wait {
    fn begin(self: Arc<Self>);
}

trait Wait: Send + Sync {
    /// There is no answer.
    fn give_up(self: Arc<Self>);
    fn wake(&self);
}

impl<'a, W, F, T> Calling<'a, W, T>
where
    W: FnOnce() -> Option<F> + Send + 'static,
    F: Future<Output = T> + 'static,
    T: Send + 'static,
{
    /// `work` is done there; it gives the future that gives the answer, if what it is about is still there.
    pub(crate) fn new(caller: Arc<Shared>, there: &'a Shared, work: W) -> Self {
        let state = State { progress: Progress::Asked(work), waiting: None };
        Self { call: Arc::new(Call { caller, state: Mutex::new(state) }), there: Some(there) }
    }
}

impl<W, F, T> Future for Calling<'_, W, T>
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
        match self.there.take() {
            Some(there) if !there.post(Message::Call(Errand(Some(self.call.clone())))) => {
                Poll::Ready(Err(ReactorGone))
            }
            _ => Poll::Pending,
        }
    }
}

impl<W, T> Call<W, T> {
    fn state(&self) -> MutexGuard<'_, State<W, T>> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn proceed(&self, progress: Progress<W, T>) -> Progress<W, T> {
        mem::replace(&mut self.state().progress, progress)
    }

    /// The answer, or that there will be none; `None` until then, and `waker` will be woken.
    fn wait(&self, waker: &Waker) -> Option<Result<T, ReactorGone>> {
        let mut state = self.state();
        match mem::replace(&mut state.progress, Progress::Dropped) {
            Progress::Answered(answer) => Some(Ok(answer)),
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

impl<W, F, T> Ask for Call<W, T>
where
    W: FnOnce() -> Option<F> + Send + 'static,
    F: Future<Output = T> + 'static,
    T: Send + 'static,
{
    fn begin(self: Arc<Self>) {
        let progress = self.proceed(Progress::Begun);
        let due = Due(Some(self));
        if let Progress::Asked(work) = progress
            && let Some(work) = work()
        {
            begin(work, |answer| due.answer(answer));
        }
    }
}

impl<W: Send + 'static, T: Send + 'static> Wait for Call<W, T> {
    fn give_up(self: Arc<Self>) {
        drop(Due(Some(self)));
    }

    fn wake(&self) {
        let waiting = self.state().waiting.take();
        if let Some(waiting) = waiting {
            waiting.wake();
        }
    }
}

impl Errand {
    /// Does it, on the reactor that was called.
    pub(crate) fn begin(mut self) {
        if let Some(call) = self.0.take() {
            call.begin();
        }
    }
}

impl Drop for Errand {
    fn drop(&mut self) {
        if let Some(call) = self.0.take() {
            call.give_up();
        }
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        self.0.wake();
    }
}

impl<W: Send + 'static, T: Send + 'static> Due<W, T> {
    fn answer(mut self, answer: T) {
        self.end(Progress::Answered(answer));
    }

    fn end(&mut self, progress: Progress<W, T>) {
        if let Some(call) = self.0.take() {
            drop(call.proceed(progress));
            let caller = counted_here(&call.caller);
            caller.0.post(Message::Answer(Answer(call)));
        }
    }
}

impl<W: Send + 'static, T: Send + 'static> Drop for Due<W, T> {
    fn drop(&mut self) {
        self.end(Progress::Dropped);
    }
}

/// A caller, counted on this thread: its own handle may be gone as soon as the answer is there, and counting that one is writing to a line of the caller's.
struct Caller(Arc<Shared>);

thread_local! {
    /// Those who have called this thread.
    static CALLERS: RefCell<Vec<Rc<Caller>>> = const { RefCell::new(Vec::new()) };
}

fn counted_here(caller: &Arc<Shared>) -> Rc<Caller> {
    let counted = CALLERS.try_with(|callers| {
        let mut callers = callers.borrow_mut();
        if let Some(known) = callers.iter().find(|known| Arc::ptr_eq(&known.0, caller)) {
            return known.clone();
        }
        callers.retain(|known| !known.0.is_closed());
        let new = Rc::new(Caller(caller.clone()));
        callers.push(new.clone());
        new
    });
    // The thread is ending.
    counted.unwrap_or_else(|_| Rc::new(Caller(caller.clone())))
}

#[cfg(test)]
#[path = "call_tests.rs"]
mod tests;
