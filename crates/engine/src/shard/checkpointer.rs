//! The state of a shard's checkpointer: how many checkpoints have ended, and who waits for the next
//! end. Must not know: the way a checkpoint is made, and when one is due.

use std::cell::Cell;

use reactor::WaitList;

use crate::error::{ErrorKind, Result};

/// The state of a shard's checkpointer.
#[derive(Default)]
pub(super) struct Checkpointer {
    completed: Cell<u64>,
    /// Checkpoints that have completed or failed.
    ended: Cell<u64>,
    /// Checkpoints that failed for lack of space.
    refused: Cell<u64>,
    changed: WaitList,
}

impl Checkpointer {
    /// Returns the number of completed checkpoints.
    pub(super) fn completed(&self) -> u64 {
        self.completed.get()
    }

    /// Returns the number of checkpoints that have completed or failed.
    pub(super) fn ended(&self) -> u64 {
        self.ended.get()
    }

    /// Returns the number of checkpoints that failed for lack of space (S4).
    pub(super) fn refused(&self) -> u64 {
        self.refused.get()
    }

    /// Counts a checkpoint that has ended, and wakes all that wait for one.
    pub(super) fn count(&self, result: &Result<()>) {
        self.ended.set(self.ended.get() + 1);
        match result {
            Ok(()) => self.completed.set(self.completed.get() + 1),
            Err(error) if error.kind() == ErrorKind::NoSpace => self.refused.set(self.refused.get() + 1),
            Err(_) => {}
        }
        assert!(self.completed.get() + self.refused.get() <= self.ended.get(), "M3: checkpoints end once");
        self.wake();
    }

    /// Wakes all waits: a checkpoint has ended, or the state of the shard has changed.
    pub(super) fn wake(&self) {
        self.changed.wake_all();
    }

    /// Waits until a condition holds, which is checked at the end of each checkpoint and at each
    /// [`Checkpointer::wake`].
    pub(super) async fn until(&self, holds: impl Fn() -> bool) {
        self.changed.until(|| holds().then_some(())).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;

    #[test]
    fn ends_are_counted_by_their_results() {
        let checkpointer = Checkpointer::default();
        let failed = |kind| Err(Error::new(kind, "no checkpoint"));
        for result in [Ok(()), failed(ErrorKind::NoSpace), failed(ErrorKind::Closed), Ok(())] {
            checkpointer.count(&result);
        }
        let counts = (checkpointer.completed(), checkpointer.refused(), checkpointer.ended());
        assert_eq!(counts, (2, 1, 4));
    }
}
