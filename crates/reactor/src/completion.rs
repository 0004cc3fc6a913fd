//! The future of one I/O operation.
//!
//! An operation that completes at once (a memory drive) needs no allocation; others share a small
//! cell with their completer. Dropping the future does not cancel the operation: the driver keeps
//! its memory.

use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use crate::IoError;

/// The result of an operation: the number of bytes transferred (0 if the operation has none), or an
/// error.
pub type IoResult = Result<usize, IoError>;

struct OperationCell {
    result: Cell<Option<IoResult>>,
    waker: Cell<Option<Waker>>,
}

/// A submitted operation; await it for its result.
#[must_use = "an operation's result must be checked"]
pub struct Io(IoState);

enum IoState {
    Ready(IoResult),
    Pending(Rc<OperationCell>),
    Taken,
}

/// The completing end of an operation, held by its driver. Dropping it unused completes the
/// operation as closed.
pub struct Completer(Option<Rc<OperationCell>>);

/// Returns the completing end and the future of a pending operation.
pub fn completion() -> (Completer, Io) {
    let cell = Rc::new(OperationCell { result: Cell::new(None), waker: Cell::new(None) });
    (Completer(Some(cell.clone())), Io(IoState::Pending(cell)))
}

impl Io {
    /// Returns an operation that has already ended.
    pub fn ready(result: IoResult) -> Self {
        Self(IoState::Ready(result))
    }

    /// Takes the result if the operation has ended; returns `None` after that.
    pub fn try_take(&mut self) -> Option<IoResult> {
        let result = match &self.0 {
            IoState::Ready(result) => Some(*result),
            IoState::Pending(cell) => cell.result.get(),
            IoState::Taken => None,
        };
        if result.is_some() {
            self.0 = IoState::Taken;
        }
        result
    }

    /// True while the operation is in flight.
    pub fn is_pending(&self) -> bool {
        match &self.0 {
            IoState::Pending(cell) => cell.result.get().is_none(),
            IoState::Ready(_) | IoState::Taken => false,
        }
    }

    /// True once the operation has ended and until its result is taken.
    pub fn is_done(&self) -> bool {
        match &self.0 {
            IoState::Ready(_) => true,
            IoState::Pending(cell) => cell.result.get().is_some(),
            IoState::Taken => false,
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
            IoState::Pending(cell) => cell.waker.set(Some(context.waker().clone())),
            IoState::Ready(_) | IoState::Taken => panic!("an operation was awaited again after it ended"),
        }
        Poll::Pending
    }
}

impl Completer {
    /// Ends the operation and wakes its waiter.
    pub fn complete(mut self, result: IoResult) {
        self.finish(result);
    }

    fn finish(&mut self, result: IoResult) {
        let Some(cell) = self.0.take() else { return };
        cell.result.set(Some(result));
        if let Some(waker) = cell.waker.take() {
            waker.wake();
        }
    }
}

impl Drop for Completer {
    fn drop(&mut self) {
        self.finish(Err(IoError::new(crate::IoErrorKind::Closed)));
    }
}
