//! Asynchronous operations on an image, as futures.
//!
//! `librbd` completes an operation on one of its threads, which wakes the task: the reactor's own
//! eventfd ends its sleep. Always true: the memory of an operation stays allocated until `librbd`
//! has completed it, even if its future is dropped.
//!
//! Contains unsafe code: completions of `librbd`, whose argument is a counted reference.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::future::Future;
use std::pin::Pin;
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use reactor::Span;

use crate::library::{CompletionHandle, RbdLibrary};

/// An operation in flight.
struct Operation {
    library: &'static RbdLibrary,
    state: Mutex<OperationState>,
}

struct OperationState {
    result: Option<i64>,
    waker: Option<Waker>,
    /// Taken by the future at the end, so that the memory is freed on the thread of its reactor.
    memory: Option<Span>,
}

/// The result of an operation: bytes, or a negative error number.
#[must_use = "an operation's result must be checked"]
pub(super) struct PendingOperation(Arc<Operation>);

/// Begins an operation. `begin` passes the completion to the library, which calls it exactly once
/// unless it returns an error.
pub(super) fn begin(
    library: &'static RbdLibrary,
    memory: Option<Span>,
    begin: impl FnOnce(CompletionHandle) -> c_int,
) -> PendingOperation {
    let state = Mutex::new(OperationState { result: None, waker: None, memory });
    let operation = Arc::new(Operation { library, state });
    let argument = Arc::into_raw(operation.clone());
    let mut completion = ptr::null_mut();
    // SAFETY: the argument is a counted reference that `completed` or the error path releases.
    let code = unsafe { (library.completion)(argument.cast_mut().cast(), completed, &raw mut completion) };
    let code = if code < 0 { code } else { begin(completion) };
    if code < 0 {
        operation.lock().result = Some(code.into());
        // SAFETY: the library refused the operation and calls nothing: the reference and the
        // completion, if there is one, belong to this function.
        unsafe {
            drop(Arc::from_raw(argument));
            if !completion.is_null() {
                (library.completion_release)(completion);
            }
        }
    }
    PendingOperation(operation)
}

/// Ends an operation, on a thread of the library.
unsafe extern "C" fn completed(completion: CompletionHandle, argument: *mut c_void) {
    // SAFETY: the argument is the reference that `begin` counted, passed back once.
    let operation = unsafe { Arc::from_raw(argument.cast_const().cast::<Operation>()) };
    // SAFETY: the completion has ended, and is released only here.
    let result = unsafe {
        let result = (operation.library.completion_result)(completion);
        (operation.library.completion_release)(completion);
        result
    };
    let waker = {
        let mut state = operation.lock();
        state.result = Some(i64::try_from(result).unwrap_or(i64::MIN));
        state.waker.take()
    };
    if let Some(waker) = waker {
        waker.wake();
    }
}

impl Operation {
    fn lock(&self) -> MutexGuard<'_, OperationState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Future for PendingOperation {
    type Output = i64;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<i64> {
        let mut state = self.0.lock();
        if let Some(result) = state.result {
            let memory = state.memory.take();
            drop(state);
            drop(memory);
            return Poll::Ready(result);
        }
        let before = state.waker.replace(context.waker().clone());
        drop(state);
        drop(before);
        Poll::Pending
    }
}
