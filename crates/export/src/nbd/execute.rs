//! Execution of commands on the volume, and their replies.
//!
//! Always true: each function here queues the whole reply to its request, with the charge of the
//! request in the last part. Must not know sockets.

use std::rc::Rc;

use reactor::Buffer;

use super::limits::DESCRIPTORS_MAX;
use super::session::NbdSession;
use super::wire::{
    ByteRange, Cookie, ErrorNumber, Head, Refusal, RequestHeader, StatusDescriptor, descriptors,
};
use crate::transport::{Charge, CompletionGroup, CompletionGuard, Payload, QueuedReply};
use crate::{Extent, Volume, VolumeError, VolumeErrorKind};

/// The identifier of the allocation context.
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

impl<V: Volume + 'static> NbdSession<V> {
    pub(super) async fn flush(self: Rc<Self>, cookie: Cookie, charge: Charge) {
        let done = self.negotiated.volume.flush().await;
        self.answer(cookie, done, charge);
    }

    pub(super) async fn trim(
        self: Rc<Self>,
        cookie: Cookie,
        range: ByteRange,
        durable: bool,
        charge: Charge,
    ) {
        let done = self.negotiated.volume.discard(range.offset, range.length.into()).await;
        let done = self.flush_if(done, durable).await;
        self.answer(cookie, done, charge);
    }

    pub(super) async fn write_zeroes(
        self: Rc<Self>,
        cookie: Cookie,
        range: ByteRange,
        durable: bool,
        charge: Charge,
    ) {
        let done = self.negotiated.volume.write_zeroes(range.offset, range.length.into()).await;
        let done = self.flush_if(done, durable).await;
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
        let done = self.negotiated.volume.write(offset, &payload.data).await;
        drop(payload);
        let done = self.flush_if(done, durable).await;
        self.answer(cookie, done, charge);
    }

    /// Writes a part of a long write.
    pub(super) async fn write_part(
        self: Rc<Self>,
        offset: u64,
        payload: Payload,
        charge: Charge,
        part: CompletionGuard,
    ) {
        let done = self.negotiated.volume.write(offset, &payload.data).await;
        drop((payload, charge));
        part.end(done);
    }

    /// Waits for the parts of a long write.
    pub(super) async fn finish_write(
        self: Rc<Self>,
        cookie: Cookie,
        group: Rc<CompletionGroup>,
        durable: bool,
        charge: Charge,
    ) {
        let done = group.ended().await;
        let done = self.flush_if(done, durable).await;
        self.answer(cookie, done, charge);
    }

    async fn flush_if(&self, done: Result<(), VolumeError>, durable: bool) -> Result<(), VolumeError> {
        match done {
            Ok(()) if durable => self.negotiated.volume.flush().await,
            done => done,
        }
    }

    /// Replies with the extents of a range, from its start on, up to the limit of one reply.
    pub(super) async fn block_status(
        self: Rc<Self>,
        cookie: Cookie,
        range: ByteRange,
        one: bool,
        charge: Charge,
    ) {
        let mut status = StatusList { list: Vec::new(), max: if one { 1 } else { DESCRIPTORS_MAX } };
        let end = range.offset + u64::from(range.length);
        let mut next = range.offset;
        while next < end {
            let extents = match self.negotiated.volume.extents(next, end - next).await {
                Ok(extents) => extents,
                Err(error) => return self.fail(cookie, &error, charge),
            };
            assert!(!extents.is_empty(), "a volume returns at least one extent");
            next += extents.iter().map(|extent| extent.length).sum::<u64>();
            if !extents.into_iter().all(|extent| status.append(extent)) {
                break;
            }
        }
        let head = Head::block_status(cookie, CONTEXT, status.list.len());
        let payload = Buffer::copy_of(&descriptors(&status.list)).span();
        self.send_queue.push(QueuedReply::last(head, charge).with(payload));
    }

    /// Replies to a request without data.
    fn answer(&self, cookie: Cookie, done: Result<(), VolumeError>, charge: Charge) {
        match done {
            Ok(()) => self.send_queue.push(QueuedReply::last(Head::simple(cookie, None), charge)),
            Err(error) => self.fail(cookie, &error, charge),
        }
    }

    /// Replies with the error of a volume.
    pub(super) fn fail(&self, cookie: Cookie, error: &VolumeError, charge: Charge) {
        self.send_queue.push(self.failure(cookie, error, charge));
    }

    /// Returns the reply for an error of a volume.
    pub(super) fn failure(&self, cookie: Cookie, error: &VolumeError, charge: Charge) -> QueuedReply {
        tracing::debug!(export = self.negotiated.name, %error, "request failed");
        self.error(cookie, error_number(error.kind()), error.message(), charge)
    }

    /// Replies to an invalid request.
    pub(super) fn refuse(&self, header: &RequestHeader, refusal: Refusal, charge: Charge) {
        tracing::debug!(export = self.negotiated.name, ?header, reason = refusal.message, "request refused");
        self.send_queue.push(self.error(header.cookie(), refusal.error, refusal.message, charge));
    }

    fn error(&self, cookie: Cookie, error: ErrorNumber, message: &str, charge: Charge) -> QueuedReply {
        if !self.negotiated.structured {
            return QueuedReply::last(Head::simple(cookie, Some(error)), charge);
        }
        let (head, message) = Head::error(cookie, error, message);
        QueuedReply::last(head, charge).with(Buffer::copy_of(message).span())
    }
}

/// A list of descriptors under construction.
struct StatusList {
    list: Vec<StatusDescriptor>,
    max: usize,
}

impl StatusList {
    /// Appends an extent of a range of up to 4 GiB. Returns false if the list is full.
    fn append(&mut self, extent: Extent) -> bool {
        let Ok(length) = u32::try_from(extent.length) else { return false };
        let full = self.list.len() == self.max;
        match self.list.last_mut() {
            Some(last) if last.data == extent.data => last.length = last.length.saturating_add(length),
            _ if full => return false,
            _ => self.list.push(StatusDescriptor { length, data: extent.data }),
        }
        true
    }
}

#[cfg(test)]
#[path = "execute_tests.rs"]
mod tests;
