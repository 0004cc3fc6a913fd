//! Requests in the transmission phase.
//!
//! Always true: a [`CheckedCommand`] can be executed as it is: its range is within the export, a
//! multiple of the sector size, and not empty. [`RequestHeader::check`] is the only constructor.

use super::bytes::Reader;
use super::types::{BadMagic, ByteRange, Cookie, ErrorNumber};

/// Bytes of a request without its payload.
pub(in crate::nbd) const REQUEST_LEN: usize = 28;

/// `NBD_REQUEST_MAGIC`.
const REQUEST_MAGIC: u32 = 0x2560_9513;

/// `NBD_CMD_*`.
mod kind {
    pub(super) const READ: u16 = 0;
    pub(super) const WRITE: u16 = 1;
    pub(super) const DISC: u16 = 2;
    pub(super) const FLUSH: u16 = 3;
    pub(super) const TRIM: u16 = 4;
    pub(super) const WRITE_ZEROES: u16 = 6;
    pub(super) const BLOCK_STATUS: u16 = 7;
}

/// `NBD_CMD_FLAG_*`.
mod flag {
    pub(super) const FUA: u16 = 1 << 0;
    pub(super) const NO_HOLE: u16 = 1 << 1;
    pub(super) const DF: u16 = 1 << 2;
    pub(super) const REQ_ONE: u16 = 1 << 3;
    pub(super) const FAST_ZERO: u16 = 1 << 4;
}

/// A request as received: nothing is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::nbd) struct RequestHeader {
    flags: u16,
    kind: u16,
    cookie: Cookie,
    offset: u64,
    length: u32,
}

/// A valid request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::nbd) enum CheckedCommand {
    /// `whole`: the data must not be split into chunks.
    Read {
        range: ByteRange,
        whole: bool,
    },
    /// The payload follows. `durable`: flush before the reply.
    Write {
        range: ByteRange,
        durable: bool,
    },
    Flush,
    Trim {
        range: ByteRange,
        durable: bool,
    },
    WriteZeroes {
        range: ByteRange,
        durable: bool,
    },
    /// `one`: only the first extent.
    BlockStatus {
        range: ByteRange,
        one: bool,
    },
    Disconnect,
}

/// The limits that requests are checked against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::nbd) struct ExportLimits {
    /// Current size of the export in bytes.
    pub(in crate::nbd) size: u64,
    /// Offsets and lengths are multiples of this many bytes.
    pub(in crate::nbd) sector: u32,
    pub(in crate::nbd) read_only: bool,
    /// The most bytes of one read or write.
    pub(in crate::nbd) payload_max: u32,
    /// Structured replies were negotiated.
    pub(in crate::nbd) structured: bool,
    /// The allocation context was selected.
    pub(in crate::nbd) allocation: bool,
}

/// A request that is answered with an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::nbd) struct Refusal {
    pub(in crate::nbd) error: ErrorNumber,
    /// A message for people.
    pub(in crate::nbd) message: &'static str,
}

const fn refusal(error: ErrorNumber, message: &'static str) -> Refusal {
    Refusal { error, message }
}

impl RequestHeader {
    pub(in crate::nbd) fn decode(bytes: &[u8; REQUEST_LEN]) -> Result<Self, BadMagic> {
        let mut reader = Reader::new(bytes);
        let magic = reader.u32().unwrap_or(0);
        if magic != REQUEST_MAGIC {
            return Err(BadMagic(magic.into()));
        }
        Ok(Self {
            flags: reader.u16().unwrap_or(u16::MAX),
            kind: reader.u16().unwrap_or(u16::MAX),
            cookie: Cookie(reader.u64().unwrap_or(0)),
            offset: reader.u64().unwrap_or(u64::MAX),
            length: reader.u32().unwrap_or(u32::MAX),
        })
    }

    pub(in crate::nbd) fn cookie(&self) -> Cookie {
        self.cookie
    }

    /// Returns the bytes of payload after the header, for a valid or an invalid request.
    pub(in crate::nbd) fn payload(&self) -> u32 {
        if self.kind == kind::WRITE { self.length } else { 0 }
    }

    /// Returns the command if it is within these limits.
    pub(in crate::nbd) fn check(&self, limits: &ExportLimits) -> Result<CheckedCommand, Refusal> {
        match self.kind {
            kind::DISC => return Ok(CheckedCommand::Disconnect),
            kind::READ | kind::WRITE | kind::FLUSH | kind::TRIM | kind::WRITE_ZEROES | kind::BLOCK_STATUS => {
            }
            _ => return Err(refusal(ErrorNumber::Invalid, "unknown command")),
        }
        if self.flags & !self.flags_allowed(limits) != 0 {
            return Err(refusal(ErrorNumber::Invalid, "a flag is not valid for this command"));
        }
        if self.kind == kind::FLUSH {
            return match (self.offset, self.length) {
                (0, 0) => Ok(CheckedCommand::Flush),
                _ => Err(refusal(ErrorNumber::Invalid, "a flush has no range")),
            };
        }
        if self.is_change() && limits.read_only {
            return Err(refusal(ErrorNumber::NotPermitted, "the export is read-only"));
        }
        let range = self.check_range(limits)?;
        Ok(self.command(range))
    }

    fn flags_allowed(&self, limits: &ExportLimits) -> u16 {
        // Permitted everywhere, because some clients set it everywhere.
        flag::FUA
            | match self.kind {
                kind::READ if limits.structured => flag::DF,
                kind::WRITE_ZEROES => flag::NO_HOLE | flag::FAST_ZERO,
                kind::BLOCK_STATUS => flag::REQ_ONE,
                _ => 0,
            }
    }

    fn is_change(&self) -> bool {
        matches!(self.kind, kind::WRITE | kind::TRIM | kind::WRITE_ZEROES)
    }

    fn has(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }

    fn check_range(&self, limits: &ExportLimits) -> Result<ByteRange, Refusal> {
        let sector = u64::from(limits.sector);
        if self.length == 0 {
            return Err(refusal(ErrorNumber::Invalid, "the range is empty"));
        }
        if self.offset.checked_add(self.length.into()).is_none_or(|end| end > limits.size) {
            let error = match self.kind {
                kind::WRITE | kind::WRITE_ZEROES => ErrorNumber::NoSpace,
                _ => ErrorNumber::Invalid,
            };
            return Err(refusal(error, "the range is beyond the end of the export"));
        }
        if !self.offset.is_multiple_of(sector) || !u64::from(self.length).is_multiple_of(sector) {
            return Err(refusal(ErrorNumber::Invalid, "the range is not a multiple of the sector size"));
        }
        if matches!(self.kind, kind::READ | kind::WRITE) && self.length > limits.payload_max {
            let error = if self.has(flag::DF) { ErrorNumber::Overflow } else { ErrorNumber::Invalid };
            return Err(refusal(error, "the range exceeds the largest payload"));
        }
        if self.kind == kind::BLOCK_STATUS && !limits.allocation {
            return Err(refusal(ErrorNumber::Invalid, "no metadata context was selected"));
        }
        Ok(ByteRange { offset: self.offset, length: self.length })
    }

    fn command(&self, range: ByteRange) -> CheckedCommand {
        let durable = self.has(flag::FUA);
        match self.kind {
            kind::READ => CheckedCommand::Read { range, whole: self.has(flag::DF) },
            kind::WRITE => CheckedCommand::Write { range, durable },
            kind::TRIM => CheckedCommand::Trim { range, durable },
            // `NO_HOLE` asks to allocate space for later writes. A volume that never overwrites in
            // place cannot do that, and an error would keep clients from zeroing. `FAST_ZERO` asks
            // for the speed that `Volume::write_zeroes` always has.
            kind::WRITE_ZEROES => CheckedCommand::WriteZeroes { range, durable },
            _ => CheckedCommand::BlockStatus { range, one: self.has(flag::REQ_ONE) },
        }
    }
}
