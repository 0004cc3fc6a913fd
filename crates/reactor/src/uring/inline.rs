//! Transfers of memory behind block devices, executed by the reactor's thread itself.
//!
//! The drivers of these devices copy on the submitting thread and support no request that must not
//! block, so io_uring passes each request to a kernel thread, whose wake-up takes longer than the
//! copy. Transfers that would keep the reactor's thread longer go through the ring.
//!
//! Invariant: an operation is executed in a later poll than its submission, in order.

use std::cell::{Cell, RefCell};
use std::os::fd::AsFd;

use crate::Completer;
use crate::operation::{Operation, Step};
use crate::perform::perform;
use crate::target::Target;

/// Maximum bytes of a transfer that the reactor's thread executes.
const INLINE_BYTES: usize = 128 << 10;

/// True for operations that the reactor's thread executes.
pub(super) fn is_inline(target: &Target, operation: &Operation) -> bool {
    let Target::File(bound) = target else { return false };
    let Operation::Transfer(transfer) = operation else { return false };
    bound.is_synchronous && transfer.cursor.total() <= INLINE_BYTES
}

struct InlineOperation {
    target: Target,
    operation: Operation,
    completer: Completer,
}

/// Operations that wait for the next poll.
#[derive(Default)]
pub(super) struct InlineQueue {
    waiting: RefCell<Vec<InlineOperation>>,
    /// The storage of the previous batch, for reuse.
    spare: Cell<Vec<InlineOperation>>,
}

impl InlineQueue {
    pub(super) fn push(&self, target: Target, operation: Operation, completer: Completer) {
        self.waiting.borrow_mut().push(InlineOperation { target, operation, completer });
    }

    /// Executes the waiting operations. True if there were any.
    pub(super) fn execute(&self) -> bool {
        if self.waiting.borrow().is_empty() {
            return false;
        }
        let mut batch = self.waiting.replace(self.spare.take());
        for InlineOperation { target, mut operation, completer } in batch.drain(..) {
            let result = loop {
                let answer = perform(target.as_fd(), &operation);
                if let Step::Done(result) = operation.advance(answer) {
                    break result;
                }
            };
            // Dropped before the wake-up: the woken task may access its buffer at once.
            drop((operation, target));
            completer.complete(result);
        }
        self.spare.set(batch);
        true
    }
}

#[cfg(test)]
#[path = "inline_tests.rs"]
mod tests;
