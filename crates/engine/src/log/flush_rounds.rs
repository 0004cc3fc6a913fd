//! The rounds of flushes of a log: one at a time, shared by everyone who waits for one.

use std::cell::Cell;

use reactor::WaitList;

/// The rounds of flushes of a log.
#[derive(Default)]
pub(super) struct FlushRounds {
    running: Cell<bool>,
    ended: WaitList,
}

impl FlushRounds {
    /// Returns true while a round is in progress.
    pub(super) fn is_running(&self) -> bool {
        self.running.get()
    }

    /// Waits until no round is in progress.
    pub(super) async fn ended(&self) {
        self.ended.until(|| (!self.running.get()).then_some(())).await;
    }

    /// Begins a round.
    pub(super) fn start(&self) {
        assert!(!self.running.replace(true), "L4: rounds of flushes do not overlap");
    }

    /// Ends the round, and wakes all that wait for its end.
    pub(super) fn end(&self) {
        assert!(self.running.replace(false), "L4: a round of flushes ends that has not begun");
        self.wake_all();
    }

    /// Wakes all waits, so that they notice that the log has failed.
    pub(super) fn wake_all(&self) {
        self.ended.wake_all();
    }
}
