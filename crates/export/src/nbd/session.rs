//! The transmission phase of a connection: requests in, replies out.
//!
//! Always true: each request that was received is answered exactly once, unless the connection ends
//! before; the requests in flight are within the budget; a request that has begun is completed.
//! Must not know how commands are executed.

use std::convert::Infallible;
use std::future::Future;
use std::pin::pin;
use std::rc::Rc;

use reactor::{Reactor, Stream};

use super::disconnect::{DisconnectReason, ProtocolViolation};
use super::limits::{Limits, PAYLOAD_MAX, UNIT, YIELD_BYTES};
use super::wire::{ByteRange, CheckedCommand, Cookie, ExportLimits, RequestHeader};
use crate::poll_then_spawn::poll_then_spawn;
use crate::reserve::Reserve;
use crate::select::{Either, select};
use crate::transport::{Budget, Charge, CompletionGroup, RecvBuffer, SendQueue};
use crate::{Stop, Volume};

/// The result of the handshake.
pub(super) struct NegotiatedExport<V> {
    pub(super) volume: V,
    /// The export's name.
    pub(super) name: String,
    /// Structured replies were negotiated.
    pub(super) structured: bool,
    /// The allocation context was selected.
    pub(super) allocation: bool,
}

/// A connection in its transmission phase.
pub(super) struct NbdSession<V> {
    pub(super) negotiated: NegotiatedExport<V>,
    pub(super) send_queue: SendQueue,
    pub(super) budget: Rc<Budget>,
    reactor: Reactor,
}

impl<V: Volume + 'static> NbdSession<V> {
    pub(super) fn new(negotiated: NegotiatedExport<V>, limits: &Limits, reserve: &Reserve) -> Rc<Self> {
        Rc::new(Self {
            negotiated,
            send_queue: SendQueue::default(),
            budget: Budget::new(limits.requests, limits.payload_bytes, reserve),
            reactor: Reactor::current(),
        })
    }

    /// Serves requests until the client or `stop` ends the connection, then completes the requests
    /// in flight and sends the last replies.
    pub(super) async fn run(
        self: &Rc<Self>,
        recv: &mut RecvBuffer,
        stream: &Stream,
        stop: &Stop,
    ) -> DisconnectReason {
        // One future for both selects: a send in flight must be completed.
        let mut sending = pin!(self.send_queue.send_all(stream));
        let end = match select(self.receive(recv, stop), sending.as_mut()).await {
            Either::Left(Err(end)) => end,
            Either::Right(Err(error)) => return error.into(),
        };
        if !end.is_orderly() {
            return end;
        }
        // A request is released when its reply has been sent.
        match select(self.budget.idle(), sending).await {
            Either::Right(Err(error)) if end != DisconnectReason::Closed => error.into(),
            _ => end,
        }
    }

    /// Waits until no more requests are accepted.
    pub(super) async fn cancelled(&self, stop: &Stop) -> DisconnectReason {
        match select(stop.raised(), self.negotiated.volume.withdrawn()).await {
            Either::Left(()) => DisconnectReason::Stopped,
            Either::Right(()) => DisconnectReason::Withdrawn,
        }
    }

    async fn receive(
        self: &Rc<Self>,
        recv: &mut RecvBuffer,
        stop: &Stop,
    ) -> Result<Infallible, DisconnectReason> {
        let mut transferred = 0;
        let mut cancelled = pin!(self.cancelled(stop));
        loop {
            let next = async {
                recv.settle(&self.budget).await;
                recv.header().await
            };
            let header = match select(cancelled.as_mut(), next).await {
                Either::Left(end) => return Err(end),
                Either::Right(header) => RequestHeader::decode(&header?)?,
            };
            transferred += self.receive_one(&header, recv).await?;
            if transferred >= YIELD_BYTES {
                // Lets the replies of requests be sent that completed at once.
                self.reactor.yield_now().await;
                transferred = 0;
            }
        }
    }

    /// Receives the rest of a request and begins it. Returns the bytes that it transfers.
    async fn receive_one(
        self: &Rc<Self>,
        header: &RequestHeader,
        recv: &mut RecvBuffer,
    ) -> Result<u32, DisconnectReason> {
        let (cookie, session) = (header.cookie(), self.clone());
        match header.check(&self.limits()) {
            Ok(CheckedCommand::Read { range, whole }) => {
                let charge = self.budget.charge_request(range.length as usize).await;
                self.begin(session.read(cookie, range, whole, charge));
                return Ok(range.length);
            }
            Ok(CheckedCommand::Write { range, durable }) => {
                self.receive_write(cookie, range, durable, recv).await?;
                return Ok(range.length);
            }
            Ok(CheckedCommand::Flush) => self.begin(session.flush(cookie, self.charge_empty().await)),
            Ok(CheckedCommand::Trim { range, durable }) => {
                self.begin(session.trim(cookie, range, durable, self.charge_empty().await));
            }
            Ok(CheckedCommand::WriteZeroes { range, durable }) => {
                self.begin(session.write_zeroes(cookie, range, durable, self.charge_empty().await));
            }
            Ok(CheckedCommand::BlockStatus { range, one }) => {
                self.begin(session.block_status(cookie, range, one, self.charge_empty().await));
            }
            Ok(CheckedCommand::Disconnect) => return Err(DisconnectReason::Disconnected),
            Err(refusal) => {
                skip_payload(header, recv).await?;
                self.refuse(header, refusal, self.charge_empty().await);
            }
        }
        Ok(0)
    }

    /// Waits until a request without payload fits the budget.
    async fn charge_empty(&self) -> Charge {
        self.budget.charge_request(0).await
    }

    /// Receives the payload of a write. Long payload is written in parts, each as soon as it is
    /// received.
    async fn receive_write(
        self: &Rc<Self>,
        cookie: Cookie,
        range: ByteRange,
        durable: bool,
        recv: &mut RecvBuffer,
    ) -> Result<(), DisconnectReason> {
        if range.length <= UNIT {
            let charge = self.budget.charge_request(range.length as usize).await;
            let data = recv.payload(range.length as usize).await?;
            self.begin(self.clone().write(cookie, range.offset, data, durable, charge));
            return Ok(());
        }
        let charge = self.charge_empty().await;
        let group = Rc::new(CompletionGroup::default());
        for piece in range.pieces(UNIT) {
            let charge = self.budget.charge_bytes(piece.length as usize).await;
            let data = recv.payload(piece.length as usize).await?;
            self.begin(self.clone().write_part(piece.offset, data, charge, group.part()));
        }
        self.begin(self.clone().finish_write(cookie, group, durable, charge));
        Ok(())
    }

    fn limits(&self) -> ExportLimits {
        let NegotiatedExport { volume, structured, allocation, .. } = &self.negotiated;
        ExportLimits {
            size: volume.size(),
            sector: volume.sector(),
            read_only: volume.read_only(),
            payload_max: PAYLOAD_MAX,
            structured: *structured,
            allocation: *allocation,
        }
    }

    /// Begins work that completes even if the connection ends. Work that is ready at once needs no
    /// task, and its reply is batched with others.
    pub(super) fn begin(&self, work: impl Future<Output = ()> + 'static) {
        poll_then_spawn(&self.reactor, work);
    }
}

/// Skips the payload of a request that is refused.
async fn skip_payload(header: &RequestHeader, recv: &mut RecvBuffer) -> Result<(), DisconnectReason> {
    match header.payload() {
        payload if payload > PAYLOAD_MAX => Err(ProtocolViolation::PayloadLength(payload).into()),
        payload => Ok(recv.skip(payload.into()).await?),
    }
}
