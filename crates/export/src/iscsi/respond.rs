//! Responses of commands, with their data.
//!
//! Always true: each function here queues the whole response, with the charge of the request in its
//! last part; statuses are numbered in the order in which they are queued.

#![allow(clippy::big_endian_bytes, reason = "the protocol's numbers are big-endian")]

use reactor::Span;

use super::scsi::{ScsiOutcome, ScsiRequest, Sense};
use super::session::IscsiSession;
use super::tasks::Task;
use super::transfers::DataRequest;
use super::wire::{AsyncEvent, DataIn, InitiatorHeader, RejectReason, ScsiReply, TargetCall};
use crate::VolumeSource;
use crate::transport::{Charge, QueuedReply, ReplyHead};

/// SCSI statuses.
mod scsi_status {
    pub(super) const GOOD: u8 = 0x00;
    pub(super) const CHECK_CONDITION: u8 = 0x02;
    pub(super) const RESERVATION_CONFLICT: u8 = 0x18;
}

/// The expected bytes less the bytes that the command has.
fn residual(expected: u32, wanted: u64) -> i64 {
    i64::from(expected).saturating_sub(i64::try_from(wanted).unwrap_or(i64::MAX))
}

impl<S: VolumeSource> IscsiSession<S> {
    /// Completes a task, unless it was aborted.
    pub(super) fn complete(&self, task: &Task, request: &ScsiRequest, outcome: ScsiOutcome, charge: Charge) {
        self.control.tasks.end(task);
        if task.is_aborted() {
            return;
        }
        let expected = request.expected;
        match outcome {
            ScsiOutcome::Data(data, wanted) if !data.is_empty() && expected > 0 => {
                self.send_data(task.tag, data, expected, wanted, charge);
            }
            ScsiOutcome::Data(_, wanted) | ScsiOutcome::Done(wanted) => {
                self.send_status(task.tag, scsi_status::GOOD, residual(expected, wanted), &[], charge);
            }
            ScsiOutcome::Conflict => {
                let status = scsi_status::RESERVATION_CONFLICT;
                self.send_status(task.tag, status, i64::from(expected), &[], charge);
            }
            ScsiOutcome::Check(sense) => self.send_sense(task.tag, expected, sense, charge),
        }
    }

    /// Fails a command before its execution.
    pub(super) fn fail(&self, task: &Task, request: &ScsiRequest, sense: Sense, charge: Charge) {
        self.complete(task, request, ScsiOutcome::Check(sense), charge);
    }

    fn send_sense(&self, tag: u32, expected: u32, sense: Sense, charge: Charge) {
        let sense = sense.encode();
        let data = [&(sense.len() as u16).to_be_bytes()[..], &sense].concat();
        self.send_status(tag, scsi_status::CHECK_CONDITION, i64::from(expected), &data, charge);
    }

    fn send_status(&self, tag: u32, status: u8, residual: i64, data: &[u8], charge: Charge) {
        let reply = ScsiReply { tag, status, residual, data_messages: 0, length: data.len() as u32 };
        let head = self.encoder.response(&reply, self.next_status());
        self.push_with_bytes(head, data, Some(charge));
    }

    /// Sends the data of a command in segments, the last one with its status.
    fn send_data(&self, tag: u32, data: Span, expected: u32, wanted: u64, charge: Charge) {
        let total = data.len().min(expected as usize);
        let (segment, burst) = (self.parameters.segment_max as usize, self.parameters.burst_max as usize);
        let (mut offset, mut number, mut charge) = (0, 0, Some(charge));
        while offset < total {
            let burst_left = burst - offset % burst;
            let length = segment.min(burst_left).min(total - offset);
            let end = offset + length;
            let is_last = end == total;
            let message = DataIn {
                tag,
                number,
                offset: offset as u32,
                length: length as u32,
                is_final: is_last || length == burst_left,
                status: is_last.then(|| residual(expected, wanted)),
            };
            let sequence = if is_last { self.next_status() } else { self.sequence() };
            let head = self.encoder.data(&message, sequence);
            let charge = if is_last { charge.take() } else { None };
            self.push_with_data(head, data.slice(offset..end), charge);
            (offset, number) = (end, number + 1);
        }
    }

    /// Queues a message with data, its padding and its digest.
    fn push_with_data(&self, head: ReplyHead, data: Span, charge: Option<Charge>) {
        let padding = data.len().next_multiple_of(4) - data.len();
        let mut trailer = vec![0; padding];
        if self.encoder.digests.data {
            let digest = match padding {
                0 => data.peek(codec::crc32c),
                _ => data.peek(|data| codec::crc32c(&[data, &trailer].concat())),
            };
            trailer.extend(digest.to_le_bytes());
        }
        let last = |head, charge| match charge {
            Some(charge) => QueuedReply::last(head, charge),
            None => QueuedReply::part(head),
        };
        if trailer.is_empty() {
            return self.send_queue.push(last(head, charge).with(data));
        }
        self.send_queue.push(QueuedReply::part(head).with(data).continued());
        self.send_queue.push(last(ReplyHead::new(&trailer), charge));
    }

    /// Queues a message with short data.
    pub(super) fn push_with_bytes(&self, head: ReplyHead, data: &[u8], charge: Option<Charge>) {
        if !data.is_empty() {
            return self.push_with_data(head, reactor::Buffer::copy_of(data).span(), charge);
        }
        self.send_queue.push(match charge {
            Some(charge) => QueuedReply::last(head, charge),
            None => QueuedReply::part(head),
        });
    }

    /// Asks the initiator for data of a write.
    pub(super) fn send_data_request(&self, request: DataRequest) {
        let DataRequest { tag, unit, target_tag, number, offset, length } = request;
        let call = TargetCall { tag, target_tag, unit, length };
        let head = self.encoder.ready(call, number, offset, self.sequence());
        self.send_queue.push(QueuedReply::part(head));
    }

    /// Rejects a message.
    pub(super) async fn reject(&self, reason: RejectReason, header: &InitiatorHeader) {
        let charge = self.budget.charge_request(header.bytes().len()).await;
        let head = self.encoder.reject(reason, self.next_status());
        self.push_with_bytes(head, header.bytes(), Some(charge));
    }

    /// Notifies the initiator that the connection will be closed.
    pub(super) async fn announce_close(&self) {
        let charge = self.budget.charge_request(0).await;
        let event = AsyncEvent::Drop { connection: self.connection };
        let head = self.encoder.event(event, self.next_status());
        self.send_queue.push(QueuedReply::last(head, charge));
    }
}
