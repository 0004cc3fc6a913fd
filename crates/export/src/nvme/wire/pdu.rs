//! The protocol data units (PDUs) of NVMe over TCP.
//!
//! Always true: a [`Frame`] has a kind that a host may send, the header length of that kind, and a
//! data part that lies within the PDU; [`Frame::decode`] is the only constructor.
//!
//! Must not know commands. Source: NVM Express TCP Transport Specification 1.0.

use super::bytes::{FieldWriter, u8_at, u16_at, u32_at};
use crate::transport::ReplyHead;

/// Bytes of the header that all PDUs have in common.
pub(in crate::nvme) const COMMON_LEN: usize = 8;
/// Bytes of a digest.
const DIGEST_LEN: usize = 4;
/// Bytes of the PDUs that open a connection.
pub(in crate::nvme) const IC_LEN: usize = 128;
/// Bytes of the header of a command capsule.
const COMMAND_LEN: usize = 72;
/// Bytes of the header of a response capsule, and of the PDUs that transfer data.
pub(in crate::nvme) const SHORT_LEN: usize = 24;
/// Most bytes of a request to terminate the connection.
const TERMINATE_MAX: usize = 152;

/// Types of PDUs.
mod kind {
    pub(super) const IC_REQUEST: u8 = 0x00;
    pub(super) const IC_RESPONSE: u8 = 0x01;
    pub(super) const HOST_TERMINATE: u8 = 0x02;
    pub(super) const CONTROLLER_TERMINATE: u8 = 0x03;
    pub(super) const COMMAND: u8 = 0x04;
    pub(super) const RESPONSE: u8 = 0x05;
    pub(super) const HOST_DATA: u8 = 0x06;
    pub(super) const CONTROLLER_DATA: u8 = 0x07;
    pub(super) const READY_TO_TRANSFER: u8 = 0x09;
}

/// Flags of the common header.
mod flag {
    pub(super) const HEADER_DIGEST: u8 = 1 << 0;
    pub(super) const DATA_DIGEST: u8 = 1 << 1;
    pub(super) const LAST: u8 = 1 << 2;
    pub(super) const SUCCESS: u8 = 1 << 3;
}

/// The error that a request to terminate the connection reports (fatal error status).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::nvme) enum FatalError {
    /// A field of the header is invalid; the byte at which it begins.
    HeaderField(u8),
    /// The PDU is not allowed at this point.
    Sequence,
    /// The header digest is wrong; the digest that was received.
    HeaderDigest(u32),
    /// Data lies outside of the range that was requested.
    OutOfRange,
    /// A parameter is not supported; the byte at which it begins.
    Parameter(u8),
}

impl FatalError {
    fn status(self) -> u16 {
        match self {
            Self::HeaderField(_) => 1,
            Self::Sequence => 2,
            Self::HeaderDigest(_) => 3,
            Self::OutOfRange => 4,
            Self::Parameter(_) => 6,
        }
    }

    fn information(self) -> u32 {
        match self {
            Self::HeaderField(at) | Self::Parameter(at) => at.into(),
            Self::HeaderDigest(digest) => digest,
            Self::Sequence | Self::OutOfRange => 0,
        }
    }

    /// The PDU that terminates the connection because of a PDU that begins with `header`.
    pub(in crate::nvme) fn encode(self, header: &[u8]) -> Vec<u8> {
        let quoted = header.get(..header.len().min(TERMINATE_MAX - SHORT_LEN)).unwrap_or(&[]);
        let length = SHORT_LEN + quoted.len();
        let mut pdu = FieldWriter::new(length);
        pdu.u8(0, kind::CONTROLLER_TERMINATE).u8(2, SHORT_LEN as u8).u32(4, length as u32);
        pdu.u16(8, self.status()).u32(10, self.information()).put(SHORT_LEN, quoted).finish()
    }
}

/// The digests that a connection uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::nvme) struct Digests {
    pub(in crate::nvme) header: bool,
    pub(in crate::nvme) data: bool,
}

/// The request of a host to open a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::nvme) struct ConnectionRequest {
    pub(in crate::nvme) digests: Digests,
    /// Data to the host begins at a multiple of this many bytes of the PDU.
    pub(in crate::nvme) alignment: usize,
}

impl ConnectionRequest {
    pub(in crate::nvme) fn decode(bytes: &[u8; IC_LEN]) -> Result<Self, FatalError> {
        if u8_at(bytes, 0) != kind::IC_REQUEST {
            return Err(FatalError::Sequence);
        }
        for (at, expected) in [(1, 0), (2, IC_LEN as u8), (3, 0)] {
            if u8_at(bytes, at) != expected {
                return Err(FatalError::HeaderField(at as u8));
            }
        }
        if u32_at(bytes, 4) != IC_LEN as u32 {
            return Err(FatalError::HeaderField(4));
        }
        if u16_at(bytes, 8) != 0 {
            return Err(FatalError::Parameter(8));
        }
        let (alignment, digests) = (u8_at(bytes, 10), u8_at(bytes, 11));
        if alignment > 31 {
            return Err(FatalError::HeaderField(10));
        }
        let digests = Digests { header: digests & 1 != 0, data: digests & 2 != 0 };
        Ok(Self { digests, alignment: (usize::from(alignment) + 1) * 4 })
    }

    /// The answer of the controller. `data_max`: the most bytes of one PDU with data of the host.
    pub(in crate::nvme) fn accept(self, data_max: u32) -> Vec<u8> {
        let mut pdu = FieldWriter::new(IC_LEN);
        pdu.u8(0, kind::IC_RESPONSE).u8(2, IC_LEN as u8).u32(4, IC_LEN as u32);
        let digests = u8::from(self.digests.header) | u8::from(self.digests.data) << 1;
        pdu.u8(11, digests).u32(12, data_max).finish()
    }
}

/// The kinds of PDUs of a host on an open connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::nvme) enum FrameKind {
    Command,
    Data,
    Terminate,
}

/// The layout of a PDU of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::nvme) struct Frame {
    pub(in crate::nvme) kind: FrameKind,
    /// The last PDU of a data transfer.
    pub(in crate::nvme) last: bool,
    /// A digest follows the header.
    pub(in crate::nvme) header_digest: bool,
    /// A digest follows the data.
    pub(in crate::nvme) data_digest: bool,
    /// Bytes between the header and the data.
    pub(in crate::nvme) padding: usize,
    /// Bytes of data.
    pub(in crate::nvme) data: usize,
}

impl Frame {
    /// Checks the common header of a PDU with up to `data_max` bytes of data.
    pub(in crate::nvme) fn decode(
        common: &[u8; COMMON_LEN],
        digests: Digests,
        data_max: usize,
    ) -> Result<Self, FatalError> {
        let (kind, header) = match u8_at(common, 0) {
            kind::COMMAND => (FrameKind::Command, COMMAND_LEN),
            kind::HOST_DATA => (FrameKind::Data, SHORT_LEN),
            kind::HOST_TERMINATE => (FrameKind::Terminate, SHORT_LEN),
            kind::IC_REQUEST => return Err(FatalError::Sequence),
            _ => return Err(FatalError::HeaderField(0)),
        };
        let (flags, length) = (u8_at(common, 1), u32_at(common, 4) as usize);
        if usize::from(u8_at(common, 2)) != header {
            return Err(FatalError::HeaderField(2));
        }
        if kind == FrameKind::Terminate {
            let data = length.checked_sub(header).filter(|_| length <= TERMINATE_MAX);
            let data = data.ok_or(FatalError::HeaderField(4))?;
            let none = Self { kind, last: true, header_digest: false, data_digest: false, padding: 0, data };
            return Ok(none);
        }
        if (flags & flag::HEADER_DIGEST != 0) != digests.header {
            return Err(FatalError::HeaderField(1));
        }
        let with_digest = header + if digests.header { DIGEST_LEN } else { 0 };
        let mut frame = Self {
            kind,
            last: flags & flag::LAST != 0,
            header_digest: digests.header,
            data_digest: false,
            padding: 0,
            data: 0,
        };
        if length == with_digest && kind == FrameKind::Command {
            return Ok(frame);
        }
        frame.data_digest = digests.data;
        if (flags & flag::DATA_DIGEST != 0) != digests.data {
            return Err(FatalError::HeaderField(1));
        }
        let offset = usize::from(u8_at(common, 3));
        frame.padding = offset.checked_sub(with_digest).ok_or(FatalError::HeaderField(3))?;
        let trailer = if digests.data { DIGEST_LEN } else { 0 };
        frame.data = length.checked_sub(offset + trailer).ok_or(FatalError::HeaderField(4))?;
        if frame.data == 0 || frame.data > data_max {
            return Err(FatalError::HeaderField(4));
        }
        Ok(frame)
    }
}

/// The header of data from the host, after the common part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::nvme) struct HostData {
    pub(in crate::nvme) command: u16,
    /// The transfer, as the controller named it.
    pub(in crate::nvme) tag: u16,
    /// Byte of the command's data at which the data begins.
    pub(in crate::nvme) offset: u32,
    pub(in crate::nvme) length: u32,
}

impl HostData {
    pub(in crate::nvme) fn decode(bytes: &[u8; SHORT_LEN - COMMON_LEN]) -> Self {
        Self {
            command: u16_at(bytes, 0),
            tag: u16_at(bytes, 2),
            offset: u32_at(bytes, 4),
            length: u32_at(bytes, 8),
        }
    }
}

/// The error that a host reports before it closes the connection.
pub(in crate::nvme) fn terminate_status(bytes: &[u8; SHORT_LEN - COMMON_LEN]) -> (u16, u32) {
    (u16_at(bytes, 0), u32_at(bytes, 2))
}

/// The header of most PDUs of a controller.
type ShortHeader = FieldWriter<[u8; SHORT_LEN]>;

/// Encodes the PDUs of a controller on an open connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::nvme) struct PduEncoder {
    pub(in crate::nvme) digests: Digests,
    /// As [`ConnectionRequest::alignment`].
    pub(in crate::nvme) alignment: usize,
}

impl PduEncoder {
    /// The request for `length` bytes of a command's data, from `offset` on.
    pub(in crate::nvme) fn ready_to_transfer(
        &self,
        command: u16,
        tag: u16,
        offset: u32,
        length: u32,
    ) -> ReplyHead {
        let mut pdu = self.short(kind::READY_TO_TRANSFER, 0, 0);
        pdu.u16(8, command).u16(10, tag).u32(12, offset).u32(16, length);
        self.seal(pdu, &[])
    }

    /// The response of a command: its completion queue entry. `before` are bytes that precede it.
    pub(in crate::nvme) fn response(&self, entry: &[u8; 16], before: &[u8]) -> ReplyHead {
        let mut pdu = self.short(kind::RESPONSE, 0, 0);
        pdu.put(8, entry);
        self.seal(pdu, before)
    }

    /// Padding between the header of data and the data.
    pub(in crate::nvme) fn padding(&self) -> usize {
        let header = self.header_len();
        header.next_multiple_of(self.alignment) - header
    }

    fn header_len(&self) -> usize {
        SHORT_LEN + if self.digests.header { DIGEST_LEN } else { 0 }
    }

    /// The header of `length` bytes of data, the last ones of the command. `success`: no response
    /// follows. The padding and the data follow the header.
    pub(in crate::nvme) fn data(&self, command: u16, length: u32, success: bool) -> ReplyHead {
        let flags = flag::LAST
            | if success { flag::SUCCESS } else { 0 }
            | if self.digests.data { flag::DATA_DIGEST } else { 0 };
        let offset = self.header_len() + self.padding();
        let trailer = if self.digests.data { DIGEST_LEN } else { 0 };
        let mut pdu = self.short(kind::CONTROLLER_DATA, flags, length + trailer as u32);
        // The padding is a part of the PDU.
        pdu.u8(3, offset as u8).u32(4, (offset + trailer) as u32 + length);
        pdu.u16(8, command).u32(16, length);
        self.seal(pdu, &[])
    }

    fn short(&self, kind: u8, flags: u8, after: u32) -> ShortHeader {
        let mut pdu = ShortHeader::fixed();
        let digest = if self.digests.header { flag::HEADER_DIGEST } else { 0 };
        pdu.u8(0, kind).u8(1, flags | digest).u8(2, SHORT_LEN as u8);
        pdu.u32(4, self.header_len() as u32 + after);
        pdu
    }

    fn seal(&self, pdu: ShortHeader, before: &[u8]) -> ReplyHead {
        let mut head = ReplyHead::new(before);
        head.append(pdu.bytes());
        if self.digests.header {
            head.append(&codec::crc32c(pdu.bytes()).to_le_bytes());
        }
        head
    }
}

#[cfg(test)]
#[path = "pdu_tests.rs"]
mod tests;
