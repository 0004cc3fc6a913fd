//! A session in its full feature phase: commands in, responses out.
//!
//! Always true: each command that was received is answered exactly once, unless it is aborted or
//! the connection ends before; commands begin in the order of their numbers; the requests in flight
//! are within the budget; a request that has begun on a volume is completed.
//!
//! Must not know how commands are executed.

use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::future::Future;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;

use reactor::{Reactor, Span, Stream};

use super::control::SessionControl;
use super::disconnect::SessionCloseReason;
use super::limits::{COMMANDS, IMMEDIATE_COMMANDS, YIELD_BYTES};
use super::nexus::Nexus;
use super::open_units::OpenUnits;
use super::parameters::SessionParameters;
use super::pdu_reader::IscsiReader;
use super::scsi::{ScsiRequest, Sense, scratch_of};
use super::shared::{IscsiShared, UnsolicitedPermit};
use super::target::IscsiTarget;
use super::tasks::Task;
use super::transfers::{TransferStep, WriteTransfer};
use super::wire::{HeaderFrame, InitiatorHeader, InitiatorOpcode, RejectReason, ReplyEncoder, Sequence};
use crate::poll_then_spawn::poll_then_spawn;
use crate::select::{Either, select};
use crate::transport::{Budget, Payload, SendQueue};
use crate::{Stop, VolumeSource};

/// A session in its full feature phase.
pub(super) struct IscsiSession<S: VolumeSource> {
    pub(super) shared: Rc<IscsiShared<S>>,
    /// The target; `None` for discovery.
    pub(super) target: Option<Arc<IscsiTarget<S>>>,
    pub(super) nexus: Arc<Nexus>,
    pub(super) control: Rc<SessionControl>,
    pub(super) units: OpenUnits<S>,
    pub(super) parameters: SessionParameters,
    pub(super) encoder: ReplyEncoder,
    pub(super) send_queue: SendQueue,
    pub(super) budget: Rc<Budget>,
    /// The number of the next command.
    pub(super) expected: Cell<u32>,
    /// The number of the next status.
    pub(super) status: Cell<u32>,
    /// The rest of a text answer, and the request's tag.
    pub(super) text: RefCell<Vec<u8>>,
    /// Raised by a logout, whose response is the last one.
    pub(super) logged_out: Stop,
    /// The address by which the initiator reached the target.
    pub(super) reached: std::net::SocketAddr,
    pub(super) connection: u16,
    reactor: Reactor,
    _permit: Option<UnsolicitedPermit>,
}

/// The parts that a login has determined.
pub(super) struct SessionOptions<S> {
    pub(super) target: Option<Arc<IscsiTarget<S>>>,
    pub(super) nexus: Arc<Nexus>,
    pub(super) control: Rc<SessionControl>,
    pub(super) parameters: SessionParameters,
    pub(super) permit: Option<UnsolicitedPermit>,
    pub(super) command_number: u32,
    pub(super) status_number: u32,
    pub(super) reached: std::net::SocketAddr,
    pub(super) connection: u16,
}

impl<S: VolumeSource> IscsiSession<S> {
    pub(super) fn new(options: SessionOptions<S>, shared: &Rc<IscsiShared<S>>) -> Rc<Self> {
        let SessionOptions { target, nexus, control, parameters, permit, .. } = options;
        let requests = 2 * COMMANDS as usize;
        Rc::new(Self {
            shared: shared.clone(),
            units: OpenUnits::new(shared.clone(), target.clone(), nexus.clone()),
            target,
            nexus,
            control,
            encoder: ReplyEncoder { digests: parameters.digests },
            parameters,
            send_queue: SendQueue::default(),
            budget: Budget::new(requests, shared.limits.payload_bytes, &shared.reserve),
            expected: Cell::new(options.command_number),
            status: Cell::new(options.status_number),
            text: RefCell::default(),
            logged_out: Stop::default(),
            reached: options.reached,
            connection: options.connection,
            reactor: Reactor::current(),
            _permit: permit,
        })
    }

    /// Serves commands until the initiator or `stop` ends the connection, then completes the
    /// requests in flight and sends the last responses.
    pub(super) async fn run(
        self: &Rc<Self>,
        reader: &mut IscsiReader,
        stream: &Stream,
        stop: &Stop,
    ) -> SessionCloseReason {
        // One future for both selects: a send in flight must be completed.
        let mut sending = pin!(self.send_queue.send_all(stream));
        let receive = select(self.receive(reader, stop), self.request_data());
        let end = match select(receive, sending.as_mut()).await {
            Either::Left(Either::Left(Err(end))) => end,
            Either::Right(Err(error)) => return error.into(),
        };
        self.control.abandon_transfers();
        if !end.is_orderly() {
            return end;
        }
        let finish = async {
            if matches!(end, SessionCloseReason::Stopped | SessionCloseReason::Ended(_)) {
                self.announce_close().await;
            }
            // A request is released when its response has been sent.
            self.budget.idle().await;
        };
        match select(finish, sending).await {
            Either::Right(Err(error)) if end != SessionCloseReason::Closed => error.into(),
            _ => end,
        }
    }

    /// Waits until no more commands are accepted.
    pub(super) async fn cancelled(&self, stop: &Stop) -> SessionCloseReason {
        let control = &self.control;
        match select(self.logged_out.raised(), select(stop.raised(), control.stop.raised())).await {
            Either::Left(()) => SessionCloseReason::LoggedOut,
            Either::Right(Either::Left(())) => SessionCloseReason::Stopped,
            Either::Right(Either::Right(())) => {
                SessionCloseReason::Ended(control.reason.get().unwrap_or("the session ended"))
            }
        }
    }

    async fn request_data(&self) -> Infallible {
        loop {
            let request = self.control.transfers.grant().await;
            self.send_data_request(request);
        }
    }

    async fn receive(
        self: &Rc<Self>,
        reader: &mut IscsiReader,
        stop: &Stop,
    ) -> Result<Infallible, SessionCloseReason> {
        let mut transferred = 0;
        let mut cancelled = pin!(self.cancelled(stop));
        loop {
            let next = async {
                reader.recv.settle(&self.budget).await;
                reader.next().await
            };
            let (header, frame) = match select(cancelled.as_mut(), next).await {
                Either::Left(end) => return Err(end),
                Either::Right(next) => next?,
            };
            transferred += self.receive_message(&header, frame, reader).await?;
            if transferred >= YIELD_BYTES {
                // Lets the responses of commands be sent that completed at once.
                self.reactor.yield_now().await;
                transferred = 0;
            }
        }
    }

    /// Receives the rest of a message and begins its work. Returns the bytes that it transfers.
    async fn receive_message(
        self: &Rc<Self>,
        header: &InitiatorHeader,
        frame: HeaderFrame,
        reader: &mut IscsiReader,
    ) -> Result<u32, SessionCloseReason> {
        let opcode = header.opcode();
        if opcode == InitiatorOpcode::Data {
            return self.receive_data(header, frame, reader).await;
        }
        if opcode == InitiatorOpcode::Unknown || opcode == InitiatorOpcode::Snack {
            reader.skip(frame).await?;
            self.reject(RejectReason::Unsupported, header).await;
            return Ok(0);
        }
        if !header.is_immediate() && !self.take_number(header.command_number())? {
            reader.skip(frame).await?;
            return Ok(0);
        }
        match opcode {
            InitiatorOpcode::Command => return self.receive_command(header, frame, reader).await,
            InitiatorOpcode::Ping => self.receive_ping(header, reader.payload(frame).await?).await,
            InitiatorOpcode::Text => {
                let text = reader.bytes(frame).await?;
                self.receive_text(header, &text).await;
            }
            InitiatorOpcode::Logout => {
                reader.skip(frame).await?;
                self.log_out(header).await;
            }
            InitiatorOpcode::TaskManagement => {
                reader.skip(frame).await?;
                let charge = self.budget.charge_request(0).await;
                self.spawn(self.clone().manage_tasks(*header, charge));
            }
            _ => return Err(SessionCloseReason::Violation("a login after the login")),
        }
        Ok(0)
    }

    /// Takes the number of a command. Returns false for a number outside of the window.
    fn take_number(&self, number: u32) -> Result<bool, SessionCloseReason> {
        let (expected, max) = (self.expected.get(), self.sequence().max);
        if number == expected && max.wrapping_sub(expected) < COMMANDS {
            self.expected.set(expected.wrapping_add(1));
            return Ok(true);
        }
        // Numbers wrap around: those of the window are at a distance below its size.
        match number.wrapping_sub(expected) <= max.wrapping_sub(expected)
            && max.wrapping_sub(expected) < COMMANDS
        {
            true => Err(SessionCloseReason::Violation("a command is missing")),
            false => Ok(false),
        }
    }

    /// The numbers that the next message without a status acknowledges.
    pub(super) fn sequence(&self) -> Sequence {
        let (expected, free) = (self.expected.get(), COMMANDS.saturating_sub(self.control.tasks.windowed()));
        let max = expected.wrapping_add(free).wrapping_sub(1);
        Sequence { status: self.status.get(), expected, max }
    }

    /// The numbers of a message with a status.
    pub(super) fn next_status(&self) -> Sequence {
        let sequence = self.sequence();
        self.status.set(sequence.status.wrapping_add(1));
        sequence
    }

    /// Receives the rest of a SCSI command and begins it. Returns the bytes that it transfers.
    async fn receive_command(
        self: &Rc<Self>,
        header: &InitiatorHeader,
        frame: HeaderFrame,
        reader: &mut IscsiReader,
    ) -> Result<u32, SessionCloseReason> {
        if header.is_immediate() && self.control.tasks.len() >= COMMANDS as usize + IMMEDIATE_COMMANDS {
            reader.skip(frame).await?;
            self.reject(RejectReason::TooManyImmediate, header).await;
            return Ok(0);
        }
        if self.target.is_none() {
            return Err(SessionCloseReason::Violation("a command in a discovery session"));
        }
        let task = self.control.tasks.begin(header);
        let task = task.ok_or(SessionCloseReason::Violation("a tag that is in use"))?;
        let request = ScsiRequest::of(header);
        if header.writes() && !header.reads() {
            return self.receive_write(header, frame, reader, task, request).await;
        }
        reader.skip(frame).await?;
        let length = if header.reads() { request.memory() } else { 0 };
        let charge = self.budget.charge_request(length + scratch_of(&request)).await;
        let transfers = u32::try_from(length).unwrap_or(0);
        match header.reads() && header.writes() {
            true => self.fail(&task, &request, Sense::INVALID_FIELD, charge),
            false => self.spawn(self.clone().execute_scsi(task, request, None, charge)),
        }
        Ok(transfers)
    }

    async fn receive_write(
        self: &Rc<Self>,
        header: &InitiatorHeader,
        frame: HeaderFrame,
        reader: &mut IscsiReader,
        task: Rc<Task>,
        request: ScsiRequest,
    ) -> Result<u32, SessionCloseReason> {
        let length = header.expected_length();
        let first_burst = self.parameters.first_burst_max.min(length);
        if frame.data > 0 && !self.parameters.immediate_data || frame.data > first_burst as usize {
            return Err(SessionCloseReason::Violation("data with a command that carries none"));
        }
        if !header.is_final() && self.parameters.initial_r2t {
            return Err(SessionCloseReason::Violation("data that was not requested"));
        }
        if request.is_too_long() {
            // Data that arrives without a request has no task.
            reader.skip(frame).await?;
            let charge = self.budget.charge_request(0).await;
            self.fail(&task, &request, Sense::INVALID_FIELD, charge);
            return Ok(0);
        }
        let scratch = scratch_of(&request);
        let charge = self.budget.charge_request(frame.data + scratch).await;
        let payload = reader.payload(frame).await?;
        if frame.data == length as usize {
            self.spawn(self.clone().execute_scsi(task, request, Some(payload), charge));
            return Ok(length);
        }
        let first = if header.is_final() { frame.data as u32 } else { first_burst };
        let transfer = WriteTransfer::new(task, request, charge, length, &payload.data, first);
        match header.is_final() {
            true => self.control.transfers.push(transfer),
            false => self.control.transfers.receive_first(transfer),
        }
        Ok(frame.data as u32)
    }

    /// Receives data of a write, and begins the write once its data is complete. Returns the bytes
    /// received.
    async fn receive_data(
        self: &Rc<Self>,
        header: &InitiatorHeader,
        frame: HeaderFrame,
        reader: &mut IscsiReader,
    ) -> Result<u32, SessionCloseReason> {
        let taken = match self.control.transfers.take(header, frame.data) {
            Ok(taken) => taken,
            Err(transfer) => {
                reader.skip(frame).await?;
                self.fail_transfer(*transfer);
                return Ok(0);
            }
        };
        let Some((transfer, part)) = taken else {
            reader.skip(frame).await?;
            return Ok(0);
        };
        reader.fill(frame, &part).await?;
        if transfer.task.is_aborted() {
            self.control.transfers.forget(header);
            self.control.tasks.end(&transfer.task);
            return Ok(0);
        }
        match self.control.transfers.put_back(header, transfer) {
            Ok(TransferStep::Wait) => {}
            Ok(TransferStep::Request(request)) => self.send_data_request(request),
            Ok(TransferStep::Complete(transfer, memory)) => self.begin_write(*transfer, memory),
            Err(transfer) => self.fail_transfer(*transfer),
        }
        Ok(frame.data as u32)
    }

    /// Fails a write whose data did not arrive in order.
    fn fail_transfer(&self, transfer: WriteTransfer) {
        let WriteTransfer { task, request, charge, .. } = transfer;
        self.fail(&task, &request, Sense::DATA_PHASE, charge);
    }

    fn begin_write(self: &Rc<Self>, transfer: WriteTransfer, memory: Span) {
        let WriteTransfer { task, request, charge, window, length, .. } = transfer;
        let data = Payload::owned(memory.slice(0..length as usize));
        let session = self.clone();
        self.spawn(async move {
            session.execute_scsi(task, request, Some(data), charge).await;
            drop(window);
        });
    }

    /// Begins work that completes even if the connection ends. Work that is ready at once needs no
    /// task, and its response is batched with others.
    pub(super) fn spawn(&self, work: impl Future<Output = ()> + 'static) {
        poll_then_spawn(&self.reactor, work);
    }
}
