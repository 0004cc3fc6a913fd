//! Control of a connected queue from other threads: stop, and asynchronous events.
//!
//! Always true: a request for an event is completed once; events that wait for a request are
//! limited, because equal ones are merged.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, VecDeque};
use std::rc::{Rc, Weak};
use std::time::Duration;

use reactor::{Handle, Notify, Reactor, Stream};

use super::deferred::DeferredCommands;
use super::limits::EVENT_REQUESTS;
use crate::Stop;
use crate::context::call_object;

/// An event that a controller reports to its host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum NvmeEvent {
    /// A namespace was added, removed or resized.
    Namespace,
    /// The subsystems that discovery lists have changed.
    Discovery,
    /// The reservation of a namespace has changed.
    Reservation,
}

impl NvmeEvent {
    /// The bit by which a host enables the event (feature 0Bh). `None` if it is always reported.
    pub(super) fn mask(self) -> Option<u32> {
        match self {
            Self::Namespace => Some(1 << 8),
            Self::Discovery => Some(1 << 31),
            Self::Reservation => None,
        }
    }

    /// The log page that describes the event. The event is not reported again before a host reads
    /// that page.
    fn log(self) -> u8 {
        match self {
            Self::Namespace => 0x04,
            Self::Discovery => 0x70,
            Self::Reservation => 0x80,
        }
    }

    /// The result of the request that reports the event.
    fn result(self) -> u64 {
        /// Types of events: a notice, and an event of the I/O command set.
        const NOTICE: u64 = 2;
        const COMMAND_SET: u64 = 6;
        let (kind, information): (u64, u64) = match self {
            Self::Namespace => (NOTICE, 0x00),
            Self::Discovery => (NOTICE, 0xf0),
            Self::Reservation => (COMMAND_SET, 0x00),
        };
        kind | information << 8 | u64::from(self.log()) << 16
    }
}

/// Requests for events, and events, of one controller.
#[derive(Default)]
pub(super) struct EventQueue {
    requests: RefCell<VecDeque<u16>>,
    events: RefCell<BTreeSet<NvmeEvent>>,
    /// Events that were reported, and whose log page was not read since.
    reported: RefCell<BTreeSet<NvmeEvent>>,
    changed: Notify,
}

impl EventQueue {
    /// Adds a request. Returns false if there are too many.
    pub(super) fn request(&self, command: u16) -> bool {
        let mut requests = self.requests.borrow_mut();
        let has_room = requests.len() < usize::from(EVENT_REQUESTS);
        if has_room {
            requests.push_back(command);
            self.changed.notify();
        }
        has_room
    }

    /// Removes a request that its host aborts. Returns false if there is no such request.
    pub(super) fn abort(&self, command: u16) -> bool {
        let mut requests = self.requests.borrow_mut();
        let before = requests.len();
        requests.retain(|request| *request != command);
        requests.len() < before
    }

    /// Reports an event, now or with the next request.
    pub(super) fn raise(&self, event: NvmeEvent) {
        if !self.reported.borrow().contains(&event) {
            self.events.borrow_mut().insert(event);
            self.changed.notify();
        }
    }

    /// Notes that the host has read a log page.
    pub(super) fn page_was_read(&self, log: u8) {
        self.reported.borrow_mut().retain(|event| event.log() != log);
    }

    /// Waits for an event and a request for it. Returns the command and its result.
    pub(super) async fn next(&self) -> (u16, u64) {
        loop {
            if let Some(next) = self.take() {
                return next;
            }
            self.changed.notified().await;
        }
    }

    fn take(&self) -> Option<(u16, u64)> {
        let mut events = self.events.borrow_mut();
        if events.is_empty() {
            return None;
        }
        let command = self.requests.borrow_mut().pop_front()?;
        let event = events.pop_first()?;
        self.reported.borrow_mut().insert(event);
        Some((command, event.result()))
    }
}

/// Aborts commands of a session.
pub(super) trait CommandAborter {
    /// Aborts a command that was not passed to a volume. Returns false if there is none of this id.
    fn abort(&self, command: u16) -> bool;
}

/// The controls of one connected queue, on its reactor.
#[derive(Default)]
pub(super) struct QueueControl {
    /// Closes the connection.
    pub(super) stop: Stop,
    /// The reason why it is closed.
    pub(super) reason: Cell<Option<&'static str>>,
    /// For the admin queue.
    pub(super) events: EventQueue,
    /// The commands that the volume defers.
    pub(super) deferred: Rc<DeferredCommands>,
    /// Aborts commands of the session that were not passed to a volume.
    aborter: RefCell<Option<Weak<dyn CommandAborter>>>,
    /// The connection.
    stream: Weak<Stream>,
    /// Held by each I/O command that has begun since the last [`QueueControl::commands_ended`].
    running: RefCell<Rc<()>>,
    /// The marks of commands that began before, as far as they have not ended.
    earlier: RefCell<Vec<Weak<()>>>,
}

impl QueueControl {
    /// The controls of a queue on this connection.
    pub(super) fn new(stream: &Rc<Stream>) -> Self {
        Self { stream: Rc::downgrade(stream), ..Self::default() }
    }

    /// The mark that a command holds while it is in execution.
    pub(super) fn running(&self) -> Rc<()> {
        self.running.borrow().clone()
    }

    /// Lets `aborter` abort commands that were not passed to a volume.
    pub(super) fn abort_by(&self, aborter: Weak<dyn CommandAborter>) {
        self.aborter.replace(Some(aborter));
    }

    /// Aborts a command that has not begun. Returns whether it was aborted; its response is queued
    /// then.
    pub(super) async fn abort(&self, command: u16) -> bool {
        let aborter = self.aborter.borrow().as_ref().and_then(Weak::upgrade);
        if aborter.is_some_and(|aborter| aborter.abort(command)) {
            return true;
        }
        self.deferred.abort(command).await
    }

    /// True if no further command begins: the connection is being closed.
    pub(super) fn is_ending(&self) -> bool {
        self.stop.is_raised()
    }

    /// Waits until the commands have ended that have begun before.
    pub(super) async fn commands_ended(&self) {
        /// Pause between two checks. Commands end soon, and only preemptions and hosts that connect
        /// again wait here.
        const PAUSE: Duration = Duration::from_millis(1);
        let begun = self.running.take();
        let marks = {
            let mut earlier = self.earlier.borrow_mut();
            earlier.retain(|mark| mark.strong_count() > 0);
            earlier.push(Rc::downgrade(&begun));
            earlier.clone()
        };
        drop(begun);
        while marks.iter().any(|mark| mark.strong_count() > 0) {
            Reactor::current().sleep(PAUSE).await;
        }
    }

    /// Waits until the commands have ended that have begun before. If the host has closed the
    /// connection, no further command begins, even if it was sent before the close.
    pub(super) async fn fence(&self) {
        if self.stream.upgrade().is_none_or(|stream| stream.has_peer_closed()) {
            self.end("the host closed the connection");
        }
        self.commands_ended().await;
    }

    /// Closes the connection for this reason.
    pub(super) fn end(&self, reason: &'static str) {
        if self.reason.get().is_none() {
            self.reason.set(Some(reason));
        }
        self.stop.raise();
    }
}

/// Raises an event at the admin queue of a controller, from any thread.
pub(super) fn raise(admin: &Handle<QueueControl>, event: NvmeEvent) {
    let control = admin.clone();
    let raise = move || {
        if let Some(control) = control.local() {
            control.events.raise(event);
        }
    };
    // A reactor that has shut down has closed its connections.
    let _ = admin.remote().post(raise);
}

/// Fences queues, each on its reactor.
pub(super) async fn fence_all(queues: &[Handle<QueueControl>]) {
    for queue in queues {
        let fence = |control: Rc<QueueControl>| async move { control.fence().await };
        // A queue that is no longer registered has no commands.
        let _ = call_object(queue, fence).await;
    }
}
