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
use super::execute::{DeviceOptions, RequestContext};
use super::future_pool::FuturePool;
use super::inflight::Inflight;
use super::limits::{BATCH, BOUNCE_BYTES_MAX};
use super::memory::{GuestMemory, GuestSegment};
use super::request::{BlkOperation, BlkRequest, BlkStatus, DeviceLimits};
use super::ring::{Ring, RingAddresses, RingError};
use crate::Volume;
use crate::reserve::Reserve;

/// Requests that a queue takes before other tasks run.
const REQUESTS_PER_PASS: u16 = 64;

/// The parameters of a new queue.
pub(super) struct QueueSetup {
    pub(super) index: usize,
    pub(super) addresses: RingAddresses,
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
    pub(super) options: DeviceOptions,
    /// The connection to the front end. It is cut if the front end removes memory.
    pub(super) front_end: Option<Arc<UnixStream>>,
    /// Name of the device, for the log.
    pub(super) name: Arc<str>,
}

/// A virtqueue on its reactor.
pub(super) struct VirtQueue<V> {
    volume: V,
    options: DeviceOptions,
    name: Arc<str>,
    index: usize,
    front_end: Option<Arc<UnixStream>>,
    reactor: Reactor,
    bounce_buffers: Reserve,
    state: RefCell<State>,
    /// Requests that were taken and not completed.
    in_flight: Cell<usize>,
    /// Requests taken since the start.
    taken: Cell<u64>,
    /// Wakes the queue's task.
    pub(super) changed: Notify,
    /// No more requests are taken.
    stopping: Cell<bool>,
}

struct State {
    ring: Ring,
    addresses: RingAddresses,
    memory: Rc<GuestMemory>,
    inflight: Option<Inflight>,
    /// Requests that an earlier process left, to be executed before new ones.
    incomplete: std::vec::IntoIter<u16>,
    log: Option<Arc<DirtyLog>>,
    call: Option<Arc<OwnedFd>>,
    err: Option<Arc<OwnedFd>>,
    enabled: bool,
    broken: bool,
    chain: Chain,
}

/// A request that was taken. If it is dropped without [`VirtQueue::complete`], it stays marked as
/// in flight.
pub(super) struct PendingRequest {
    head: u16,
    status: Option<GuestSegment>,
    operation: Result<BlkOperation, BlkStatus>,
    memory: Rc<GuestMemory>,
}

/// Executes requests in reused slots. `F` is the unnameable future type of
/// [`VirtQueue::execute_request`].
pub(super) struct Dispatcher<V, F> {
    execute_request: fn(Rc<VirtQueue<V>>, PendingRequest) -> F,
    pool: Rc<FuturePool<F>>,
}

impl<V, F: Future<Output = ()> + 'static> Dispatcher<V, F> {
    pub(super) fn new(execute_request: fn(Rc<VirtQueue<V>>, PendingRequest) -> F) -> Self {
        Self { execute_request, pool: FuturePool::new() }
    }
}

/// Requests that were taken together.
type Batch = SmallVec<[PendingRequest; BATCH as usize]>;

impl PendingRequest {
    /// Returns the offset of a read or write.
    fn offset(&self) -> Option<u64> {
        match &self.operation {
            Ok(BlkOperation::Read { offset, .. } | BlkOperation::Write { offset, .. }) => Some(*offset),
            _ => None,
        }
    }
}

impl<V: Volume + 'static> VirtQueue<V> {
    /// Creates a queue on this thread's reactor. Nothing happens before [`VirtQueue::process`].
    ///
    /// # Errors
    /// Fails if the rings are not in the guest's memory.
    pub(super) fn new(setup: QueueSetup, volume: V) -> Result<Rc<Self>, RingError> {
        let memory = setup.memory.independent();
        let mut ring = Ring::new(&setup.addresses, setup.size, setup.next, setup.event_index, &memory)?;
        let mut inflight = setup.inflight;
        let mut incomplete = Vec::new();
        if let Some(inflight) = &mut inflight {
            let recovery = inflight.resume(ring.used_index());
            if let Some(next) = recovery.next {
                ring.set_next(next);
            }
            incomplete = recovery.incomplete;
        }
        ring.disarm();
        if !incomplete.is_empty() {
            tracing::info!(device = %setup.name, queue = setup.index, requests = incomplete.len(),
                "executing requests again that an earlier daemon did not complete");
        }
        let state = State {
            ring,
            addresses: setup.addresses,
            memory: Rc::new(memory),
            inflight,
            incomplete: incomplete.into_iter(),
            log: setup.log,
            call: setup.call,
            err: setup.err,
            enabled: setup.enabled,
            broken: false,
            chain: Chain::default(),
        };
        let queue = Self {
            volume,
            options: setup.options,
            name: setup.name,
            index: setup.index,
            front_end: setup.front_end,
            reactor: Reactor::current(),
            bounce_buffers: Reserve::new(BOUNCE_BYTES_MAX),
            state: RefCell::new(state),
            in_flight: Cell::new(0),
            taken: Cell::new(0),
            changed: Notify::default(),
            stopping: Cell::new(false),
        };
        // Interrupts of an earlier process may have been lost.
        queue.interrupt();
        Ok(Rc::new(queue))
    }

    /// Publishes completed requests and begins available ones. Returns true if there were any.
    pub(super) fn process<F: Future<Output = ()> + 'static>(
        self: &Rc<Self>,
        dispatcher: &Dispatcher<V, F>,
    ) -> bool {
        let mut worked = self.publish();
        let limits = self.device_limits();
        for _ in 0..REQUESTS_PER_PASS / BATCH {
            let mut batch = SmallVec::new();
            let more = self.take(&limits, &mut batch);
            if batch.is_empty() {
                break;
            }
            self.taken.set(self.taken.get() + batch.len() as u64);
            self.begin_batch(batch, dispatcher);
            self.publish();
            worked = true;
            if !more {
                break;
            }
        }
        worked
    }

    /// Begins requests, one after the other, after the volume has prefetched for all of them.
    fn begin_batch<F: Future<Output = ()> + 'static>(
        self: &Rc<Self>,
        batch: Batch,
        dispatcher: &Dispatcher<V, F>,
    ) {
        if batch.len() > 1 {
            let offsets = batch.iter().filter_map(PendingRequest::offset);
            offsets.for_each(|offset| self.volume.prefetch_hint(offset));
        }
        for pending in batch {
            self.begin(pending, dispatcher);
        }
    }

    /// Requests notifications from the guest. Returns true if the next request will cause one, and
    /// none is available now.
    pub(super) fn arm(&self) -> bool {
        let mut state = self.state.borrow_mut();
        if !state.is_active() || self.stopping.get() {
            return true;
        }
        match state.ring.arm().and_then(|armed| state.check_mapped().map(|()| armed)) {
            Ok(armed) => armed && state.incomplete.as_slice().is_empty(),
            Err(error) => {
                self.mark_broken(&mut state, error);
                true
            }
        }
    }

    /// Cancels the request for notifications.
    pub(super) fn disarm(&self) {
        self.state.borrow_mut().ring.disarm();
    }

    /// Takes requests, up to a batch. Returns true if there may be more.
    fn take(&self, limits: &DeviceLimits, batch: &mut Batch) -> bool {
        let mut state = self.state.borrow_mut();
        let state = &mut *state;
        while batch.len() < usize::from(BATCH) {
            let head = match state.next_head(self.stopping.get()) {
                Ok(Some(head)) => head,
                Ok(None) => return false,
                Err(error) => {
                    self.mark_broken(state, error);
                    return false;
                }
            };
            let pending = state.read_request(head, limits, || self.log_invalid(head));
            // The values read may be zeros that the guest did not write. The request stays marked
            // as in flight.
            if let Err(error) = state.check_mapped() {
                self.mark_broken(state, error);
                return false;
            }
            self.in_flight.set(self.in_flight.get() + 1);
            batch.push(pending);
        }
        true
    }

    fn device_limits(&self) -> DeviceLimits {
        DeviceLimits {
            size: self.volume.size(),
            sector: self.volume.sector(),
            read_only: self.volume.read_only(),
        }
    }

    fn log_invalid(&self, head: u16) {
        tracing::debug!(device = %self.name, queue = self.index, head, "invalid request from guest");
    }

    fn mark_broken(&self, state: &mut State, error: RingError) {
        // Zeros in place of a ring look like other errors.
        let error = if state.is_lost() { RingError::Lost } else { error };
        tracing::warn!(device = %self.name, queue = self.index, %error, "the queue is broken and no longer served");
        state.broken = true;
        if let (RingError::Lost, Some(front_end)) = (error, &self.front_end) {
            // Fails only if the front end is gone.
            let _ = front_end.shutdown(Shutdown::Both);
        }
        if let Some(err) = &state.err {
            signal(err);
        }
    }

    /// Begins a request. Work that need not wait is done immediately.
    fn begin<F: Future<Output = ()> + 'static>(
        self: &Rc<Self>,
        pending: PendingRequest,
        dispatcher: &Dispatcher<V, F>,
    ) {
        if let Err(status) = pending.operation {
            return self.complete(&pending, status, 0);
        }
        if let Some(rest) = dispatcher.pool.poll_once((dispatcher.execute_request)(self.clone(), pending)) {
            self.reactor.spawn(rest).detach();
        }
    }

    /// Executes a request and completes it.
    pub(super) async fn execute_request(self: Rc<Self>, pending: PendingRequest) {
        let Ok(operation) = &pending.operation else { return };
        let (volume, options, bounce_buffers) = (&self.volume, &self.options, &self.bounce_buffers);
        let context = RequestContext { volume, memory: &pending.memory, options, bounce_buffers };
        match context.execute(operation).await {
            Ok(written) => self.complete(&pending, BlkStatus::Ok, written),
            Err(status) => self.complete(&pending, status, 0),
        }
    }

    /// Completes a request that has written `written` bytes of data. The next
    /// [`VirtQueue::process`] publishes it. A request with lost memory is not completed: zeros may
    /// have been written in place of the guest's data.
    fn complete(&self, pending: &PendingRequest, status: BlkStatus, written: u32) {
        let mut state = self.state.borrow_mut();
        let mut len = 0;
        let mut lost = pending.memory.is_lost() || state.is_lost();
        if let (Some(segment), false) = (&pending.status, lost) {
            pending.memory.write_byte(segment, status as u8);
            len = written.saturating_add(1);
        }
        state.log_changes(pending);
        lost |= pending.memory.is_lost() || state.is_lost();
        if !lost {
            state.ring.push(pending.head, len);
            if let Some(inflight) = &mut state.inflight {
                inflight.end(pending.head);
            }
        } else if !state.broken {
            self.mark_broken(&mut state, RingError::Lost);
        }
        drop(state);
        self.in_flight.set(self.in_flight.get() - 1);
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
        let done = state.incomplete.as_slice().is_empty() || !state.is_active();
        self.stopping.get() && done && self.in_flight.get() == 0 && !state.ring.has_unpublished()
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
    pub(super) fn set_log(&self, log: Option<Arc<DirtyLog>>, addresses: RingAddresses) {
        let mut state = self.state.borrow_mut();
        state.log = log;
        state.addresses.log = addresses.log;
    }

    /// Continues with another table of the guest's memory. Requests in flight keep the old one.
    ///
    /// # Errors
    /// Fails if the rings are not in the new memory.
    pub(super) fn set_memory(&self, memory: &GuestMemory) -> Result<(), RingError> {
        let mut state = self.state.borrow_mut();
        let memory = memory.independent();
        let remapped = state.ring.remapped(&state.addresses, &memory)?;
        state.ring = remapped;
        state.memory = Rc::new(memory);
        Ok(())
    }
}

impl State {
    /// Returns an error if the front end has removed memory.
    fn check_mapped(&self) -> Result<(), RingError> {
        if self.is_lost() { Err(RingError::Lost) } else { Ok(()) }
    }

    /// Returns true if the front end has removed memory.
    fn is_lost(&self) -> bool {
        self.memory.is_lost()
            || self.inflight.as_ref().is_some_and(Inflight::is_lost)
            || self.log.as_ref().is_some_and(|log| log.is_lost())
    }

    /// Returns true if requests are executed.
    fn is_active(&self) -> bool {
        self.enabled && !self.broken
    }

    /// Returns the first descriptor of the next request to begin. Requests of an earlier process
    /// come first, and are executed even after a stop.
    fn next_head(&mut self, stopping: bool) -> Result<Option<u16>, RingError> {
        if !self.is_active() {
            return Ok(None);
        }
        if let Some(head) = self.incomplete.next() {
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
    fn read_request(&mut self, head: u16, limits: &DeviceLimits, on_invalid: impl Fn()) -> PendingRequest {
        let walked = self.chain.walk(self.ring.descriptors(), head, &self.memory);
        let request = BlkRequest::parse(&mut self.chain, &self.memory, limits);
        if walked.is_err() || request.is_none() {
            on_invalid();
        }
        let memory = self.memory.clone();
        match request {
            Some(BlkRequest { operation, status }) => {
                // A broken chain is not executed, even if a request could be read.
                let operation = if walked.is_ok() { operation } else { Err(BlkStatus::IoError) };
                PendingRequest { head, status: Some(status), operation, memory }
            }
            None => PendingRequest { head, status: None, operation: Err(BlkStatus::IoError), memory },
        }
    }

    /// Marks the memory that a request has changed, successful or not.
    fn log_changes(&self, pending: &PendingRequest) {
        let Some(log) = &self.log else { return };
        let data = match &pending.operation {
            Ok(BlkOperation::Read { into, .. } | BlkOperation::Id { into, .. }) => into.as_slice(),
            _ => &[],
        };
        for segment in data.iter().chain(&pending.status) {
            log.mark(pending.memory.guest_address(segment), segment.len.into());
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
