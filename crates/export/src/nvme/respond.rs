//! Responses of commands, with their data.
//!
//! Always true: each function here queues the whole response, with the charge of the request in its
//! last part.

use reactor::{Buffer, Span};

use super::limits::BULK;
use super::session::NvmeSession;
use super::wire::{NvmeCompletion, NvmeStatus};
use crate::VolumeSource;
use crate::transport::{Charge, QueuedReply, ReplyHead};

impl<S: VolumeSource> NvmeSession<S> {
    /// Completes a command without data.
    pub(super) fn complete(&self, command: u16, status: NvmeStatus, charge: Charge) {
        self.complete_with(command, status, 0, charge);
    }

    /// Completes a command without data, with a result.
    pub(super) fn complete_with(&self, command: u16, status: NvmeStatus, result: u64, charge: Charge) {
        let entry = self.entry(command, status, result);
        self.send_queue.push(QueuedReply::last(self.encoder.response(&entry, &[]), charge));
    }

    /// Completes a command with data.
    pub(super) fn complete_data(&self, command: u16, data: Span, charge: Charge) {
        let length = u32::try_from(data.len()).unwrap_or(u32::MAX);
        let is_bulk = length >= BULK;
        let push = |reply| match is_bulk {
            true => self.send_queue.push_bulk(reply),
            false => self.send_queue.push(reply),
        };
        // The host may omit the response only if it does not need the head of its queue.
        let is_whole = !self.identity.flow_control;
        let entry = self.entry(command, NvmeStatus::SUCCESS, 0);
        let digest = self.encoder.digests.data.then(|| data.peek(codec::crc32c).to_le_bytes());
        let mut head = self.encoder.data(command, length, is_whole);
        let padding = self.encoder.padding();
        if padding > 0 {
            push(QueuedReply::part(head).with(Buffer::zeroed(padding).span()).continued());
            head = ReplyHead::new(&[]);
        }
        let trailer = digest.as_ref().map_or(&[][..], |digest| digest.as_slice());
        match (is_whole, trailer.is_empty()) {
            (true, true) => push(QueuedReply::last(head, charge).with(data)),
            (true, false) => {
                push(QueuedReply::part(head).with(data).continued());
                push(QueuedReply::last(ReplyHead::new(trailer), charge));
            }
            (false, _) => {
                push(QueuedReply::part(head).with(data).continued());
                push(QueuedReply::last(self.encoder.response(&entry, trailer), charge));
            }
        }
    }

    /// Completes a command with the first `length` bytes of `data`.
    pub(super) fn complete_bytes(&self, command: u16, data: &[u8], length: usize, charge: Charge) {
        let data = data.get(..length).unwrap_or(data);
        if data.is_empty() {
            return self.complete(command, NvmeStatus::SUCCESS, charge);
        }
        self.complete_data(command, Buffer::copy_of(data).span(), charge);
    }

    /// The completion entry of a command, which is no longer outstanding then.
    fn entry(&self, command: u16, status: NvmeStatus, result: u64) -> [u8; 16] {
        self.outstanding.set(self.outstanding.get().saturating_sub(1));
        let head = if self.identity.flow_control { self.head.get() } else { 0 };
        NvmeCompletion { command, status, result, head }.encode()
    }
}
