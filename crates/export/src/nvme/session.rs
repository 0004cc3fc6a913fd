//! A connected queue: commands in, responses out.
//!
//! Always true: each command that was received is answered exactly once, unless the connection ends
//! before; the requests in flight are within the budget; a request that has begun on a volume is
//! completed.
//!
//! Must not know how commands are executed.

use std::cell::Cell;
use std::convert::Infallible;
use std::future::Future;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;

use reactor::Reactor;

use super::disconnect::QueueCloseReason;
use super::fused::{FusedOrder, FusedPair, FusedStep};
use super::limits::{ADMIN_CAPSULE_DATA, CAPSULE_DATA, TRANSFER_MAX, YIELD_BYTES};
use super::opcodes::FABRICS;
use super::opcodes::scratch_of;
use super::open_volumes::OpenVolumes;
use super::pdu_reader::{HostPdu, PduReader};
use super::pending::PendingCommand;
use super::queue_control::CommandAborter;
use super::queue_identity::QueueIdentity;
use super::request::{ReadyRequest, RequestData};
use super::shared::ServerShared;
use super::transfers::{HostTransfer, TransferPart, Transfers};
use super::wire::{DataLocation, FatalError, Frame, HostData, NvmeCommand, NvmeStatus, PduEncoder};
use crate::poll_then_spawn::poll_then_spawn;
use crate::reservation::ReservationRegistry;
use crate::select::{Either, select};
use crate::transport::{Budget, Link, Payload, QueuedReply, SendQueue};
use crate::{Stop, VolumeSource};

/// A connected queue.
pub(super) struct NvmeSession<S: VolumeSource> {
    pub(super) identity: QueueIdentity<S>,
    pub(super) encoder: PduEncoder,
    pub(super) volumes: OpenVolumes<S>,
    /// The reservations of all volumes.
    pub(super) reservations: Arc<ReservationRegistry>,
    pub(super) send_queue: SendQueue,
    pub(super) budget: Rc<Budget>,
    pub(super) transfers: Transfers,
    pub(super) fused: FusedOrder,
    /// The head of the submission queue.
    pub(super) head: Cell<u16>,
    /// Commands without a response.
    pub(super) outstanding: Cell<u32>,
    /// Abort commands in execution.
    pub(super) aborts: Cell<u8>,
    /// Raised by a disconnect command, whose response is the last one.
    pub(super) disconnected: Stop,
    reactor: Reactor,
}

impl<S: VolumeSource> NvmeSession<S> {
    /// Serves a queue that has received this many commands.
    pub(super) fn new(
        identity: QueueIdentity<S>,
        encoder: PduEncoder,
        commands: u32,
        shared: &Rc<ServerShared<S>>,
    ) -> Rc<Self> {
        let (limits, requests) = (&shared.limits, 2 * identity.entries as usize);
        let head = (commands % identity.entries) as u16;
        let session = Rc::new(Self {
            identity,
            encoder,
            volumes: OpenVolumes::new(shared.clone()),
            reservations: shared.reservations.clone(),
            send_queue: SendQueue::default(),
            budget: Budget::new(requests, limits.payload_bytes, &shared.reserve),
            transfers: Transfers::new(Budget::new(usize::MAX, limits.window_bytes, &shared.window)),
            fused: FusedOrder::default(),
            head: Cell::new(head),
            outstanding: Cell::new(0),
            aborts: Cell::new(0),
            disconnected: Stop::default(),
            reactor: Reactor::current(),
        });
        let own: Rc<dyn CommandAborter> = session.clone();
        session.identity.control.abort_by(Rc::downgrade(&own));
        session
    }

    /// Serves commands until the host or `stop` ends the connection, then completes the requests in
    /// flight and sends the last responses.
    pub(super) async fn run(
        self: &Rc<Self>,
        reader: &mut PduReader,
        link: &Link,
        stop: &Stop,
    ) -> QueueCloseReason {
        // One future for both selects: a send in flight must be completed.
        let mut sending = pin!(self.send_queue.send_all(link));
        let others = select(self.grant_transfers(), self.report_events());
        let end = match select(select(self.receive(reader, stop), others), sending.as_mut()).await {
            Either::Left(Either::Left(Err(end))) => end,
            Either::Right(Err(error)) => return error.into(),
        };
        self.transfers.clear();
        self.fused.clear();
        if !end.is_orderly() {
            return end;
        }
        // A request is released when its response has been sent.
        match select(self.budget.idle(), sending).await {
            Either::Right(Err(error)) if end != QueueCloseReason::Closed => error.into(),
            _ => end,
        }
    }

    /// Waits until no more commands are accepted.
    pub(super) async fn cancelled(&self, stop: &Stop) -> QueueCloseReason {
        let control = &self.identity.control;
        match select(self.disconnected.raised(), select(stop.raised(), control.stop.raised())).await {
            Either::Left(()) => QueueCloseReason::Disconnected,
            Either::Right(Either::Left(())) => QueueCloseReason::Stopped,
            Either::Right(Either::Right(())) => {
                QueueCloseReason::Ended(control.reason.get().unwrap_or("the controller ended"))
            }
        }
    }

    fn is_cancelled(&self, stop: &Stop) -> bool {
        self.disconnected.is_raised() || stop.is_raised() || self.identity.control.stop.is_raised()
    }

    async fn grant_transfers(&self) -> Infallible {
        loop {
            let granted = self.transfers.grant().await;
            let head = self.encoder.ready_to_transfer(granted.command, granted.tag, 0, granted.length);
            self.send_queue.push(QueuedReply::part(head));
        }
    }

    async fn report_events(&self) -> Infallible {
        loop {
            let (command, result) = self.identity.control.events.next().await;
            let charge = self.budget.empty_charge();
            self.complete_with(command, NvmeStatus::SUCCESS, result, charge);
        }
    }

    async fn receive(
        self: &Rc<Self>,
        reader: &mut PduReader,
        stop: &Stop,
    ) -> Result<Infallible, QueueCloseReason> {
        let mut transferred = 0;
        let mut cancelled = pin!(self.cancelled(stop));
        loop {
            let pdu = if reader.has_header() && !self.is_cancelled(stop) {
                // Without the costs of a wait.
                reader.next().await?
            } else {
                let next = async {
                    reader.recv.settle(&self.budget).await;
                    reader.next().await
                };
                match select(cancelled.as_mut(), next).await {
                    Either::Left(end) => return Err(end),
                    Either::Right(pdu) => pdu?,
                }
            };
            transferred += match pdu {
                HostPdu::Command { command, frame } => self.receive_command(&command, &frame, reader).await?,
                HostPdu::Data { header, frame } => self.receive_data(&header, &frame, reader).await?,
            };
            if transferred >= YIELD_BYTES {
                // Lets the responses of commands be sent that completed at once.
                self.reactor.yield_now().await;
                transferred = 0;
            }
        }
    }

    /// Receives the rest of a command and begins it. Returns the bytes that it transfers.
    async fn receive_command(
        self: &Rc<Self>,
        command: &NvmeCommand,
        frame: &Frame,
        reader: &mut PduReader,
    ) -> Result<u32, QueueCloseReason> {
        self.count()?;
        let pair = match self.pair_of(command) {
            Ok(pair) => pair,
            Err(status) => {
                reader.skip(frame).await?;
                let charge = self.budget.charge_request(0).await;
                self.complete_with(command.id(), status, 0, charge);
                return Ok(0);
            }
        };
        let scratch = if self.identity.is_admin() { 0 } else { scratch_of(command) };
        match self.data_of(command, frame) {
            CommandData::None { expected } => {
                let charge = self.budget.charge_request(expected as usize + scratch).await;
                self.begin(ReadyRequest { command: *command, charge, data: None }, pair.as_ref());
                Ok(expected)
            }
            CommandData::InCapsule => {
                let charge = self.budget.charge_request(frame.data + scratch).await;
                let (payload, is_intact) = reader.payload(frame).await?;
                if !is_intact {
                    self.fail_pair(pair.as_ref(), NvmeStatus::FAILED_FUSED);
                    self.complete_with(command.id(), NvmeStatus::TRANSPORT, 0, charge);
                    return Ok(0);
                }
                let data = Some(RequestData { payload, _charge: None });
                self.begin(ReadyRequest { command: *command, charge, data }, pair.as_ref());
                Ok(frame.data as u32)
            }
            CommandData::Requested { length } => {
                let charge = self.budget.charge_request(0).await;
                self.transfers.push(PendingCommand { command: *command, charge, pair }, length, scratch);
                Ok(0)
            }
            CommandData::Invalid(status) => {
                reader.skip(frame).await?;
                self.fail_pair(pair.as_ref(), NvmeStatus::FAILED_FUSED);
                let charge = self.budget.charge_request(0).await;
                self.complete_with(command.id(), status, 0, charge);
                Ok(0)
            }
        }
    }

    /// The pair of a fused command. Aborts an earlier command that has lost its partner.
    fn pair_of(&self, command: &NvmeCommand) -> Result<Option<Rc<FusedPair>>, NvmeStatus> {
        if self.identity.is_admin() || command.opcode() == FABRICS {
            return Ok(None);
        }
        let place = self.fused.place(command);
        self.fail_pair(place.orphan.as_ref(), NvmeStatus::MISSING_FUSED);
        place.pair
    }

    /// Aborts the commands of a pair.
    fn fail_pair(&self, pair: Option<&Rc<FusedPair>>, status: NvmeStatus) {
        if let Some(request) = pair.and_then(|pair| pair.fail(status)) {
            self.complete(request.command.id(), status, request.charge);
        }
    }

    /// Counts a command, which the queue must have an entry for.
    fn count(&self) -> Result<(), QueueCloseReason> {
        let entries = self.identity.entries;
        if self.outstanding.get() >= entries {
            return Err(QueueCloseReason::TooManyCommands);
        }
        self.outstanding.set(self.outstanding.get() + 1);
        let next = u32::from(self.head.get()) + 1;
        self.head.set(if next >= entries { 0 } else { next as u16 });
        self.identity.controller.note_activity();
        Ok(())
    }

    /// The place of a command's data.
    fn data_of(&self, command: &NvmeCommand, frame: &Frame) -> CommandData {
        let kind = if command.opcode() == FABRICS { command.fabrics_type() } else { command.opcode() };
        let from_host = kind & 3 == 1;
        let capsule_max = match self.identity.is_admin() || command.opcode() == FABRICS {
            true => ADMIN_CAPSULE_DATA,
            false => CAPSULE_DATA,
        };
        let place = command.data();
        match (place, frame.data) {
            (DataLocation::Capsule { offset: 1.., .. }, _) => CommandData::Invalid(NvmeStatus::SGL_OFFSET),
            (DataLocation::Capsule { length, .. }, data) if data > 0 => {
                if !from_host || length as usize != data || length > capsule_max {
                    return CommandData::Invalid(NvmeStatus::SGL_LENGTH);
                }
                CommandData::InCapsule
            }
            (_, 1..) => CommandData::Invalid(NvmeStatus::SGL_LENGTH),
            (DataLocation::Transport { length: length @ 1.. }, 0) if from_host => {
                if length > TRANSFER_MAX {
                    return CommandData::Invalid(NvmeStatus::INVALID_FIELD);
                }
                CommandData::Requested { length }
            }
            (DataLocation::Transport { length }, 0) if kind & 3 == 2 => {
                CommandData::None { expected: length.min(TRANSFER_MAX) }
            }
            (DataLocation::Capsule { length: 1.., .. }, 0) => CommandData::Invalid(NvmeStatus::SGL_LENGTH),
            (DataLocation::Unsupported, 0) if kind & 3 != 0 => CommandData::Invalid(NvmeStatus::SGL_TYPE),
            _ => CommandData::None { expected: 0 },
        }
    }

    /// Receives data that was requested, and begins its command once the data is complete. Returns
    /// the bytes received.
    async fn receive_data(
        self: &Rc<Self>,
        header: &HostData,
        frame: &Frame,
        reader: &mut PduReader,
    ) -> Result<u32, QueueCloseReason> {
        let (mut transfer, place) = self.transfers.take(header, frame.last)?;
        match place {
            TransferPart::Whole => {
                let (payload, is_intact) = reader.payload(frame).await?;
                transfer.is_intact = is_intact;
                match self.transfers.put_back(header.tag, transfer) {
                    Some((transfer, _)) => self.begin_transfer(transfer, payload),
                    None => return Err(FatalError::Sequence.into()),
                }
            }
            TransferPart::Within(part) => {
                transfer.is_intact &= reader.fill(frame, &part).await?;
                if let Some((transfer, Some(memory))) = self.transfers.put_back(header.tag, transfer) {
                    self.begin_transfer(transfer, Payload::owned(memory));
                }
            }
        }
        Ok(header.length)
    }

    fn begin_transfer(self: &Rc<Self>, transfer: HostTransfer, payload: Payload) {
        let HostTransfer { request, charge: window, is_intact, .. } = transfer;
        let PendingCommand { command, charge, pair } = request;
        if !is_intact {
            self.fail_pair(pair.as_ref(), NvmeStatus::FAILED_FUSED);
            return self.complete_with(command.id(), NvmeStatus::TRANSPORT, 0, charge);
        }
        let data = Some(RequestData { payload, _charge: Some(window) });
        self.begin(ReadyRequest { command, charge, data }, pair.as_ref());
    }

    fn begin(self: &Rc<Self>, request: ReadyRequest, pair: Option<&Rc<FusedPair>>) {
        if self.identity.control.is_ending() {
            // The host may have been told that its earlier commands have ended.
            return;
        }
        if let Some(pair) = pair {
            return match pair.put(request) {
                FusedStep::Wait => {}
                FusedStep::Execute(compare, write) => self.execute_fused(compare, write),
                FusedStep::Abort(request, status) => {
                    self.complete(request.command.id(), status, request.charge);
                }
            };
        }
        match self.identity.is_admin() || request.command.opcode() == FABRICS {
            true => self.spawn(self.clone().execute_admin(request)),
            false => self.execute_io(request),
        }
    }

    /// Begins work that completes even if the connection ends. Work that is ready at once needs no
    /// task, and its response is batched with others.
    pub(super) fn spawn(&self, work: impl Future<Output = ()> + 'static) {
        poll_then_spawn(&self.reactor, work);
    }
}

impl<S: VolumeSource> CommandAborter for NvmeSession<S> {
    fn abort(&self, command: u16) -> bool {
        let Some(PendingCommand { charge, pair, .. }) = self.transfers.abort(command) else { return false };
        self.fail_pair(pair.as_ref(), NvmeStatus::FAILED_FUSED);
        self.complete(command, NvmeStatus::ABORTED, charge);
        true
    }
}

/// The data of a command.
enum CommandData {
    /// The host sends no data. It expects up to `expected` bytes.
    None { expected: u32 },
    /// The data follows the command.
    InCapsule,
    /// The host sends data on request.
    Requested { length: u32 },
    /// The description of the data is invalid.
    Invalid(NvmeStatus),
}
