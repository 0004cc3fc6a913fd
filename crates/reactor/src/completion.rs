//! The future of one I/O operation.
//!
//! An operation that is done at once (a memory drive) costs no allocation; one that is not shares a small cell with
//! whoever completes it. Dropping the future does not cancel the operation: the driver keeps the memory it uses.

use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use crate::IoError;

/// What an operation ends with: the number of bytes transferred (0 where that means nothing), or an error.
pub type IoResult = Result<usize, IoError>;

struct Shared {
    result: Cell<Option<IoResult>>,
    waker: Cell<Option<Waker>>,
}

/// A submitted operation; await it for its result.
#[must_use = "an operation's result must be looked at"]
pub struct Io(State);

enum State {
    Ready(IoResult),
    Pending(Rc<Shared>),
    Taken,
}

/// The end of an operation that its driver holds. Dropping it unused completes the operation as closed.
pub struct Completer(Option<Rc<Shared>>);

/// A pending operation and the end that completes it.
pub fn completion() -> (Completer, Io) {
    let shared = Rc::new(Shared { result: Cell::new(None), waker: Cell::new(None) });
    (Completer(Some(shared.clone())), Io(State::Pending(shared)))
}

impl Io {
    /// An operation that has ended already.
    pub fn ready(result: IoResult) -> Self {
        Self(State::Ready(result))
    }

    /// The result, if the operation has ended; a second call after that gives `None`.
    pub fn try_take(&mut self) -> Option<IoResult> {
        let result = match &self.0 {
            State::Ready(result) => Some(*result),
            State::Pending(shared) => shared.result.get(),
            State::Taken => None,
        };
        if result.is_some() {
            self.0 = State::Taken;
        }
        result
    }

    /// True while the operation has not ended.
    pub fn is_pending(&self) -> bool {
        match &self.0 {
            State::Pending(shared) => shared.result.get().is_none(),
            State::Ready(_) | State::Taken => false,
        }
    }

    /// True once the operation has ended and its result has not been taken.
    pub fn is_done(&self) -> bool {
        match &self.0 {
            State::Ready(_) => true,
            State::Pending(shared) => shared.result.get().is_some(),
            State::Taken => false,
        }
    }
}

impl Future for Io {
    type Output = IoResult;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<IoResult> {
        if let Some(result) = self.try_take() {
            return Poll::Ready(result);
        }
        match &self.0 {
            State::Pending(shared) => shared.waker.set(Some(context.waker().clone())),
            State::Ready(_) | State::Taken => panic!("an operation was awaited again after it ended"),
        }
        Poll::Pending
    }
}

impl Completer {
    /// Ends the operation and wakes whoever waits for it.
    pub fn complete(mut self, result: IoResult) {
        self.finish(result);
    }

    fn finish(&mut self, result: IoResult) {
        let Some(shared) = self.0.take() else { return };
        shared.result.set(Some(result));
        if let Some(waker) = shared.waker.take() {
            waker.wake();
        }
    }
}

impl Drop for Completer {
    fn drop(&mut self) {
        self.finish(Err(IoError::new(crate::IoErrorKind::Closed)));
    }
}
