//! Control of a session from other threads: stop, and abort of tasks.

use std::cell::Cell;
use std::rc::Rc;

use super::tasks::{TaskFilter, TaskTable};
use super::transfers::WriteTransfers;
use crate::Stop;

/// The controls of one session, on its reactor.
pub(super) struct SessionControl {
    /// Closes the connection.
    pub(super) stop: Stop,
    /// The reason of the close.
    pub(super) reason: Cell<Option<&'static str>>,
    pub(super) tasks: Rc<TaskTable>,
    pub(super) transfers: Rc<WriteTransfers>,
}

impl SessionControl {
    pub(super) fn new(transfers: WriteTransfers) -> Rc<Self> {
        let (stop, reason, tasks) = Default::default();
        Rc::new(Self { stop, reason, tasks, transfers: Rc::new(transfers) })
    }

    /// Closes the connection for this reason.
    pub(super) fn end(&self, reason: &'static str) {
        if self.reason.get().is_none() {
            self.reason.set(Some(reason));
        }
        self.stop.raise();
    }

    /// Ends the tasks whose data will not arrive.
    pub(super) fn abandon_transfers(&self) {
        for task in self.transfers.clear() {
            self.tasks.end(&task);
        }
    }

    /// Aborts tasks, and waits until none of them is in execution. Returns their number.
    pub(super) async fn abort(&self, filter: TaskFilter) -> usize {
        let aborted = self.tasks.abort(filter);
        for task in self.transfers.remove_aborted() {
            self.tasks.end(&task);
        }
        self.tasks.aborted(filter).await;
        aborted
    }
}
