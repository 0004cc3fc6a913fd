//! One connection that uses an export: requests in, replies out.
//!
//! Owns the order of things: what is read when, and what is waited for before the end.
//!
//! Always true: each request that was read is answered exactly once, unless the connection ends before; no more than the
//! budget is worked on at once; a request that was begun is finished. Must not know how commands are carried out.

use std::convert::Infallible;
use std::future::Future;
use std::pin::pin;
use std::rc::Rc;

use reactor::{Reactor, Stream};

use super::budget::{Budget, Charge};
use super::end::{End, Violation};
use super::execute::Joint;
use super::intake::Intake;
use super::limits::{Limits, PAYLOAD_MAX, PIECE, UNBROKEN};
use super::outbox::Outbox;
use super::wire::{Command, Cookie, Range, RequestHeader, Terms};
use crate::at_once::begin;
use crate::race::{First, race};
use crate::reserve::Reserve;
use crate::{Stop, Volume};

/// What was agreed on in the handshake.
pub(super) struct Agreement<V> {
    pub(super) volume: V,
    /// The export's name, as it was looked up.
    pub(super) name: String,
    /// Structured replies.
    pub(super) structured: bool,
    /// The allocation context is selected.
    pub(super) allocation: bool,
}

/// A connection that uses an export.
pub(super) struct Session<V> {
    pub(super) agreement: Agreement<V>,
    pub(super) outbox: Outbox,
    pub(super) budget: Rc<Budget>,
    reactor: Reactor,
}

impl<V: Volume + 'static> Session<V> {
    pub(super) fn new(agreement: Agreement<V>, limits: &Limits, reserve: &Reserve) -> Rc<Self> {
        Rc::new(Self {
            agreement,
            outbox: Outbox::default(),
            budget: Budget::new(limits, reserve),
            reactor: Reactor::current(),
        })
    }

    /// Serves requests until the client or `stop` ends that, then finishes what was begun and sends the last replies.
    pub(super) async fn run(self: &Rc<Self>, intake: &mut Intake, stream: &Stream, stop: &Stop) -> End {
        // One future for both races: a send that is in flight must be waited for.
        let mut sending = pin!(self.outbox.send_all(stream));
        let end = match race(self.receive(intake, stop), sending.as_mut()).await {
            First::Left(Err(end)) => end,
            First::Right(Err(error)) => return error.into(),
        };
        if !end.is_orderly() {
            return end;
        }
        // A request gives its place back when its reply has been sent.
        match race(self.budget.idle(), sending).await {
            First::Right(Err(error)) if end != End::Left => error.into(),
            _ => end,
        }
    }

    /// Waits until there are to be no more requests.
    pub(super) async fn called_off(&self, stop: &Stop) -> End {
        match race(stop.raised(), self.agreement.volume.withdrawn()).await {
            First::Left(()) => End::Stopped,
            First::Right(()) => End::Withdrawn,
        }
    }

    async fn receive(self: &Rc<Self>, intake: &mut Intake, stop: &Stop) -> Result<Infallible, End> {
        let mut unbroken = 0;
        let mut called_off = pin!(self.called_off(stop));
        loop {
            let next = async {
                intake.settle(&self.budget).await;
                intake.header().await
            };
            let header = match race(called_off.as_mut(), next).await {
                First::Left(end) => return Err(end),
                First::Right(header) => RequestHeader::decode(&header?)?,
            };
            unbroken += self.receive_one(&header, intake).await?;
            if unbroken >= UNBROKEN {
                // The replies of what was done at once may go.
                self.reactor.yield_now().await;
                unbroken = 0;
            }
        }
    }

    /// Receives the rest of a request and begins it. Gives the bytes that it moves.
    async fn receive_one(self: &Rc<Self>, header: &RequestHeader, intake: &mut Intake) -> Result<u32, End> {
        let (cookie, session) = (header.cookie(), self.clone());
        match header.check(&self.terms()) {
            Ok(Command::Read { range, whole }) => {
                let charge = self.budget.charge_request(range.length as usize).await;
                self.begin(session.read(cookie, range, whole, charge));
                return Ok(range.length);
            }
            Ok(Command::Write { range, durable }) => {
                self.receive_write(cookie, range, durable, intake).await?;
                return Ok(range.length);
            }
            Ok(Command::Flush) => self.begin(session.flush(cookie, self.place().await)),
            Ok(Command::Trim { range, durable }) => {
                self.begin(session.trim(cookie, range, durable, self.place().await));
            }
            Ok(Command::WriteZeroes { range, durable }) => {
                self.begin(session.write_zeroes(cookie, range, durable, self.place().await));
            }
            Ok(Command::BlockStatus { range, one }) => {
                self.begin(session.block_status(cookie, range, one, self.place().await));
            }
            Ok(Command::Disconnect) => return Err(End::Disconnected),
            Err(refusal) => {
                pass_over(header, intake).await?;
                self.refuse(header, refusal, self.place().await);
            }
        }
        Ok(0)
    }

    /// Waits for room for a request without payload.
    async fn place(&self) -> Charge {
        self.budget.charge_request(0).await
    }

    /// Receives the payload of a write, in pieces if it is long, each of which is written as soon as it is here.
    async fn receive_write(
        self: &Rc<Self>,
        cookie: Cookie,
        range: Range,
        durable: bool,
        intake: &mut Intake,
    ) -> Result<(), End> {
        if range.length <= PIECE {
            let charge = self.budget.charge_request(range.length as usize).await;
            let data = intake.payload(range.length as usize).await?;
            self.begin(self.clone().write(cookie, range.offset, data, durable, charge));
            return Ok(());
        }
        let charge = self.place().await;
        let joint = Rc::new(Joint::default());
        for piece in range.pieces(PIECE) {
            let charge = self.budget.charge_bytes(piece.length as usize).await;
            let data = intake.payload(piece.length as usize).await?;
            self.begin(self.clone().write_piece(piece.offset, data, charge, joint.part()));
        }
        self.begin(self.clone().end_write(cookie, joint, durable, charge));
        Ok(())
    }

    fn terms(&self) -> Terms {
        let Agreement { volume, structured, allocation, .. } = &self.agreement;
        Terms {
            size: volume.size(),
            sector: volume.sector(),
            read_only: volume.read_only(),
            payload_max: PAYLOAD_MAX,
            structured: *structured,
            allocation: *allocation,
        }
    }

    /// Begins work that goes on to its end whatever becomes of the connection. What need not wait is done at once: that
    /// is cheaper than a task, and its reply goes with those of its neighbours.
    pub(super) fn begin(&self, work: impl Future<Output = ()> + 'static) {
        begin(&self.reactor, work);
    }
}

/// Passes over the payload of a request that is refused.
async fn pass_over(header: &RequestHeader, intake: &mut Intake) -> Result<(), End> {
    match header.payload() {
        payload if payload > PAYLOAD_MAX => Err(Violation::PayloadLength(payload).into()),
        payload => intake.skip(payload.into()).await,
    }
}
