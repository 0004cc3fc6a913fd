//! How commands are carried out on a volume, and what is replied.
//!
//! Always true: each of the functions here pushes the whole reply to its request, with the charge of that request in the
//! last part. Must not know sockets.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use reactor::{Buffer, Notify};

use super::budget::Charge;
use super::intake::Payload;
use super::limits::DESCRIPTORS_MAX;
use super::outbox::Reply;
use super::session::Session;
use super::wire::{Cookie, Descriptor, ErrorNumber, Head, Range, Refusal, RequestHeader, descriptors};
use crate::{Extent, Volume, VolumeError, VolumeErrorKind};

/// The number that the allocation context goes by.
pub(super) const CONTEXT: u32 = 1;

fn error_number(kind: VolumeErrorKind) -> ErrorNumber {
    match kind {
        VolumeErrorKind::NoSpace => ErrorNumber::NoSpace,
        VolumeErrorKind::Io => ErrorNumber::Io,
        VolumeErrorKind::Invalid => ErrorNumber::Invalid,
        VolumeErrorKind::ReadOnly => ErrorNumber::NotPermitted,
        VolumeErrorKind::Closed => ErrorNumber::Shutdown,
    }
}

impl<V: Volume + 'static> Session<V> {
    pub(super) async fn flush(self: Rc<Self>, cookie: Cookie, charge: Charge) {
        let done = self.agreement.volume.flush().await;
        self.answer(cookie, done, charge);
    }

    pub(super) async fn trim(self: Rc<Self>, cookie: Cookie, range: Range, durable: bool, charge: Charge) {
        let done = self.agreement.volume.discard(range.offset, range.length.into()).await;
        let done = self.made_durable(done, durable).await;
        self.answer(cookie, done, charge);
    }

    pub(super) async fn write_zeroes(
        self: Rc<Self>,
        cookie: Cookie,
        range: Range,
        durable: bool,
        charge: Charge,
    ) {
        let done = self.agreement.volume.write_zeroes(range.offset, range.length.into()).await;
        let done = self.made_durable(done, durable).await;
        self.answer(cookie, done, charge);
    }

    pub(super) async fn write(
        self: Rc<Self>,
        cookie: Cookie,
        offset: u64,
        payload: Payload,
        durable: bool,
        charge: Charge,
    ) {
        let done = self.agreement.volume.write(offset, &payload.data).await;
        drop(payload);
        let done = self.made_durable(done, durable).await;
        self.answer(cookie, done, charge);
    }

    /// Writes a piece of a long write.
    pub(super) async fn write_piece(
        self: Rc<Self>,
        offset: u64,
        payload: Payload,
        charge: Charge,
        part: Part,
    ) {
        let done = self.agreement.volume.write(offset, &payload.data).await;
        drop((payload, charge));
        part.end(done);
    }

    /// Waits for the pieces of a long write.
    pub(super) async fn end_write(
        self: Rc<Self>,
        cookie: Cookie,
        joint: Rc<Joint>,
        durable: bool,
        charge: Charge,
    ) {
        let done = joint.ended().await;
        let done = self.made_durable(done, durable).await;
        self.answer(cookie, done, charge);
    }

    async fn made_durable(&self, done: Result<(), VolumeError>, durable: bool) -> Result<(), VolumeError> {
        match done {
            Ok(()) if durable => self.agreement.volume.flush().await,
            done => done,
        }
    }

    /// Tells what of a range holds data, from its start on, as far as one answer goes.
    pub(super) async fn block_status(
        self: Rc<Self>,
        cookie: Cookie,
        range: Range,
        one: bool,
        charge: Charge,
    ) {
        let mut status = Status { list: Vec::new(), max: if one { 1 } else { DESCRIPTORS_MAX } };
        let end = range.offset + u64::from(range.length);
        let mut next = range.offset;
        while next < end {
            let extents = match self.agreement.volume.extents(next, end - next).await {
                Ok(extents) => extents,
                Err(error) => return self.fail(cookie, &error, charge),
            };
            assert!(!extents.is_empty(), "a volume tells something of what it has");
            next += extents.iter().map(|extent| extent.length).sum::<u64>();
            if !extents.into_iter().all(|extent| status.append(extent)) {
                break;
            }
        }
        let head = Head::block_status(cookie, CONTEXT, status.list.len());
        let payload = Buffer::copy_of(&descriptors(&status.list)).span();
        self.outbox.push(Reply::last(head, charge).with(payload));
    }

    /// Replies to a request that gives no data.
    fn answer(&self, cookie: Cookie, done: Result<(), VolumeError>, charge: Charge) {
        match done {
            Ok(()) => self.outbox.push(Reply::last(Head::simple(cookie, None), charge)),
            Err(error) => self.fail(cookie, &error, charge),
        }
    }

    /// Replies that a volume could not do it.
    pub(super) fn fail(&self, cookie: Cookie, error: &VolumeError, charge: Charge) {
        self.outbox.push(self.failure(cookie, error, charge));
    }

    /// The reply that a volume could not do it.
    pub(super) fn failure(&self, cookie: Cookie, error: &VolumeError, charge: Charge) -> Reply {
        tracing::debug!(export = self.agreement.name, %error, "a request failed");
        self.error(cookie, error_number(error.kind()), error.message(), charge)
    }

    /// Replies to a request that makes no sense.
    pub(super) fn refuse(&self, header: &RequestHeader, refusal: Refusal, charge: Charge) {
        tracing::debug!(
            export = self.agreement.name,
            ?header,
            reason = refusal.message,
            "a request was refused"
        );
        self.outbox.push(self.error(header.cookie(), refusal.error, refusal.message, charge));
    }

    fn error(&self, cookie: Cookie, error: ErrorNumber, message: &str, charge: Charge) -> Reply {
        if !self.agreement.structured {
            return Reply::last(Head::simple(cookie, Some(error)), charge);
        }
        let (head, message) = Head::error(cookie, error, message);
        Reply::last(head, charge).with(Buffer::copy_of(message).span())
    }
}

/// A list of descriptors that is being made.
struct Status {
    list: Vec<Descriptor>,
    max: usize,
}

impl Status {
    /// Appends an extent, of a range whose length is a `u32`. False if the list is full.
    fn append(&mut self, extent: Extent) -> bool {
        let Ok(length) = u32::try_from(extent.length) else { return false };
        let full = self.list.len() == self.max;
        match self.list.last_mut() {
            Some(last) if last.data == extent.data => last.length = last.length.saturating_add(length),
            _ if full => return false,
            _ => self.list.push(Descriptor { length, data: extent.data }),
        }
        true
    }
}

/// A request that is worked on in parts, and waited for as a whole.
#[derive(Default)]
pub(super) struct Joint {
    left: Cell<usize>,
    failure: RefCell<Option<VolumeError>>,
    ended: Notify,
}

/// A part of a [`Joint`] request.
pub(super) struct Part(Rc<Joint>);

impl Joint {
    /// One more part, that is to end.
    pub(super) fn part(self: &Rc<Self>) -> Part {
        self.left.set(self.left.get() + 1);
        Part(self.clone())
    }

    /// Waits until every part has ended. Gives the first failure.
    pub(super) async fn ended(&self) -> Result<(), VolumeError> {
        while self.left.get() > 0 {
            self.ended.notified().await;
        }
        self.failure.take().map_or(Ok(()), Err)
    }
}

impl Part {
    pub(super) fn end(self, result: Result<(), VolumeError>) {
        let Self(joint) = self;
        if let Err(error) = result {
            joint.failure.borrow_mut().get_or_insert(error);
        }
        joint.left.set(joint.left.get() - 1);
        if joint.left.get() == 0 {
            joint.ended.notify();
        }
    }
}

#[cfg(test)]
#[path = "execute_tests.rs"]
mod tests;
