//! Waiting for the sub-operations of a request.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use reactor::Notify;

use crate::VolumeError;

/// A group of sub-operations that are awaited together.
#[derive(Default)]
pub(crate) struct CompletionGroup {
    left: Cell<usize>,
    failure: RefCell<Option<VolumeError>>,
    ended: Notify,
}

/// A sub-operation of a [`CompletionGroup`].
pub(crate) struct CompletionGuard(Rc<CompletionGroup>);

impl CompletionGroup {
    /// Adds a sub-operation.
    pub(crate) fn part(self: &Rc<Self>) -> CompletionGuard {
        self.left.set(self.left.get() + 1);
        CompletionGuard(self.clone())
    }

    /// Waits until every sub-operation has completed. Returns the first failure.
    pub(crate) async fn ended(&self) -> Result<(), VolumeError> {
        while self.left.get() > 0 {
            self.ended.notified().await;
        }
        self.failure.take().map_or(Ok(()), Err)
    }
}

impl CompletionGuard {
    pub(crate) fn end(self, result: Result<(), VolumeError>) {
        let Self(group) = self;
        if let Err(error) = result {
            group.failure.borrow_mut().get_or_insert(error);
        }
        group.left.set(group.left.get() - 1);
        if group.left.get() == 0 {
            group.ended.notify();
        }
    }
}

#[cfg(test)]
#[path = "completion_tests.rs"]
mod tests;
