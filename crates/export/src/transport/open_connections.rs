//! The open connections of a server, counted.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use reactor::{Reactor, WaitList};

use crate::select::select;

/// Time for closing a connection whose last replies have been sent.
const CLOSE: Duration = Duration::from_secs(2);

/// The number of open connections of one server.
#[derive(Default)]
pub(crate) struct OpenConnections {
    count: Cell<usize>,
    closed: WaitList,
}

/// An open connection, until this is dropped.
pub(crate) struct OpenConnection(Rc<OpenConnections>);

impl OpenConnections {
    /// Counts a connection.
    pub(crate) fn open(self: &Rc<Self>) -> OpenConnection {
        self.count.set(self.count.get() + 1);
        OpenConnection(self.clone())
    }

    /// Returns the number of connections.
    pub(crate) fn count(&self) -> usize {
        self.count.get()
    }

    /// Waits until all connections are closed, which complete their requests within `drain`.
    /// Returns the number of connections with requests that the volume has not completed in time.
    pub(crate) async fn closed(&self, drain: Duration) -> usize {
        let all_closed = self.closed.until(|| (self.count.get() == 0).then_some(()));
        select(all_closed, Reactor::current().sleep(drain + CLOSE)).await;
        self.count.get()
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.0.count.set(self.0.count.get() - 1);
        self.0.closed.wake_all();
    }
}
