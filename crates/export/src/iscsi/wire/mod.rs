//! Messages of iSCSI.
//!
//! Owns encoding and decoding. Always true: decoders accept any bytes, and allocate no more than
//! the message itself. Must not know connections or volumes. Source: RFC 7143.
#![allow(clippy::big_endian_bytes, reason = "the protocol's numbers are big-endian")]

mod bytes;
#[cfg(test)]
mod fuzz;
mod header;
mod reply;
mod text;

pub(in crate::iscsi) use bytes::{WideWriter, u16_at, u32_at, u64_at};
pub(in crate::iscsi) use header::{
    HEADER_BYTES, HeaderFrame, InitiatorHeader, InitiatorOpcode, NO_TAG, TaskFunction,
};
pub(in crate::iscsi) use reply::{
    AsyncEvent, DataIn, IscsiDigests, LoginReply, LoginStatus, RejectReason, ReplyEncoder, ScsiReply,
    Sequence, TargetCall, TaskResponse,
};
pub(in crate::iscsi) use text::{TEXT_MAX, TextPairs, TextWriter};
