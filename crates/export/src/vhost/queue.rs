//! One virtqueue on its reactor: takes requests, executes them and completes them.
//!
//! Owns the ring and the requests in flight. Always true: a request that was taken is completed
//! exactly once, after its status was written, or stays marked in the inflight region. Guest memory
//! is accessed only while its table is held. A broken queue is not accessed any more. Must not know
//! sockets.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::sync::Arc;

use reactor::{Notify, Reactor};
use smallvec::SmallVec;

use super::chain::Chain;
use super::dirty::DirtyLog;
use super::execute::{Manner, Means};
use super::inflight::Inflight;
use super::limits::{BATCH, GATHERS_BYTES};
use super::memory::{GuestMemory, Piece};
use super::request::{Operation, Request, Status, Terms};
use super::ring::{Addresses, BadRing, Ring};
use super::spares::Spares;
use crate::Volume;
use crate::reserve::Reserve;

/// Requests that a queue takes before other tasks run.
const TURN: u16 = 64;

/// The parameters of a new queue.
pub(super) struct Start {
    pub(super) index: usize,
    pub(super) addresses: Addresses,
    pub(super) size: u16,
    /// The next available entry, unless the inflight region contains a newer position.
    pub(super) next: u16,
    pub(super) event_index: bool,
    pub(super) enabled: bool,
    pub(super) memory: GuestMemory,
    pub(super) inflight: Option<Inflight>,
    pub(super) log: Option<Arc<DirtyLog>>,
    pub(super) call: Option<Arc<OwnedFd>>,
    pub(super) err: Option<Arc<OwnedFd>>,
    pub(super) manner: Manner,
    /// The connection to the front end. It is cut if the front end removes memory.
    pub(super) front_end: Option<Arc<UnixStream>>,
    /// Name of the device, for the log.
    pub(super) name: Arc<str>,
}

/// A virtqueue on its reactor.
pub(super) struct Queue<V> {
    volume: V,
    manner: Manner,
    name: Arc<str>,
    index: usize,
    front_end: Option<Arc<UnixStream>>,
    reactor: Reactor,
    gathers: Reserve,
    state: RefCell<State>,
    /// Requests that were taken and not completed.
    under_way: Cell<usize>,
    /// Requests taken since the start.
    taken: Cell<u64>,
    /// Wakes the queue's task.
    pub(super) changed: Notify,
    /// No more requests are taken.
    stopping: Cell<bool>,
}

struct State {
    ring: Ring,
    addresses: Addresses,
    memory: Rc<GuestMemory>,
    inflight: Option<Inflight>,
    /// Requests that an earlier process left, to be executed before new ones.
    unanswered: std::vec::IntoIter<u16>,
    log: Option<Arc<DirtyLog>>,
    call: Option<Arc<OwnedFd>>,
    err: Option<Arc<OwnedFd>>,
    enabled: bool,
    broken: bool,
    chain: Chain,
}

/// A request that was taken. If it is dropped without [`VirtQueue::complete`], it stays marked as
/// in flight.
pub(super) struct Ticket {
    head: u16,
    status: Option<Piece>,
    operation: Result<Operation, Status>,
    memory: Rc<GuestMemory>,
}

/// Executes requests with [`VirtQueue::execute_request`], whose futures have no nameable type, in
/// reused slots.
pub(super) struct Works<V, F> {
    carry_out: fn(Rc<Queue<V>>, Ticket) -> F,
    spares: Rc<Spares<F>>,
}

impl<V, F: Future<Output = ()> + 'static> Works<V, F> {
    pub(super) fn new(carry_out: fn(Rc<Queue<V>>, Ticket) -> F) -> Self {
        Self { carry_out, spares: Spares::new() }
    }
}

/// Requests that were taken together.
type Batch = SmallVec<[Ticket; BATCH as usize]>;

/// The start of a read or write.
struct Beginning {
    offset: u64,
    reads: bool,
}

impl Ticket {
    /// Returns the start of a read or write.
    fn place(&self) -> Option<Beginning> {
        match &self.operation {
            Ok(Operation::Read { offset, .. }) => Some(Beginning { offset: *offset, reads: true }),
            Ok(Operation::Write { offset, .. }) => Some(Beginning { offset: *offset, reads: false }),
            _ => None,
        }
    }
}

impl<V: Volume + 'static> Queue<V> {
    /// Creates a queue on this thread's reactor. Nothing happens before [`VirtQueue::process`].
    ///
    /// # Errors
    /// Fails if the rings are not in the guest's memory.
    pub(super) fn new(start: Start, volume: V) -> Result<Rc<Self>, BadRing> {
        let memory = start.memory.apart();
        let mut ring = Ring::new(&start.addresses, start.size, start.next, start.event_index, &memory)?;
        let mut inflight = start.inflight;
        let mut unanswered = Vec::new();
        if let Some(inflight) = &mut inflight {
            let resumption = inflight.resume(ring.used_index());
            if let Some(next) = resumption.next {
                ring.set_next(next);
            }
            unanswered = resumption.unanswered;
        }
        ring.disarm();
        if !unanswered.is_empty() {
            tracing::info!(device = %start.name, queue = start.index, requests = unanswered.len(),
                "executing requests again that an earlier daemon did not complete");
        }
        let state = State {
            ring,
            addresses: start.addresses,
            memory: Rc::new(memory),
            inflight,
            unanswered: unanswered.into_iter(),
            log: start.log,
            call: start.call,
            err: start.err,
            enabled: start.enabled,
            broken: false,
            chain: Chain::default(),
        };
        let queue = Self {
            volume,
            manner: start.manner,
            name: start.name,
            index: start.index,
            front_end: start.front_end,
            reactor: Reactor::current(),
            gathers: Reserve::new(GATHERS_BYTES),
            state: RefCell::new(state),
            under_way: Cell::new(0),
            taken: Cell::new(0),
            changed: Notify::default(),
            stopping: Cell::new(false),
        };
        // Interrupts of an earlier process may have been lost.
        queue.interrupt();
        Ok(Rc::new(queue))
    }

    /// Publishes completed requests and begins available ones. Returns true if there were any.
    pub(super) fn turn<F: Future<Output = ()> + 'static>(self: &Rc<Self>, works: &Works<V, F>) -> bool {
        let mut worked = self.publish();
        let terms = self.terms();
        for _ in 0..TURN / BATCH {
            let mut batch = SmallVec::new();
            let more = self.take(&terms, &mut batch);
            if batch.is_empty() {
                break;
            }
            self.taken.set(self.taken.get() + batch.len() as u64);
            self.begin_all(batch, works);
            self.publish();
            worked = true;
            if !more {
                break;
            }
        }
        worked
    }

    /// Begins requests, one after the other. While one is executed, the volume prefetches for the
    /// next one.
    fn begin_all<F: Future<Output = ()> + 'static>(self: &Rc<Self>, batch: Batch, works: &Works<V, F>) {
        let ahead = batch.len() > 1;
        if ahead {
            batch.iter().filter_map(Ticket::place).for_each(|place| self.volume.expect(place.offset));
        }
        let mut tickets = batch.into_iter().peekable();
        while let Some(ticket) = tickets.next() {
            if let Some(place) = tickets.peek().and_then(Ticket::place)
                && place.reads
            {
                self.volume.prefetch_hint(place.offset);
            }
            self.begin(ticket, works);
        }
    }

    /// Requests notifications from the guest. Returns true if the next request will cause one, and
    /// none is available now.
    pub(super) fn arm(&self) -> bool {
        let mut state = self.state.borrow_mut();
        if !state.is_served() || self.stopping.get() {
            return true;
        }
        match state.ring.arm().and_then(|armed| state.check_there().map(|()| armed)) {
            Ok(armed) => armed && state.unanswered.as_slice().is_empty(),
            Err(error) => {
                self.break_down(&mut state, error);
                true
            }
        }
    }

    /// Cancels the request for notifications.
    pub(super) fn disarm(&self) {
        self.state.borrow_mut().ring.disarm();
    }

    /// Takes requests, up to a batch. Returns true if there may be more.
    fn take(&self, terms: &Terms, batch: &mut Batch) -> bool {
        let mut state = self.state.borrow_mut();
        let state = &mut *state;
        while batch.len() < usize::from(BATCH) {
            let head = match state.next_head(self.stopping.get()) {
                Ok(Some(head)) => head,
                Ok(None) => return false,
                Err(error) => {
                    self.break_down(state, error);
                    return false;
                }
            };
            let ticket = state.read_request(head, terms, || self.log_bad(head));
            // The values read may be zeros that the guest did not write. The request stays marked
            // as in flight.
            if let Err(error) = state.check_there() {
                self.break_down(state, error);
                return false;
            }
            self.under_way.set(self.under_way.get() + 1);
            batch.push(ticket);
        }
        true
    }

    fn terms(&self) -> Terms {
        Terms { size: self.volume.size(), sector: self.volume.sector(), read_only: self.volume.read_only() }
    }

    fn log_bad(&self, head: u16) {
        tracing::debug!(device = %self.name, queue = self.index, head, "invalid request from guest");
    }

    fn break_down(&self, state: &mut State, error: BadRing) {
        // Zeros in place of a ring look like other errors.
        let error = if state.is_lost() { BadRing::Lost } else { error };
        tracing::warn!(device = %self.name, queue = self.index, %error, "the queue is broken and no longer served");
        state.broken = true;
        if let (BadRing::Lost, Some(front_end)) = (error, &self.front_end) {
            // Fails only if the front end is gone.
            let _ = front_end.shutdown(Shutdown::Both);
        }
        if let Some(err) = &state.err {
            signal(err);
        }
    }

    /// Begins a request. Work that need not wait is done immediately.
    fn begin<F: Future<Output = ()> + 'static>(self: &Rc<Self>, ticket: Ticket, works: &Works<V, F>) {
        if let Err(status) = ticket.operation {
            return self.hand_back(&ticket, status, 0);
        }
        if let Some(rest) = works.spares.begin((works.carry_out)(self.clone(), ticket)) {
            self.reactor.spawn(rest).detach();
        }
    }

    /// Executes a request and completes it.
    pub(super) async fn carry_out(self: Rc<Self>, ticket: Ticket) {
        let Ok(operation) = &ticket.operation else { return };
        let (volume, manner, gathers) = (&self.volume, &self.manner, &self.gathers);
        let means = Means { volume, memory: &ticket.memory, manner, gathers };
        match means.execute(operation).await {
            Ok(written) => self.hand_back(&ticket, Status::Ok, written),
            Err(status) => self.hand_back(&ticket, status, 0),
        }
    }

    /// Completes a request that has written `written` bytes of data. The next
    /// [`VirtQueue::process`] publishes it. A request with lost memory is not completed: zeros may
    /// have been written in place of the guest's data.
    fn hand_back(&self, ticket: &Ticket, status: Status, written: u32) {
        let mut state = self.state.borrow_mut();
        let mut len = 0;
        let mut lost = ticket.memory.is_lost() || state.is_lost();
        if let (Some(piece), false) = (&ticket.status, lost) {
            ticket.memory.write_byte(piece, status as u8);
            len = written.saturating_add(1);
        }
        state.log_changes(ticket);
        lost |= ticket.memory.is_lost() || state.is_lost();
        if !lost {
            state.ring.push(ticket.head, len);
            if let Some(inflight) = &mut state.inflight {
                inflight.end(ticket.head);
            }
        } else if !state.broken {
            self.break_down(&mut state, BadRing::Lost);
        }
        drop(state);
        self.under_way.set(self.under_way.get() - 1);
        self.changed.notify();
    }

    /// Publishes completed requests to the guest. Returns true if there were any.
    fn publish(&self) -> bool {
        let mut state = self.state.borrow_mut();
        if !state.ring.has_unpublished() {
            return false;
        }
        let due = state.publish();
        drop(state);
        if due {
            self.interrupt();
        }
        true
    }

    fn interrupt(&self) {
        if let Some(call) = &self.state.borrow().call {
            signal(call);
        }
    }

    /// Stops taking requests.
    pub(super) fn stop(&self) {
        self.stopping.set(true);
        self.changed.notify();
    }

    /// Returns true if [`VirtQueue::stop`] was called and all taken requests are completed and
    /// published.
    pub(super) fn has_stopped(&self) -> bool {
        let state = self.state.borrow();
        let done = state.unanswered.as_slice().is_empty() || !state.is_served();
        self.stopping.get() && done && self.under_way.get() == 0 && !state.ring.has_unpublished()
    }

    /// Returns the number of requests taken since the start.
    pub(super) fn taken(&self) -> u64 {
        self.taken.get()
    }

    /// Returns the next available entry, for the next process or front end that serves the queue.
    pub(super) fn next(&self) -> u16 {
        self.state.borrow().ring.next()
    }

    /// Sets whether the queue takes requests.
    pub(super) fn set_enabled(&self, enabled: bool) {
        self.state.borrow_mut().enabled = enabled;
        self.changed.notify();
    }

    /// Changes the interrupt event and raises it once, because earlier interrupts may have been
    /// lost.
    pub(super) fn set_call(&self, call: Option<Arc<OwnedFd>>) {
        self.state.borrow_mut().call = call;
        self.interrupt();
    }

    /// Changes the event that reports a broken queue.
    pub(super) fn set_err(&self, err: Option<Arc<OwnedFd>>) {
        self.state.borrow_mut().err = err;
    }

    /// Sets the log in which changed memory is marked, or none.
    pub(super) fn set_log(&self, log: Option<Arc<DirtyLog>>, addresses: Addresses) {
        let mut state = self.state.borrow_mut();
        state.log = log;
        state.addresses.log = addresses.log;
    }

    /// Continues with another table of the guest's memory. Requests in flight keep the old one.
    ///
    /// # Errors
    /// Fails if the rings are not in the new memory.
    pub(super) fn set_memory(&self, memory: &GuestMemory) -> Result<(), BadRing> {
        let mut state = self.state.borrow_mut();
        let memory = memory.apart();
        let moved = state.ring.moved(&state.addresses, &memory)?;
        state.ring = moved;
        state.memory = Rc::new(memory);
        Ok(())
    }
}

impl State {
    /// Returns an error if the front end has removed memory.
    fn check_there(&self) -> Result<(), BadRing> {
        if self.is_lost() { Err(BadRing::Lost) } else { Ok(()) }
    }

    /// Returns true if the front end has removed memory.
    fn is_lost(&self) -> bool {
        self.memory.is_lost()
            || self.inflight.as_ref().is_some_and(Inflight::is_lost)
            || self.log.as_ref().is_some_and(|log| log.is_lost())
    }

    /// Returns true if requests are executed.
    fn is_served(&self) -> bool {
        self.enabled && !self.broken
    }

    /// Returns the first descriptor of the next request to begin. Requests of an earlier process
    /// come first, and are executed even after a stop.
    fn next_head(&mut self, stopping: bool) -> Result<Option<u16>, BadRing> {
        if !self.is_served() {
            return Ok(None);
        }
        if let Some(head) = self.unanswered.next() {
            return Ok(Some(head));
        }
        if stopping {
            return Ok(None);
        }
        let head = self.ring.pop()?;
        if let (Some(head), Some(inflight)) = (head, &mut self.inflight) {
            inflight.begin(head);
        }
        Ok(head)
    }

    /// Reads the request with the chain that begins at `head`.
    fn read_request(&mut self, head: u16, terms: &Terms, on_bad: impl Fn()) -> Ticket {
        let walked = self.chain.walk(self.ring.descriptors(), head, &self.memory);
        let request = Request::parse(&mut self.chain, &self.memory, terms);
        if walked.is_err() || request.is_none() {
            on_bad();
        }
        let memory = self.memory.clone();
        match request {
            Some(Request { operation, status }) => {
                // A broken chain is not executed, even if a request could be read.
                let operation = if walked.is_ok() { operation } else { Err(Status::IoError) };
                Ticket { head, status: Some(status), operation, memory }
            }
            None => Ticket { head, status: None, operation: Err(Status::IoError), memory },
        }
    }

    /// Marks the memory that a request has changed, successful or not.
    fn log_changes(&self, ticket: &Ticket) {
        let Some(log) = &self.log else { return };
        let data = match &ticket.operation {
            Ok(Operation::Read { into, .. } | Operation::Id { into, .. }) => into.as_slice(),
            _ => &[],
        };
        for piece in data.iter().chain(&ticket.status) {
            log.mark(ticket.memory.guest_address(piece), piece.len.into());
        }
    }

    /// Publishes completed requests. Returns true if the guest requests an interrupt.
    fn publish(&mut self) -> bool {
        let due = self.ring.publish();
        if let Some(inflight) = &mut self.inflight {
            inflight.published(self.ring.used_index());
        }
        if let (Some(log), Some(guest)) = (&self.log, self.addresses.log) {
            // The whole used ring is marked; it takes a page or a few.
            log.mark(guest, self.ring.used_bytes());
        }
        due
    }
}

/// Raises an event. If its counter is full, the receiver has enough notifications pending.
fn signal(event: &OwnedFd) {
    #[allow(clippy::host_endian_bytes, reason = "the kernel reads a number of this machine")]
    let one = 1u64.to_ne_bytes();
    let _ = rustix::io::write(event, &one);
}

#[cfg(test)]
#[path = "queue_tests.rs"]
mod tests;
