//! The io_uring backend: one ring per reactor, used by its thread only.
//!
//! Owns the operations in flight. Invariant: the target and memory of an operation are kept until
//! its last completion is reaped. Dropping the backend waits for all operations except device
//! commands, which only the device can end: their memory is leaked. Entries are submitted together,
//! once per cycle.
#![allow(unsafe_code)]

mod entry;
mod fixed;
mod inline;
mod ring;

use std::cell::{Cell, RefCell};
use std::os::fd::{AsFd, AsRawFd};
use std::rc::Rc;
use std::sync::Arc;

use io_uring::squeue::Flags;
use rustix::io::Errno;
use slab::Slab;

use crate::event::Event;
use crate::fixed_slot::{FixedSlot, FixedTable};
use crate::operation::{Operation, Step};
use crate::target::{BoundFile, LockedFile, Target};
use crate::ticket::{Ticket, Tickets};
use crate::{Clock, Completer, Instant, Io, IoError, IoErrorKind, WakeHandle, completion};
use entry::Scratch;
use fixed::{FreeSlots, SLOTS};
use inline::InlineQueue;
use ring::{Batch, Completion, EnterWait, Ring};

/// Marks the entry that polls the event of [`WakeHandle::wake`].
const MARK_ROUSED: u64 = 0;
/// Marks entries with a completion that is ignored.
const MARK_IGNORED: u64 = 1;

/// A ring and its operations in flight.
pub(crate) struct Uring {
    ring: RefCell<Ring>,
    flights: RefCell<Slab<Flight>>,
    /// Number of operations in flight.
    in_flight: Cell<usize>,
    /// Number of drive operations in flight.
    on_drives: Cell<usize>,
    /// Number of device commands in flight.
    commands: Cell<usize>,
    tickets: Tickets,
    inline: InlineQueue,
    slots: RefCell<FreeSlots>,
    event: Arc<Event>,
    clock: Rc<dyn Clock>,
    /// True during shutdown: nothing is submitted again.
    closing: Cell<bool>,
}

/// An operation in the kernel or queued for it.
struct Flight {
    ticket: Ticket,
    target: Target,
    operation: Operation,
    scratch: Scratch,
    completer: Completer,
}

impl Uring {
    /// Returns a backend with a submission queue of `entries` entries.
    pub(crate) fn open(entries: u32, clock: Rc<dyn Clock>) -> std::io::Result<Rc<Self>> {
        Self::with_ring(Ring::open(entries)?, entries, clock)
    }

    fn with_ring(ring: Ring, entries: u32, clock: Rc<dyn Clock>) -> std::io::Result<Rc<Self>> {
        let slots = if ring.register_table(SLOTS) { SLOTS } else { 0 };
        let uring = Self {
            ring: RefCell::new(ring),
            flights: RefCell::new(Slab::with_capacity(entries as usize)),
            in_flight: Cell::new(0),
            on_drives: Cell::new(0),
            commands: Cell::new(0),
            tickets: Tickets::new(),
            inline: InlineQueue::default(),
            slots: RefCell::new(FreeSlots::new(slots)),
            event: Event::new()?,
            clock,
            closing: Cell::new(false),
        };
        uring.watch_event();
        Ok(Rc::new(uring))
    }

    fn watch_event(&self) {
        let watch = entry::watch(&*self.event).user_data(MARK_ROUSED);
        // SAFETY: names no memory.
        unsafe { self.ring.borrow_mut().push(watch) };
    }

    /// Returns a file in the form that operations use: by a registered slot, while there are any.
    pub(crate) fn bind(self: &Rc<Self>, file: Arc<LockedFile>, is_synchronous: bool) -> BoundFile {
        let slot = self.slots.borrow_mut().take().and_then(|index| {
            if self.ring.borrow().register_file(index, file.as_fd().as_raw_fd()) {
                let table: Rc<dyn FixedTable> = self.clone();
                return Some(FixedSlot { index, table: Rc::downgrade(&table) });
            }
            self.slots.borrow_mut().release(index);
            None
        });
        BoundFile { file, slot, is_synchronous }
    }

    /// Queues an operation.
    pub(crate) fn submit(&self, target: Target, operation: Operation) -> (Io, Ticket) {
        let (completer, io) = completion();
        if inline::is_inline(&target, &operation) {
            self.inline.push(target, operation, completer);
            return (io, self.tickets.issue(0));
        }
        let mut flights = self.flights.borrow_mut();
        let vacancy = flights.vacant_entry();
        let ticket = self.tickets.issue(vacancy.key());
        let flight = vacancy.insert(Flight { ticket, target, operation, scratch: None, completer });
        self.in_flight.set(self.in_flight.get() + 1);
        self.on_drives.set(self.on_drives.get() + usize::from(flight.target.is_drive()));
        self.commands.set(self.commands.get() + usize::from(flight.operation.is_command()));
        self.launch(flight, Flags::empty());
        (io, ticket)
    }

    fn launch(&self, flight: &mut Flight, flags: Flags) {
        let entry = entry::entry(&flight.target, &flight.operation, &mut flight.scratch);
        // SAFETY: the flight holds the operation's spans, the list and the target until its
        // completion is taken.
        unsafe { self.ring.borrow_mut().push(entry.user_data(flight.ticket.to_mark()).flags(flags)) };
    }

    /// Asks the kernel to cancel an operation. It fails as closed unless it has ended already.
    pub(crate) fn cancel(&self, ticket: Ticket) {
        let flights = self.flights.borrow();
        if flights.get(ticket.key()).is_some_and(|flight| flight.ticket == ticket) {
            // SAFETY: names no memory.
            unsafe { self.ring.borrow_mut().push(entry::cancel(ticket.to_mark()).user_data(MARK_IGNORED)) };
        }
    }

    /// See [`crate::Driver::poll`].
    pub(crate) fn poll(&self) -> bool {
        let executed = self.inline.execute();
        let mut ring = self.ring.borrow_mut();
        if ring.has_queued() || (self.in_flight.get() > 0 && ring.has_unposted_completions()) {
            ring.enter(EnterWait::No, false);
        }
        drop(ring);
        let reaped = self.in_flight.get() > 0 && self.reap();
        executed || reaped
    }

    /// See [`crate::Driver::poll_before_sleep`]: queued entries are left for the sleep to submit.
    pub(crate) fn poll_before_sleep(&self) -> bool {
        let executed = self.inline.execute();
        if self.in_flight.get() == 0 {
            return executed;
        }
        let mut ring = self.ring.borrow_mut();
        if ring.has_unposted_completions() {
            ring.enter(EnterWait::No, false);
        }
        drop(ring);
        self.reap() || executed
    }

    /// See [`crate::Driver::sleep`].
    pub(crate) fn sleep(&self, until: Option<Instant>) {
        let wait = match until {
            _ if self.inline.execute() => EnterWait::No,
            None => EnterWait::Forever,
            Some(until) => EnterWait::For(until.since(self.clock.now())),
        };
        let idle = self.on_drives.get() == 0;
        self.ring.borrow_mut().enter(wait, idle);
        self.reap();
    }

    pub(crate) fn wake_handle(&self) -> Arc<dyn WakeHandle> {
        self.event.clone()
    }

    /// Reaps all available completions. True if an operation ended.
    fn reap(&self) -> bool {
        let mut ended = false;
        loop {
            let mut batch = Batch::new();
            self.ring.borrow_mut().take(&mut batch);
            if batch.is_empty() {
                return ended;
            }
            for completion in batch {
                ended |= self.complete(completion);
            }
        }
    }

    /// Processes one completion. True if it ended an operation.
    fn complete(&self, completion: Completion) -> bool {
        match completion.mark {
            MARK_ROUSED => {
                if !completion.more {
                    self.event.clear();
                    self.watch_event();
                }
                return false;
            }
            MARK_IGNORED => return false,
            _ => {}
        }
        let ticket = Ticket::from_mark(completion.mark);
        let mut flights = self.flights.borrow_mut();
        let Some(flight) = flights.get_mut(ticket.key()) else {
            panic!("the kernel completed nothing of ours")
        };
        assert_eq!(flight.ticket, ticket, "the kernel completed an operation twice");
        let answer = answer(completion.result);
        let result = match flight.operation.advance(answer) {
            Step::Done(result) => result,
            Step::Again if self.closing.get() => Err(IoError::new(IoErrorKind::Closed)),
            Step::Again => {
                self.launch(flight, retry_flags(answer));
                return false;
            }
        };
        let flight = flights.remove(ticket.key());
        drop(flights);
        self.in_flight.set(self.in_flight.get() - 1);
        self.on_drives.set(self.on_drives.get() - usize::from(flight.target.is_drive()));
        self.commands.set(self.commands.get() - usize::from(flight.operation.is_command()));
        // Dropped before the wake-up: the woken task may access its buffer at once.
        let Flight { target, operation, scratch, completer, .. } = flight;
        drop((operation, scratch, target));
        completer.complete(result);
        true
    }
}

impl FixedTable for Uring {
    fn release_slot(&self, index: u32) {
        if self.ring.borrow().register_file(index, -1) {
            self.slots.borrow_mut().release(index);
        }
    }
}

fn answer(result: i32) -> Result<usize, Errno> {
    usize::try_from(result).map_err(|_| Errno::from_raw_os_error(-result))
}

/// Retries on a kernel worker thread, which may block, after EAGAIN.
fn retry_flags(answer: Result<usize, Errno>) -> Flags {
    if answer == Err(Errno::AGAIN) { Flags::ASYNC } else { Flags::empty() }
}

impl Drop for Uring {
    fn drop(&mut self) {
        self.closing.set(true);
        let tickets: Vec<_> = {
            let flights = self.flights.borrow();
            let others = flights.iter().filter(|(_, flight)| !flight.operation.is_command());
            others.map(|(_, flight)| flight.ticket).collect()
        };
        for ticket in tickets {
            self.cancel(ticket);
        }
        while self.in_flight.get() > self.commands.get() {
            self.ring.borrow_mut().enter(EnterWait::Forever, false);
            self.reap();
        }
        self.ring.borrow_mut().unregister_table();
        for (_, flight) in std::mem::take(self.flights.get_mut()) {
            let Flight { target, operation, completer, .. } = flight;
            drop(completer);
            // The device still has the address: the memory must not be reused while the process
            // lives.
            Box::leak(Box::new((target, operation)));
        }
    }
}

#[cfg(test)]
#[path = "uring_tests.rs"]
mod tests;
