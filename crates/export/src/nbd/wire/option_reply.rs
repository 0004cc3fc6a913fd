//! Replies of the server to handshake options.

use super::bytes::{Put, length};
use super::context::ALLOCATION;
use super::option_error::OptionError;
use super::strings::clipped;

/// The magic number of option replies.
const REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;

/// `NBD_REP_*` without errors.
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

/// The parameters of an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::nbd) struct ExportFacts {
    /// Size in bytes.
    pub(in crate::nbd) size: u64,
    /// Smallest unit of access in bytes.
    pub(in crate::nbd) sector: u32,
    /// Preferred unit of access in bytes.
    pub(in crate::nbd) preferred: u32,
    /// Largest read or write in bytes.
    pub(in crate::nbd) payload_max: u32,
    pub(in crate::nbd) read_only: bool,
    /// The client negotiated structured replies.
    pub(in crate::nbd) structured: bool,
}

impl ExportFacts {
    /// Returns the transmission flags, `NBD_FLAG_*`.
    ///
    /// `CAN_MULTI_CONN` follows from [`crate::Volume::flush`], `SEND_FAST_ZERO` from
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

/// Encodes the reply to `NBD_OPT_EXPORT_NAME`, which has a format of its own.
pub(in crate::nbd) fn export_name_reply(facts: &ExportFacts, no_zeroes: bool) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.put_u64(facts.size);
    bytes.put_u16(facts.flags());
    if !no_zeroes {
        bytes.put(&[0; 124]);
    }
    bytes
}

/// The replies to one option.
pub(in crate::nbd) struct OptionReplies {
    option: u32,
    bytes: Vec<u8>,
}

impl OptionReplies {
    /// Creates the replies to option `option`, none yet.
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

    /// Appends an acknowledgement.
    pub(in crate::nbd) fn acknowledge(mut self) -> Vec<u8> {
        self.reply(kind::ACK, &[]);
        self.bytes
    }

    /// Appends an error with a message for people.
    pub(in crate::nbd) fn refuse(mut self, error: OptionError, message: &str) -> Vec<u8> {
        self.reply(error.code(), &[clipped(message).as_bytes()]);
        self.bytes
    }

    /// Appends an entry of the list of exports.
    pub(in crate::nbd) fn export(&mut self, name: &str, description: &str) {
        let mut header = Vec::new();
        header.put_u32(length(name.len()));
        self.reply(kind::SERVER, &[&header, name.as_bytes(), clipped(description).as_bytes()]);
    }

    /// Appends the parameters of an export.
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

    /// Appends the export's name.
    pub(in crate::nbd) fn name(&mut self, name: &str) {
        self.info(info::NAME, name.as_bytes());
    }

    /// Appends the export's description.
    pub(in crate::nbd) fn description(&mut self, description: &str) {
        self.info(info::DESCRIPTION, clipped(description).as_bytes());
    }

    /// Appends the allocation context with this identifier.
    pub(in crate::nbd) fn allocation_context(&mut self, id: u32) {
        let mut header = Vec::new();
        header.put_u32(id);
        self.reply(kind::META_CONTEXT, &[&header, ALLOCATION.as_bytes()]);
    }
}
