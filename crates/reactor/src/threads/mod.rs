//! The backend for systems without io_uring: file operations on threads, sockets by readiness.
//!
//! Owns the operations in flight of one reactor. Invariant: the memory and target of an operation
//! are kept until it has ended, even if this is dropped. Socket operations are tried at once, then
//! whenever poll(2) reports readiness.

mod pool;

use std::cell::{Cell, RefCell};
use std::os::fd::AsFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use slab::Slab;

use crate::event::Event;
use crate::operation::{Direction, Operation, Step};
use crate::perform::perform;
use crate::target::Target;
use crate::ticket::{Ticket, Tickets};
use crate::{Clock, Completer, Instant, Io, IoError, IoErrorKind, IoResult, WakeHandle, completion};
use pool::{CompletedJob, Job, Pool};

/// Number of threads per reactor, and so of concurrent file operations.
const THREADS: usize = 8;
/// A busy reactor polls its sockets once per this many polls, because each is a system call.
const POLLS_PER_SOCKET_POLL: u32 = 16;

/// The thread pool, the waiting sockets and the operations in flight.
pub(crate) struct Threads {
    pool: Pool,
    /// The completers of file operations in the thread pool.
    files: RefCell<Slab<Completer>>,
    /// Socket operations that wait for readiness.
    waiting: RefCell<Slab<WaitingOperation>>,
    tickets: Tickets,
    polls: Cell<u32>,
    event: Arc<Event>,
    clock: Rc<dyn Clock>,
}

struct WaitingOperation {
    ticket: Ticket,
    target: Target,
    operation: Operation,
    completer: Completer,
}

impl Threads {
    pub(crate) fn start(clock: Rc<dyn Clock>) -> std::io::Result<Self> {
        let event = Event::new()?;
        Ok(Self {
            pool: Pool::start(THREADS, event.clone())?,
            files: RefCell::default(),
            waiting: RefCell::default(),
            tickets: Tickets::new(),
            polls: Cell::new(0),
            event,
            clock,
        })
    }

    /// Starts an operation.
    pub(crate) fn submit(&self, target: Target, mut operation: Operation) -> (Io, Ticket) {
        if let Target::File(bound) = target {
            let (completer, io) = completion();
            let key = self.files.borrow_mut().insert(completer);
            self.pool.push(Job { key, file: bound.file.clone(), operation });
            return (io, self.tickets.issue(key));
        }
        let mut waiting = self.waiting.borrow_mut();
        let vacancy = waiting.vacant_entry();
        let ticket = self.tickets.issue(vacancy.key());
        if let Some(result) = attempt(&target, &mut operation) {
            return (Io::ready(result), ticket);
        }
        let (completer, io) = completion();
        vacancy.insert(WaitingOperation { ticket, target, operation, completer });
        (io, ticket)
    }

    /// Cancels a socket operation unless it has ended already. It then fails as closed. File
    /// operations are not cancelled: they end soon.
    pub(crate) fn cancel(&self, ticket: Ticket) {
        let mut waiting = self.waiting.borrow_mut();
        if waiting.get(ticket.key()).is_none_or(|waiting| waiting.ticket != ticket) {
            return;
        }
        let cancelled = waiting.remove(ticket.key());
        drop(waiting);
        cancelled.end(Err(IoError::new(IoErrorKind::Closed)));
    }

    /// See [`crate::Driver::poll`].
    pub(crate) fn poll(&self) -> bool {
        let mut ended = self.take_finished();
        if !self.waiting.borrow().is_empty() {
            self.polls.set(self.polls.get().wrapping_add(1));
            if self.polls.get().is_multiple_of(POLLS_PER_SOCKET_POLL) {
                ended |= self.poll_sockets(Some(Duration::ZERO));
            }
        }
        ended
    }

    /// See [`crate::Driver::poll_before_sleep`]: the sleep will poll the sockets.
    pub(crate) fn poll_before_sleep(&self) -> bool {
        self.take_finished()
    }

    /// See [`crate::Driver::sleep`].
    pub(crate) fn sleep(&self, until: Option<Instant>) {
        if self.pool.fall_asleep() {
            self.poll_sockets(until.map(|until| until.since(self.clock.now())));
        }
        self.pool.wake_up();
        self.take_finished();
    }

    pub(crate) fn wake_handle(&self) -> Arc<dyn WakeHandle> {
        self.event.clone()
    }

    fn take_finished(&self) -> bool {
        let mut ended = false;
        while let Some(CompletedJob { key, file, operation, result }) = self.pool.take_finished() {
            let completer = self.files.borrow_mut().remove(key);
            // Dropped before the wake-up: the woken task may access its buffer at once.
            drop((operation, file));
            completer.complete(result);
            ended = true;
        }
        ended
    }

    /// Waits up to `length` for sockets and the event, and continues operations that are ready.
    /// True if any ended.
    fn poll_sockets(&self, length: Option<Duration>) -> bool {
        let mut ended = false;
        for ticket in self.wait_ready(length) {
            ended |= self.resume(ticket);
        }
        ended
    }

    /// Waits for sockets and the event. Returns the operations on ready sockets.
    fn wait_ready(&self, length: Option<Duration>) -> Vec<Ticket> {
        let waiting = self.waiting.borrow();
        let event = self.event.as_fd();
        let mut fds = vec![PollFd::new(&event, PollFlags::IN)];
        fds.extend(waiting.iter().map(|(_, one)| PollFd::from_borrowed_fd(one.target.as_fd(), one.events())));
        let timeout = length.and_then(|length| Timespec::try_from(length).ok());
        match rustix::event::poll(&mut fds, timeout.as_ref()) {
            Ok(_) => {}
            // A signal, or a temporary lack of memory: the reactor calls again.
            Err(Errno::INTR | Errno::NOMEM | Errno::AGAIN) => return Vec::new(),
            Err(errno) => panic!("cannot poll sockets: {errno}"),
        }
        let (event, sockets) = match fds.split_first() {
            Some((event, sockets)) => (event, sockets),
            None => unreachable!("the event is always polled"),
        };
        if !event.revents().is_empty() {
            self.event.clear();
        }
        let ready = sockets.iter().zip(waiting.iter()).filter(|(fd, _)| !fd.revents().is_empty());
        ready.map(|(_, (_, one))| one.ticket).collect()
    }

    /// Continues an operation on a ready socket. True if it ended.
    fn resume(&self, ticket: Ticket) -> bool {
        let mut waiting = self.waiting.borrow_mut();
        let Some(one) = waiting.get_mut(ticket.key()).filter(|one| one.ticket == ticket) else {
            return false;
        };
        let Some(result) = attempt(&one.target, &mut one.operation) else { return false };
        let ended = waiting.remove(ticket.key());
        drop(waiting);
        ended.end(result);
        true
    }
}

impl WaitingOperation {
    /// Returns the readiness events that the operation waits for.
    fn events(&self) -> PollFlags {
        match &self.operation {
            Operation::SocketTransfer(transfer) if transfer.direction == Direction::Out => PollFlags::OUT,
            Operation::Poll(events) => *events,
            _ => PollFlags::IN,
        }
    }

    fn end(self, result: IoResult) {
        let Self { target, operation, completer, .. } = self;
        drop((operation, target));
        completer.complete(result);
    }
}

/// Runs the operation as far as possible without blocking. `None` if it must wait for readiness.
fn attempt(target: &Target, operation: &mut Operation) -> Option<IoResult> {
    loop {
        let result = perform(target.as_fd(), operation);
        if result == Err(Errno::AGAIN) {
            return None;
        }
        if let Step::Done(result) = operation.advance(result) {
            return Some(result);
        }
    }
}
