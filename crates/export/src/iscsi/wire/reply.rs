//! The headers of the target's messages.

use super::bytes::WideWriter;
use super::header::{HEADER_BYTES, NO_TAG};
use crate::transport::ReplyHead;

/// Opcodes of the target's messages.
mod opcode {
    pub(super) const PING: u8 = 0x20;
    pub(super) const RESPONSE: u8 = 0x21;
    pub(super) const TASK_MANAGEMENT: u8 = 0x22;
    pub(super) const LOGIN: u8 = 0x23;
    pub(super) const TEXT: u8 = 0x24;
    pub(super) const DATA: u8 = 0x25;
    pub(super) const LOGOUT: u8 = 0x26;
    pub(super) const READY: u8 = 0x31;
    pub(super) const EVENT: u8 = 0x32;
    pub(super) const REJECT: u8 = 0x3f;
}

const FINAL: u8 = 0x80;

/// The digests that a connection uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::iscsi) struct IscsiDigests {
    pub(in crate::iscsi) header: bool,
    pub(in crate::iscsi) data: bool,
}

/// The numbers that a message acknowledges and permits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::iscsi) struct Sequence {
    /// The number of the status that the message carries, or of the next one.
    pub(in crate::iscsi) status: u32,
    /// The number of the next command.
    pub(in crate::iscsi) expected: u32,
    /// The largest number of a command.
    pub(in crate::iscsi) max: u32,
}

/// A part of the data of a command, for the initiator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::iscsi) struct DataIn {
    pub(in crate::iscsi) tag: u32,
    pub(in crate::iscsi) number: u32,
    pub(in crate::iscsi) offset: u32,
    pub(in crate::iscsi) length: u32,
    /// The last part of a sequence.
    pub(in crate::iscsi) is_final: bool,
    /// The last part of the command, with its good status, and the difference of the bytes that it
    /// transferred.
    pub(in crate::iscsi) status: Option<Residual>,
}

/// The expected bytes of a command less the bytes that it has: negative if it had more.
pub(in crate::iscsi) type Residual = i64;

fn residual_flags(residual: Residual) -> (u8, u32) {
    let count = u32::try_from(residual.unsigned_abs()).unwrap_or(u32::MAX);
    match residual {
        0 => (0, 0),
        1.. => (0x02, count),
        _ => (0x04, count),
    }
}

/// The response of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::iscsi) struct ScsiReply {
    pub(in crate::iscsi) tag: u32,
    pub(in crate::iscsi) status: u8,
    pub(in crate::iscsi) residual: Residual,
    /// Messages with data that preceded it.
    pub(in crate::iscsi) data_messages: u32,
    /// Bytes of sense data.
    pub(in crate::iscsi) length: u32,
}

/// The result of a task management function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::iscsi) enum TaskResponse {
    Complete,
    NoTask,
    NoUnit,
    Unsupported,
}

/// The reason why a message is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::iscsi) enum RejectReason {
    Unsupported,
    TooManyImmediate,
    InvalidField,
}

/// An event that the target reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::iscsi) enum AsyncEvent {
    /// The connection will be closed.
    Drop { connection: u16 },
}

/// The status of a login: class and detail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::iscsi) struct LoginStatus(pub(in crate::iscsi) u8, pub(in crate::iscsi) u8);

impl LoginStatus {
    pub(in crate::iscsi) const SUCCESS: Self = Self(0, 0);
    pub(in crate::iscsi) const INITIATOR_ERROR: Self = Self(2, 0);
    pub(in crate::iscsi) const AUTHENTICATION: Self = Self(2, 1);
    pub(in crate::iscsi) const FORBIDDEN: Self = Self(2, 2);
    pub(in crate::iscsi) const NOT_FOUND: Self = Self(2, 3);
    pub(in crate::iscsi) const VERSION: Self = Self(2, 5);
    pub(in crate::iscsi) const TOO_MANY_CONNECTIONS: Self = Self(2, 6);
    pub(in crate::iscsi) const MISSING_PARAMETER: Self = Self(2, 7);
    pub(in crate::iscsi) const SESSION_TYPE: Self = Self(2, 9);
    pub(in crate::iscsi) const NO_SESSION: Self = Self(2, 10);
    pub(in crate::iscsi) const INVALID_REQUEST: Self = Self(2, 11);
    pub(in crate::iscsi) const OUT_OF_RESOURCES: Self = Self(3, 2);
}

/// The response of a login request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::iscsi) struct LoginReply {
    /// The flags of the request that are granted: transition, and stages.
    pub(in crate::iscsi) flags: u8,
    pub(in crate::iscsi) session: [u8; 6],
    pub(in crate::iscsi) handle: u16,
    pub(in crate::iscsi) tag: u32,
    pub(in crate::iscsi) sequence: Sequence,
    pub(in crate::iscsi) status: LoginStatus,
}

impl LoginReply {
    /// The message, with text.
    pub(in crate::iscsi) fn encode(&self, text: &[u8]) -> Vec<u8> {
        let mut message = WideWriter::new(HEADER_BYTES);
        let LoginStatus(class, detail) = self.status;
        message.u32(4, text.len() as u32).u8(0, opcode::LOGIN).u8(1, self.flags);
        message.put(8, self.session).u16(14, self.handle).u32(16, self.tag);
        put_sequence(&mut message, self.sequence);
        message.u8(36, class).u8(37, detail).append(text);
        message.append(vec![0; text.len().next_multiple_of(4) - text.len()]).finish()
    }
}

fn put_sequence(message: &mut WideWriter, sequence: Sequence) {
    message.u32(24, sequence.status).u32(28, sequence.expected).u32(32, sequence.max);
}

/// A message that begins an exchange or answers a text or ping request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::iscsi) struct TargetCall {
    pub(in crate::iscsi) tag: u32,
    pub(in crate::iscsi) target_tag: u32,
    pub(in crate::iscsi) unit: u64,
    pub(in crate::iscsi) length: u32,
}

/// Encodes the headers of messages on an open connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::iscsi) struct ReplyEncoder {
    pub(in crate::iscsi) digests: IscsiDigests,
}

impl ReplyEncoder {
    pub(in crate::iscsi) fn data(&self, data: &DataIn, sequence: Sequence) -> ReplyHead {
        let mut message = start(opcode::DATA, data.length, data.tag);
        let mut flags = if data.is_final { FINAL } else { 0 };
        put_sequence(&mut message, sequence);
        if let Some(residual) = data.status {
            let (residual_flags, count) = residual_flags(residual);
            flags |= 0x01 | residual_flags;
            message.u32(44, count);
        } else {
            message.u32(24, 0);
        }
        message.u8(1, flags).u32(20, NO_TAG).u32(36, data.number).u32(40, data.offset);
        self.seal(message)
    }

    pub(in crate::iscsi) fn response(&self, reply: &ScsiReply, sequence: Sequence) -> ReplyHead {
        let mut message = start(opcode::RESPONSE, reply.length, reply.tag);
        let (flags, count) = residual_flags(reply.residual);
        message.u8(1, FINAL | flags).u8(3, reply.status);
        put_sequence(&mut message, sequence);
        message.u32(36, reply.data_messages).u32(44, count);
        self.seal(message)
    }

    /// The request for `length` bytes of a command's data, from `offset` on; the `number`th one.
    pub(in crate::iscsi) fn ready(
        &self,
        call: TargetCall,
        number: u32,
        offset: u32,
        sequence: Sequence,
    ) -> ReplyHead {
        let mut message = start(opcode::READY, 0, call.tag);
        message.u8(1, FINAL).u64(8, call.unit).u32(20, call.target_tag);
        put_sequence(&mut message, sequence);
        message.u32(36, number).u32(40, offset).u32(44, call.length);
        self.seal(message)
    }

    pub(in crate::iscsi) fn task(&self, tag: u32, response: TaskResponse, sequence: Sequence) -> ReplyHead {
        let mut message = start(opcode::TASK_MANAGEMENT, 0, tag);
        let response = match response {
            TaskResponse::Complete => 0,
            TaskResponse::NoTask => 1,
            TaskResponse::NoUnit => 2,
            TaskResponse::Unsupported => 5,
        };
        message.u8(1, FINAL).u8(2, response);
        put_sequence(&mut message, sequence);
        self.seal(message)
    }

    /// A ping, or the answer of one.
    pub(in crate::iscsi) fn ping(&self, call: TargetCall, sequence: Sequence) -> ReplyHead {
        let mut message = start(opcode::PING, call.length, call.tag);
        message.u8(1, FINAL).u64(8, call.unit).u32(20, call.target_tag);
        put_sequence(&mut message, sequence);
        self.seal(message)
    }

    /// A part of the answer of a text request; more follows if it has a target tag.
    pub(in crate::iscsi) fn text(&self, call: TargetCall, sequence: Sequence) -> ReplyHead {
        let mut message = start(opcode::TEXT, call.length, call.tag);
        let flags = if call.target_tag == NO_TAG { FINAL } else { 0x40 };
        message.u8(1, flags).u64(8, call.unit).u32(20, call.target_tag);
        put_sequence(&mut message, sequence);
        self.seal(message)
    }

    pub(in crate::iscsi) fn logout(&self, tag: u32, response: u8, sequence: Sequence) -> ReplyHead {
        let mut message = start(opcode::LOGOUT, 0, tag);
        message.u8(1, FINAL).u8(2, response);
        put_sequence(&mut message, sequence);
        self.seal(message)
    }

    pub(in crate::iscsi) fn event(&self, event: AsyncEvent, sequence: Sequence) -> ReplyHead {
        let mut message = start(opcode::EVENT, 0, NO_TAG);
        message.u8(1, FINAL);
        put_sequence(&mut message, sequence);
        match event {
            AsyncEvent::Drop { connection } => message.u8(36, 2).u16(38, connection),
        };
        self.seal(message)
    }

    /// A rejection. The header of the rejected message follows as data.
    pub(in crate::iscsi) fn reject(&self, reason: RejectReason, sequence: Sequence) -> ReplyHead {
        let mut message = start(opcode::REJECT, HEADER_BYTES as u32, NO_TAG);
        let reason = match reason {
            RejectReason::Unsupported => 0x05,
            RejectReason::TooManyImmediate => 0x06,
            RejectReason::InvalidField => 0x09,
        };
        message.u8(1, FINAL).u8(2, reason);
        put_sequence(&mut message, sequence);
        self.seal(message)
    }

    fn seal(&self, mut message: WideWriter) -> ReplyHead {
        let mut header = message.finish();
        if self.digests.header {
            let digest = codec::crc32c(&header);
            header.extend(digest.to_le_bytes());
        }
        ReplyHead::new(&header)
    }
}

fn start(opcode: u8, length: u32, tag: u32) -> WideWriter {
    let mut message = WideWriter::new(HEADER_BYTES);
    message.u32(4, length).u8(0, opcode).u32(16, tag);
    message
}

#[cfg(test)]
#[path = "wire_tests.rs"]
mod tests;
