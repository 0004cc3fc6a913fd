//! What a server answers during the handshake.

use super::STRING_MAX;
use super::bytes::{Put, length};
use super::context::ALLOCATION;

/// The magic number of answers to options.
const REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;

/// `NBD_REP_*` that are no errors.
mod kind {
    pub(super) const ACK: u32 = 1;
    pub(super) const SERVER: u32 = 2;
    pub(super) const INFO: u32 = 3;
    pub(super) const META_CONTEXT: u32 = 4;
}

/// `NBD_INFO_*`.
mod info {
    pub(super) const EXPORT: u16 = 0;
    pub(super) const NAME: u16 = 1;
    pub(super) const DESCRIPTION: u16 = 2;
    pub(super) const BLOCK_SIZE: u16 = 3;
}

/// Why an option was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::nbd) enum OptionError {
    /// `NBD_REP_ERR_UNSUP`: not known here.
    Unsupported,
    /// `NBD_REP_ERR_POLICY`: known, but not allowed.
    Policy,
    /// `NBD_REP_ERR_INVALID`: makes no sense.
    Invalid,
    /// `NBD_REP_ERR_UNKNOWN`: there is no such export.
    Unknown,
    /// `NBD_REP_ERR_SHUTDOWN`: not now.
    Shutdown,
    /// `NBD_REP_ERR_TOO_BIG`: more than any client has reason to send.
    TooBig,
}

impl OptionError {
    fn code(self) -> u32 {
        const ERROR: u32 = 1 << 31;
        ERROR
            + match self {
                Self::Unsupported => 1,
                Self::Policy => 2,
                Self::Invalid => 3,
                Self::Unknown => 6,
                Self::Shutdown => 7,
                Self::TooBig => 9,
            }
    }
}

/// What a client must know of an export to use it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::nbd) struct ExportFacts {
    /// Bytes.
    pub(in crate::nbd) size: u64,
    /// The least that can be read or written, in bytes.
    pub(in crate::nbd) sector: u32,
    /// What is read or written best, in bytes.
    pub(in crate::nbd) preferred: u32,
    /// The most that can be read or written at once, in bytes.
    pub(in crate::nbd) payload_max: u32,
    pub(in crate::nbd) read_only: bool,
    /// The client takes structured replies.
    pub(in crate::nbd) structured: bool,
}

impl ExportFacts {
    /// The transmission flags, `NBD_FLAG_*`.
    ///
    /// `CAN_MULTI_CONN` is [`crate::Volume::flush`]'s promise, `SEND_FAST_ZERO` that of
    /// [`crate::Volume::write_zeroes`].
    fn flags(&self) -> u16 {
        const HAS_FLAGS: u16 = 1 << 0;
        const READ_ONLY: u16 = 1 << 1;
        const SEND_FLUSH: u16 = 1 << 2;
        const SEND_FUA: u16 = 1 << 3;
        const SEND_TRIM: u16 = 1 << 5;
        const SEND_WRITE_ZEROES: u16 = 1 << 6;
        const SEND_DF: u16 = 1 << 7;
        const CAN_MULTI_CONN: u16 = 1 << 8;
        const SEND_FAST_ZERO: u16 = 1 << 11;
        let access = match self.read_only {
            true => READ_ONLY,
            false => SEND_TRIM | SEND_WRITE_ZEROES | SEND_FAST_ZERO,
        };
        let structured = if self.structured { SEND_DF } else { 0 };
        HAS_FLAGS | SEND_FLUSH | SEND_FUA | CAN_MULTI_CONN | access | structured
    }
}

/// The answer to `NBD_OPT_EXPORT_NAME`, which has a form of its own.
pub(in crate::nbd) fn export_name_reply(facts: &ExportFacts, no_zeroes: bool) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.put_u64(facts.size);
    bytes.put_u16(facts.flags());
    if !no_zeroes {
        bytes.put(&[0; 124]);
    }
    bytes
}

/// The answers to one option, one after the other.
pub(in crate::nbd) struct OptionReplies {
    option: u32,
    bytes: Vec<u8>,
}

impl OptionReplies {
    /// No answer yet to the option that the client called `option`.
    pub(in crate::nbd) fn to(option: u32) -> Self {
        Self { option, bytes: Vec::new() }
    }

    fn reply(&mut self, kind: u32, parts: &[&[u8]]) {
        self.bytes.put_u64(REPLY_MAGIC);
        self.bytes.put_u32(self.option);
        self.bytes.put_u32(kind);
        self.bytes.put_u32(length(parts.iter().map(|part| part.len()).sum()));
        for part in parts {
            self.bytes.put(part);
        }
    }

    fn info(&mut self, kind: u16, data: &[u8]) {
        let mut header = Vec::new();
        header.put_u16(kind);
        self.reply(kind::INFO, &[&header, data]);
    }

    /// Done.
    pub(in crate::nbd) fn acknowledge(mut self) -> Vec<u8> {
        self.reply(kind::ACK, &[]);
        self.bytes
    }

    /// Refused, with a message for people.
    pub(in crate::nbd) fn refuse(mut self, error: OptionError, message: &str) -> Vec<u8> {
        self.reply(error.code(), &[clipped(message).as_bytes()]);
        self.bytes
    }

    /// One of the exports.
    pub(in crate::nbd) fn export(&mut self, name: &str, description: &str) {
        let mut header = Vec::new();
        header.put_u32(length(name.len()));
        self.reply(kind::SERVER, &[&header, name.as_bytes(), clipped(description).as_bytes()]);
    }

    /// What a client must know of an export.
    pub(in crate::nbd) fn facts(&mut self, facts: &ExportFacts) {
        let mut export = Vec::new();
        export.put_u64(facts.size);
        export.put_u16(facts.flags());
        self.info(info::EXPORT, &export);
        let mut sizes = Vec::new();
        sizes.put_u32(facts.sector);
        sizes.put_u32(facts.preferred);
        sizes.put_u32(facts.payload_max);
        self.info(info::BLOCK_SIZE, &sizes);
    }

    /// The export's name.
    pub(in crate::nbd) fn name(&mut self, name: &str) {
        self.info(info::NAME, name.as_bytes());
    }

    /// What the export is, for people.
    pub(in crate::nbd) fn description(&mut self, description: &str) {
        self.info(info::DESCRIPTION, clipped(description).as_bytes());
    }

    /// The one metadata context, under this number.
    pub(in crate::nbd) fn allocation_context(&mut self, id: u32) {
        let mut header = Vec::new();
        header.put_u32(id);
        self.reply(kind::META_CONTEXT, &[&header, ALLOCATION.as_bytes()]);
    }
}

/// As much of a text as a string of the protocol may have.
pub(super) fn clipped(text: &str) -> &str {
    text.get(..text.floor_char_boundary(STRING_MAX)).unwrap_or(text)
}
