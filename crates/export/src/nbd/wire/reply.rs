//! Replies in the transmission phase.

use super::bytes::{Put, length};
use super::strings::clipped;
use super::types::{ByteRange, Cookie, ErrorNumber};
use crate::transport::ReplyHead;

/// `NBD_SIMPLE_REPLY_MAGIC`.
const SIMPLE_MAGIC: u32 = 0x6744_6698;
/// `NBD_STRUCTURED_REPLY_MAGIC`.
const STRUCTURED_MAGIC: u32 = 0x668e_33ef;

/// `NBD_REPLY_FLAG_DONE`.
const DONE: u16 = 1 << 0;

/// `NBD_REPLY_TYPE_*`.
mod kind {
    pub(super) const NONE: u16 = 0;
    pub(super) const OFFSET_DATA: u16 = 1;
    pub(super) const OFFSET_HOLE: u16 = 2;
    pub(super) const BLOCK_STATUS: u16 = 5;
    pub(super) const ERROR: u16 = (1 << 15) + 1;
}

/// `NBD_STATE_*` of the allocation context.
mod state {
    pub(super) const HOLE: u32 = 1 << 0;
    pub(super) const ZERO: u32 = 1 << 1;
}

/// The most bytes of a [`Head`].
const HEAD_MAX: usize = 32;

/// A reply without its payload, which is sent after it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::nbd) struct Head {
    bytes: [u8; HEAD_MAX],
    len: usize,
}

impl Put for Head {
    fn put(&mut self, bytes: &[u8]) {
        let end = self.len + bytes.len();
        match self.bytes.get_mut(self.len..end) {
            Some(place) => place.copy_from_slice(bytes),
            None => panic!("a reply's head is longer than any"),
        }
        self.len = end;
    }
}

impl From<Head> for ReplyHead {
    fn from(head: Head) -> Self {
        Self::new(head.as_bytes())
    }
}

impl Head {
    pub(in crate::nbd) fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or(&[])
    }

    fn empty() -> Self {
        Self { bytes: [0; HEAD_MAX], len: 0 }
    }

    /// Encodes a simple reply. The data of a successful read follows.
    pub(in crate::nbd) fn simple(cookie: Cookie, error: Option<ErrorNumber>) -> Self {
        let mut head = Self::empty();
        head.put_u32(SIMPLE_MAGIC);
        head.put_u32(error.map_or(0, |error| error as u32));
        head.put_u64(cookie.0);
        head
    }

    fn structured(cookie: Cookie, kind: u16, done: bool, payload: u32) -> Self {
        let mut head = Self::empty();
        head.put_u32(STRUCTURED_MAGIC);
        head.put_u16(if done { DONE } else { 0 });
        head.put_u16(kind);
        head.put_u64(cookie.0);
        head.put_u32(payload);
        head
    }

    /// Encodes the last chunk of a structured reply, without content.
    pub(in crate::nbd) fn none(cookie: Cookie) -> Self {
        Self::structured(cookie, kind::NONE, true, 0)
    }

    /// Encodes a chunk with the range's data as its payload.
    pub(in crate::nbd) fn data(cookie: Cookie, range: ByteRange, done: bool) -> Self {
        let mut head = Self::structured(cookie, kind::OFFSET_DATA, done, range.length + 8);
        head.put_u64(range.offset);
        head
    }

    /// Encodes a chunk that reports the range as zeros.
    pub(in crate::nbd) fn hole(cookie: Cookie, range: ByteRange, done: bool) -> Self {
        let mut head = Self::structured(cookie, kind::OFFSET_HOLE, done, 12);
        head.put_u64(range.offset);
        head.put_u32(range.length);
        head
    }

    /// Encodes an error. Returns the part of `message` that follows as the payload.
    pub(in crate::nbd) fn error(cookie: Cookie, error: ErrorNumber, message: &str) -> (Self, &[u8]) {
        let message = clipped(message).as_bytes();
        let mut head = Self::structured(cookie, kind::ERROR, true, length(6 + message.len()));
        head.put_u32(error as u32);
        // The message is limited to STRING_MAX bytes.
        head.put_u16(u16::try_from(message.len()).unwrap_or(0));
        (head, message)
    }

    /// Encodes a chunk with `count` descriptors of the metadata context `context`, which follow.
    pub(in crate::nbd) fn block_status(cookie: Cookie, context: u32, count: usize) -> Self {
        let mut head = Self::structured(cookie, kind::BLOCK_STATUS, true, length(4 + 8 * count));
        head.put_u32(context);
        head
    }
}

impl std::fmt::Debug for Head {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Head({:02x?})", self.as_bytes())
    }
}

/// A part of an export in the allocation context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::nbd) struct StatusDescriptor {
    /// Length in bytes, not zero.
    pub(in crate::nbd) length: u32,
    /// False for a hole, which reads as zeros.
    pub(in crate::nbd) data: bool,
}

/// Encodes the payload of [`Head::block_status`].
pub(in crate::nbd) fn descriptors(list: &[StatusDescriptor]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(8 * list.len());
    for descriptor in list {
        bytes.put_u32(descriptor.length);
        bytes.put_u32(if descriptor.data { 0 } else { state::HOLE | state::ZERO });
    }
    bytes
}
