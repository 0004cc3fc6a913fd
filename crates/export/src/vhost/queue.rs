//! One virtqueue on the reactor that it was given to: takes requests, has them carried out, hands them back.
//!
//! Owns the ring and what is under way. Always true: a request that was taken is handed back exactly once, after its
//! status was written, or stays marked in the inflight region; memory of the guest is touched only while the table that
//! names it is held; a broken queue is left alone. Must not know sockets.

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

/// Requests that a queue takes before others get their turn.
const TURN: u16 = 64;

/// What a queue starts with.
pub(super) struct Start {
    pub(super) index: usize,
    pub(super) addresses: Addresses,
    pub(super) size: u16,
    /// The available entry to go on from, unless the inflight region knows better.
    pub(super) next: u16,
    pub(super) event_index: bool,
    pub(super) enabled: bool,
    pub(super) memory: GuestMemory,
    pub(super) inflight: Option<Inflight>,
    pub(super) log: Option<Arc<DirtyLog>>,
    pub(super) call: Option<Arc<OwnedFd>>,
    pub(super) err: Option<Arc<OwnedFd>>,
    pub(super) manner: Manner,
    /// The connection to the front end, which is cut when it takes memory away.
    pub(super) front_end: Option<Arc<UnixStream>>,
    /// For the log: whose queue it is.
    pub(super) name: Arc<str>,
}

/// See the module.
pub(super) struct Queue<V> {
    volume: V,
    manner: Manner,
    name: Arc<str>,
    index: usize,
    front_end: Option<Arc<UnixStream>>,
    reactor: Reactor,
    gathers: Reserve,
    state: RefCell<State>,
    /// Requests that were taken and not handed back.
    under_way: Cell<usize>,
    /// Requests that were taken since the beginning.
    taken: Cell<u64>,
    /// Wakes the queue's task where it waits.
    pub(super) changed: Notify,
    /// No more requests are taken.
    stopping: Cell<bool>,
}

struct State {
    ring: Ring,
    addresses: Addresses,
    memory: Rc<GuestMemory>,
    inflight: Option<Inflight>,
    /// Requests of an earlier life, to be begun before new ones.
    unanswered: std::vec::IntoIter<u16>,
    log: Option<Arc<DirtyLog>>,
    call: Option<Arc<OwnedFd>>,
    err: Option<Arc<OwnedFd>>,
    enabled: bool,
    broken: bool,
    chain: Chain,
}

/// A request that was taken. Dropped without [`Queue::hand_back`], it stays marked as under way.
pub(super) struct Ticket {
    head: u16,
    status: Option<Piece>,
    operation: Result<Operation, Status>,
    memory: Rc<GuestMemory>,
}

/// How requests are carried out: by [`Queue::carry_out`], whose futures have no name, in places that are used again.
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

/// Where a request begins, and whether it reads.
struct Beginning {
    offset: u64,
    reads: bool,
}

impl Ticket {
    /// Where it begins, if it reads or writes.
    fn place(&self) -> Option<Beginning> {
        match &self.operation {
            Ok(Operation::Read { offset, .. }) => Some(Beginning { offset: *offset, reads: true }),
            Ok(Operation::Write { offset, .. }) => Some(Beginning { offset: *offset, reads: false }),
            _ => None,
        }
    }
}

impl<V: Volume + 'static> Queue<V> {
    /// A queue on the reactor of this thread. Nothing happens before [`Queue::turn`].
    ///
    /// # Errors
    /// When the queue is nowhere in the guest's memory.
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
                "requests that an earlier daemon left unanswered are carried out again");
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
        // Interrupts of an earlier life may have been lost.
        queue.interrupt();
        Ok(Rc::new(queue))
    }

    /// Hands back what has ended and begins what there is. True if there was anything.
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

    /// Begins some requests, one after the other. While one is carried out, what the next one needs is on its way.
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

    /// Asks the guest for notifications. True if it will give one for the next request, and there is none now.
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

    /// Takes the wish for notifications back.
    pub(super) fn disarm(&self) {
        self.state.borrow_mut().ring.disarm();
    }

    /// Takes requests, up to a batch. True if there may be more.
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
            // What was read may be zeros that nobody wrote. The request stays marked as under way.
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
        tracing::debug!(device = %self.name, queue = self.index, head, "a guest made a request that is none");
    }

    fn break_down(&self, state: &mut State, error: BadRing) {
        // Zeros in the place of a ring look like other mistakes.
        let error = if state.is_lost() { BadRing::Lost } else { error };
        tracing::warn!(device = %self.name, queue = self.index, %error, "a queue is broken and is not served any more");
        state.broken = true;
        if let (BadRing::Lost, Some(front_end)) = (error, &self.front_end) {
            // Fails only if the front end is gone.
            let _ = front_end.shutdown(Shutdown::Both);
        }
        if let Some(err) = &state.err {
            signal(err);
        }
    }

    /// Begins a request. What need not wait is done at once.
    fn begin<F: Future<Output = ()> + 'static>(self: &Rc<Self>, ticket: Ticket, works: &Works<V, F>) {
        if let Err(status) = ticket.operation {
            return self.hand_back(&ticket, status, 0);
        }
        if let Some(rest) = works.spares.begin((works.carry_out)(self.clone(), ticket)) {
            self.reactor.spawn(rest).detach();
        }
    }

    /// Carries a request out, and hands it back.
    pub(super) async fn carry_out(self: Rc<Self>, ticket: Ticket) {
        let Ok(operation) = &ticket.operation else { return };
        let (volume, manner, gathers) = (&self.volume, &self.manner, &self.gathers);
        let means = Means { volume, memory: &ticket.memory, manner, gathers };
        match means.execute(operation).await {
            Ok(written) => self.hand_back(&ticket, Status::Ok, written),
            Err(status) => self.hand_back(&ticket, status, 0),
        }
    }

    /// Answers a request, which has written `written` bytes of data. The guest is told with the next [`Queue::turn`]. One whose
    /// memory was taken away is not answered: what was written may be zeros instead of the guest's data.
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

    /// Shows the guest what was handed back. True if there was anything.
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

    /// Takes no more requests.
    pub(super) fn stop(&self) {
        self.stopping.set(true);
        self.changed.notify();
    }

    /// True if it was told to stop and everything that it took has been handed back.
    pub(super) fn has_stopped(&self) -> bool {
        let state = self.state.borrow();
        let done = state.unanswered.as_slice().is_empty() || !state.is_served();
        self.stopping.get() && done && self.under_way.get() == 0 && !state.ring.has_unpublished()
    }

    /// Requests that were taken since the beginning.
    pub(super) fn taken(&self) -> u64 {
        self.taken.get()
    }

    /// The available entry that comes next, for whoever goes on with the queue.
    pub(super) fn next(&self) -> u16 {
        self.state.borrow().ring.next()
    }

    /// Takes requests or not.
    pub(super) fn set_enabled(&self, enabled: bool) {
        self.state.borrow_mut().enabled = enabled;
        self.changed.notify();
    }

    /// Sends interrupts elsewhere, one at once: some may have gone nowhere.
    pub(super) fn set_call(&self, call: Option<Arc<OwnedFd>>) {
        self.state.borrow_mut().call = call;
        self.interrupt();
    }

    /// Tells elsewhere that the queue is broken.
    pub(super) fn set_err(&self, err: Option<Arc<OwnedFd>>) {
        self.state.borrow_mut().err = err;
    }

    /// Marks changed memory in this log, or not any more.
    pub(super) fn set_log(&self, log: Option<Arc<DirtyLog>>, addresses: Addresses) {
        let mut state = self.state.borrow_mut();
        state.log = log;
        state.addresses.log = addresses.log;
    }

    /// Goes on with another table of the guest's memory; what is under way keeps the old one.
    ///
    /// # Errors
    /// When the queue does not lie in it.
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
    /// Refuses to go on when the front end has taken memory away.
    fn check_there(&self) -> Result<(), BadRing> {
        if self.is_lost() { Err(BadRing::Lost) } else { Ok(()) }
    }

    /// True if the front end has taken memory away.
    fn is_lost(&self) -> bool {
        self.memory.is_lost()
            || self.inflight.as_ref().is_some_and(Inflight::is_lost)
            || self.log.as_ref().is_some_and(|log| log.is_lost())
    }

    /// True if requests are carried out.
    fn is_served(&self) -> bool {
        self.enabled && !self.broken
    }

    /// The first descriptor of the next request to begin. What an earlier life has taken comes first, and is finished even
    /// when nothing more is taken.
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

    /// Reads the request whose chain begins at `head`.
    fn read_request(&mut self, head: u16, terms: &Terms, on_bad: impl Fn()) -> Ticket {
        let walked = self.chain.walk(self.ring.descriptors(), head, &self.memory);
        let request = Request::parse(&mut self.chain, &self.memory, terms);
        if walked.is_err() || request.is_none() {
            on_bad();
        }
        let memory = self.memory.clone();
        match request {
            Some(Request { operation, status }) => {
                // What could be read of a broken chain is not done.
                let operation = if walked.is_ok() { operation } else { Err(Status::IoError) };
                Ticket { head, status: Some(status), operation, memory }
            }
            None => Ticket { head, status: None, operation: Err(Status::IoError), memory },
        }
    }

    /// Marks what a request has changed, whether it ended well or not.
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

    /// Shows the guest what was handed back. True if it wants an interrupt.
    fn publish(&mut self) -> bool {
        let due = self.ring.publish();
        if let Some(inflight) = &mut self.inflight {
            inflight.published(self.ring.used_index());
        }
        if let (Some(log), Some(guest)) = (&self.log, self.addresses.log) {
            // What was written may lie anywhere in it; a used ring is a page or a few.
            log.mark(guest, self.ring.used_bytes());
        }
        due
    }
}

/// Raises an event. If it cannot be raised any further, whoever waits for it has been told often enough.
fn signal(event: &OwnedFd) {
    #[allow(clippy::host_endian_bytes, reason = "the kernel reads a number of this machine")]
    let one = 1u64.to_ne_bytes();
    let _ = rustix::io::write(event, &one);
}

#[cfg(test)]
#[path = "queue_tests.rs"]
mod tests;
