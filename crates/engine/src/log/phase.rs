//! The life of a log's commit task.

use std::cell::Cell;

use reactor::WaitList;

/// The life of a log's commit task: it runs, is asked to stop, and ends.
#[derive(Default)]
pub(super) struct Phase {
    stage: Cell<Stage>,
    ended: WaitList,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    #[default]
    Running,
    /// It ends once the queues are empty, or the log has failed.
    Stopping,
    Ended,
}

impl Phase {
    /// Returns true once the task was asked to stop.
    pub(super) fn is_stopping(&self) -> bool {
        self.stage.get() != Stage::Running
    }

    /// Returns true once the task has ended.
    pub(super) fn has_ended(&self) -> bool {
        self.stage.get() == Stage::Ended
    }

    /// Asks the task to stop.
    pub(super) fn stop(&self) {
        if self.stage.get() == Stage::Running {
            self.stage.set(Stage::Stopping);
        }
    }

    /// Waits until the task has ended.
    pub(super) async fn ended(&self) {
        self.ended.until(|| self.has_ended().then_some(())).await;
    }

    /// Notes that the task has ended.
    pub(super) fn end(&self) {
        let before = self.stage.replace(Stage::Ended);
        assert_eq!(before, Stage::Stopping, "the commit task ends once, when it is asked to");
        self.ended.wake_all();
    }
}
