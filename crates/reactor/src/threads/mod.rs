//! The backend for systems that refuse io_uring: file operations on a few threads, sockets by readiness.
//!
//! Owns the operations in flight of one reactor. Always true: an operation's memory and target are kept until it has
//! ended, whatever happens to this. Sockets are tried at once and then whenever poll(2) calls them ready.

mod perform;
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
use crate::target::Target;
use crate::ticket::{Ticket, Tickets};
use crate::{Clock, Completer, Instant, Io, IoError, IoErrorKind, IoResult, WakeHandle, completion};
use perform::perform;
use pool::{Finished, Job, Pool};

/// Threads per reactor: how many file operations run at once.
const THREADS: usize = 8;
/// A busy reactor looks at its sockets once in this many polls: looking is a system call.
const POLLS_PER_LOOK: u32 = 16;

/// Threads, waiting sockets and what is in flight.
pub(crate) struct Threads {
    pool: Pool,
    /// What the threads have: who waits for it.
    files: RefCell<Slab<Completer>>,
    /// Socket operations that could not be done at once.
    waiting: RefCell<Slab<Waiting>>,
    tickets: Tickets,
    polls: Cell<u32>,
    event: Arc<Event>,
    clock: Rc<dyn Clock>,
}

struct Waiting {
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
        vacancy.insert(Waiting { ticket, target, operation, completer });
        (io, ticket)
    }

    /// Ends a socket operation early, as closed, unless it has ended already. Files are not waited for long.
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
            if self.polls.get().is_multiple_of(POLLS_PER_LOOK) {
                ended |= self.look(Some(Duration::ZERO));
            }
        }
        ended
    }

    /// See [`crate::Driver::poll_before_sleep`]: the sleep will look at the sockets.
    pub(crate) fn poll_before_sleep(&self) -> bool {
        self.take_finished()
    }

    /// See [`crate::Driver::sleep`].
    pub(crate) fn sleep(&self, until: Option<Instant>) {
        if self.pool.fall_asleep() {
            self.look(until.map(|until| until.since(self.clock.now())));
        }
        self.pool.wake_up();
        self.take_finished();
    }

    pub(crate) fn wake_handle(&self) -> Arc<dyn WakeHandle> {
        self.event.clone()
    }

    fn take_finished(&self) -> bool {
        let mut ended = false;
        while let Some(Finished { key, file, operation, result }) = self.pool.take_finished() {
            let completer = self.files.borrow_mut().remove(key);
            // The spans go first: whoever is woken may look at its buffer at once.
            drop((operation, file));
            completer.complete(result);
            ended = true;
        }
        ended
    }

    /// Waits for sockets and the event, at most `length`, and goes on with what is ready. True if anything ended.
    fn look(&self, length: Option<Duration>) -> bool {
        let mut ended = false;
        for ticket in self.wait_ready(length) {
            ended |= self.go_on(ticket);
        }
        ended
    }

    /// Waits for sockets and the event; the operations whose sockets are ready.
    fn wait_ready(&self, length: Option<Duration>) -> Vec<Ticket> {
        let waiting = self.waiting.borrow();
        let event = self.event.as_fd();
        let mut fds = vec![PollFd::new(&event, PollFlags::IN)];
        fds.extend(waiting.iter().map(|(_, one)| PollFd::from_borrowed_fd(one.target.as_fd(), one.events())));
        let timeout = length.and_then(|length| Timespec::try_from(length).ok());
        match rustix::event::poll(&mut fds, timeout.as_ref()) {
            Ok(_) => {}
            // A signal, or no memory for now: whoever sleeps comes again.
            Err(Errno::INTR | Errno::NOMEM | Errno::AGAIN) => return Vec::new(),
            Err(errno) => panic!("the kernel refused to wait for sockets: {errno}"),
        }
        let (event, sockets) = match fds.split_first() {
            Some((event, sockets)) => (event, sockets),
            None => unreachable!("the event is always waited for"),
        };
        if !event.revents().is_empty() {
            self.event.clear();
        }
        let ready = sockets.iter().zip(waiting.iter()).filter(|(fd, _)| !fd.revents().is_empty());
        ready.map(|(_, (_, one))| one.ticket).collect()
    }

    /// Goes on with an operation whose socket is ready. True if it ended.
    fn go_on(&self, ticket: Ticket) -> bool {
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

impl Waiting {
    /// What its socket must become ready for.
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

/// Goes as far as the socket lets us. `None` if it must become ready first.
fn attempt(target: &Target, operation: &mut Operation) -> Option<IoResult> {
    loop {
        let answer = perform(target.as_fd(), operation);
        if answer == Err(Errno::AGAIN) {
            return None;
        }
        if let Step::Done(result) = operation.advance(answer) {
            return Some(result);
        }
    }
}
