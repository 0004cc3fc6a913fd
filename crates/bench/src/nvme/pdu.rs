//! PDUs of NVMe/TCP as an initiator needs them: NVM Express TCP Transport Specification 1.1.

use std::io::{Error, ErrorKind, Read};
use std::net::TcpStream;

/// Bytes of the common header.
pub(super) const COMMON: usize = 8;
/// Bytes of a submission queue entry.
pub(super) const ENTRY: usize = 64;
/// Bytes before the data of a capsule.
const CAPSULE_HEADER: usize = COMMON + ENTRY;
/// The most bytes of a PDU that is received before the load begins.
const HANDSHAKE_MAX: usize = 64 << 10;

/// Types of PDUs.
pub(super) mod kind {
    pub(in crate::nvme) const OPEN: u8 = 0;
    pub(in crate::nvme) const OPENED: u8 = 1;
    pub(in crate::nvme) const COMMAND: u8 = 4;
    pub(in crate::nvme) const RESPONSE: u8 = 5;
    pub(in crate::nvme) const HOST_DATA: u8 = 6;
    pub(in crate::nvme) const DATA: u8 = 7;
    pub(in crate::nvme) const READY: u8 = 9;
}

/// The flag of data that completes its command without a response.
const SUCCESS: u8 = 1 << 3;
/// The flag of the last data of a transfer.
const LAST: u8 = 1 << 2;

/// Reads a number at an offset; zero beyond the end.
pub(super) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |bytes| u16::from_le_bytes(*bytes))
}

/// Like [`u16_at`].
pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

/// Like [`u16_at`].
pub(super) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

/// A submission queue entry.
#[derive(Clone, Copy)]
pub(super) struct Entry(pub(super) [u8; ENTRY]);

impl Entry {
    /// An entry for the namespace, whose data is `length` bytes: in the capsule, or in PDUs.
    pub(super) fn new(opcode: u8, id: u16, namespace: u32, length: u32, in_capsule: bool) -> Self {
        let mut entry = Self([0; ENTRY]);
        // SGLs are used for all data.
        entry.set(0, &[opcode, 0x40]);
        entry.set(2, &id.to_le_bytes());
        entry.set(4, &namespace.to_le_bytes());
        entry.set(32, &length.to_le_bytes());
        // An offset within the capsule, or a transport data block.
        entry.set(39, &[if in_capsule { 0x01 } else { 0x5a }]);
        entry
    }

    /// Sets bytes at an offset.
    pub(super) fn set(&mut self, at: usize, bytes: &[u8]) {
        let place = self.0.iter_mut().skip(at);
        place.zip(bytes).for_each(|(place, byte)| *place = *byte);
    }
}

/// Appends a PDU.
fn push(out: &mut Vec<u8>, kind: u8, flags: u8, header: &[u8], data: &[u8]) {
    let length = header.len() + COMMON;
    let number = |length: usize| u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes();
    let [header_length, ..] = number(length);
    let offset = if data.is_empty() { 0 } else { header_length };
    out.extend([kind, flags, header_length, offset]);
    out.extend(number(length + data.len()));
    out.extend(header);
    out.extend(data);
}

/// Appends the request to open a connection without digests.
pub(super) fn push_open(out: &mut Vec<u8>) {
    push(out, kind::OPEN, 0, &[0; 120], &[]);
}

/// Appends a command with the data of its capsule.
pub(super) fn push_command(out: &mut Vec<u8>, entry: &Entry, data: &[u8]) {
    push(out, kind::COMMAND, 0, &entry.0, data);
}

/// Appends a part of the data that the target has asked for.
pub(super) fn push_data(out: &mut Vec<u8>, ready: &ReadyToTransfer, at: usize, data: &[u8], is_last: bool) {
    let mut header = [0; 16];
    let place = u32::try_from(ready.offset + at).unwrap_or(u32::MAX);
    let length = u32::try_from(data.len()).unwrap_or(u32::MAX);
    let fields = [
        &ready.command.to_le_bytes()[..],
        &ready.tag.to_le_bytes(),
        &place.to_le_bytes(),
        &length.to_le_bytes(),
    ];
    header.iter_mut().zip(fields.concat()).for_each(|(place, byte)| *place = byte);
    push(out, kind::HOST_DATA, if is_last { LAST } else { 0 }, &header, data);
}

/// A request of the target for the data of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ReadyToTransfer {
    pub(super) command: u16,
    pub(super) tag: u16,
    pub(super) offset: usize,
    pub(super) length: usize,
}

/// A PDU of the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TargetPdu<'a> {
    /// A command has completed, with this status.
    Response { command: u16, status: u16, result: u64 },
    /// Data of a read.
    Data { command: u16, offset: usize, bytes: &'a [u8], completes: bool },
    /// The target asks for the data of a write.
    Ready(ReadyToTransfer),
    /// A PDU that the target must not send.
    Unexpected(u8),
}

impl<'a> TargetPdu<'a> {
    /// Decodes a PDU.
    pub(super) fn decode(pdu: &'a [u8]) -> Self {
        let (kind, flags) = (pdu.first().copied().unwrap_or(u8::MAX), pdu.get(1).copied().unwrap_or(0));
        let (long, size) = (|at: usize| u32_at(pdu, at) as usize, pdu.len());
        match kind {
            kind::RESPONSE => Self::Response {
                command: u16_at(pdu, 20),
                status: u16_at(pdu, 22) >> 1,
                result: u64_at(pdu, 8),
            },
            kind::DATA => {
                let start = usize::from(pdu.get(3).copied().unwrap_or(0)).min(size);
                let bytes = pdu.get(start..).unwrap_or_default();
                let completes = flags & SUCCESS != 0;
                Self::Data { command: u16_at(pdu, 8), offset: long(12), bytes, completes }
            }
            kind::READY => Self::Ready(ReadyToTransfer {
                command: u16_at(pdu, 8),
                tag: u16_at(pdu, 10),
                offset: long(12),
                length: long(16),
            }),
            other => Self::Unexpected(other),
        }
    }
}

/// Receives one PDU, waiting for it.
pub(super) fn receive(stream: &mut TcpStream) -> std::io::Result<Vec<u8>> {
    let mut pdu = vec![0; COMMON];
    stream.read_exact(&mut pdu)?;
    let length = u32_at(&pdu, 4) as usize;
    if !(CAPSULE_HEADER.min(24)..=HANDSHAKE_MAX).contains(&length) {
        let problem = format!("the peer sent a PDU of {length} bytes: it does not speak NVMe/TCP");
        return Err(Error::new(ErrorKind::InvalidData, problem));
    }
    pdu.resize(length, 0);
    stream.read_exact(pdu.get_mut(COMMON..).unwrap_or_default())?;
    Ok(pdu)
}
