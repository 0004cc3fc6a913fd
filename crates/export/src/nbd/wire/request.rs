//! What a client asks for once an export is in use.
//!
//! Always true: a [`Command`] can be carried out as it is: its range lies within the export, in whole sectors, and is
//! not empty. [`RequestHeader::check`] is the only way to one.

use super::BadMagic;
use super::bytes::Reader;
use super::reply::ErrorNumber;

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

/// What the client calls a request; its replies carry it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::nbd) struct Cookie(pub(in crate::nbd) u64);

/// A request as it was sent: nothing of it is known to make sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::nbd) struct RequestHeader {
    flags: u16,
    kind: u16,
    cookie: Cookie,
    offset: u64,
    length: u32,
}

/// Bytes of an export, not none of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::nbd) struct Range {
    pub(in crate::nbd) offset: u64,
    pub(in crate::nbd) length: u32,
}

impl Range {
    /// The bytes from `from` to `to`, if there are any and a range can be as long.
    pub(in crate::nbd) fn between(from: u64, to: u64) -> Option<Self> {
        let length = u32::try_from(to.checked_sub(from)?).ok()?;
        (length > 0).then_some(Self { offset: from, length })
    }

    /// The same bytes, cut at multiples of `size` bytes of the export.
    pub(in crate::nbd) fn pieces(self, size: u32) -> impl Iterator<Item = Self> {
        let size = u64::from(size);
        let end = self.offset + u64::from(self.length);
        let mut next = self.offset;
        std::iter::from_fn(move || {
            let offset = next;
            next = end.min((offset / size + 1) * size);
            Self::between(offset, next)
        })
    }
}

/// A request that makes sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::nbd) enum Command {
    /// `whole`: in one piece, or not at all.
    Read {
        range: Range,
        whole: bool,
    },
    /// Its payload follows. `durable`: before it is answered.
    Write {
        range: Range,
        durable: bool,
    },
    Flush,
    Trim {
        range: Range,
        durable: bool,
    },
    WriteZeroes {
        range: Range,
        durable: bool,
    },
    /// `one`: the first extent only.
    BlockStatus {
        range: Range,
        one: bool,
    },
    Disconnect,
}

/// What requests are held against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::nbd) struct Terms {
    /// Bytes of the export, now.
    pub(in crate::nbd) size: u64,
    /// Offsets and lengths are multiples of this many bytes.
    pub(in crate::nbd) sector: u32,
    pub(in crate::nbd) read_only: bool,
    /// The most bytes that are read or written at once.
    pub(in crate::nbd) payload_max: u32,
    /// Structured replies were agreed on.
    pub(in crate::nbd) structured: bool,
    /// The allocation context was selected.
    pub(in crate::nbd) allocation: bool,
}

/// A request that is answered with an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::nbd) struct Refusal {
    pub(in crate::nbd) error: ErrorNumber,
    /// For people.
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

    /// Bytes that follow the header, whether the request makes sense or not.
    pub(in crate::nbd) fn payload(&self) -> u32 {
        if self.kind == kind::WRITE { self.length } else { 0 }
    }

    /// The command, if it can be carried out on these terms.
    pub(in crate::nbd) fn check(&self, terms: &Terms) -> Result<Command, Refusal> {
        match self.kind {
            kind::DISC => return Ok(Command::Disconnect),
            kind::READ | kind::WRITE | kind::FLUSH | kind::TRIM | kind::WRITE_ZEROES | kind::BLOCK_STATUS => {
            }
            _ => return Err(refusal(ErrorNumber::Invalid, "the command is not known here")),
        }
        if self.flags & !self.flags_allowed(terms) != 0 {
            return Err(refusal(ErrorNumber::Invalid, "a flag does not belong to this command"));
        }
        if self.kind == kind::FLUSH {
            return match (self.offset, self.length) {
                (0, 0) => Ok(Command::Flush),
                _ => Err(refusal(ErrorNumber::Invalid, "a flush is of everything")),
            };
        }
        if self.is_change() && terms.read_only {
            return Err(refusal(ErrorNumber::NotPermitted, "the export is read-only"));
        }
        let range = self.check_range(terms)?;
        Ok(self.command(range))
    }

    fn flags_allowed(&self, terms: &Terms) -> u16 {
        // Allowed everywhere, since there are clients that set it everywhere.
        flag::FUA
            | match self.kind {
                kind::READ if terms.structured => flag::DF,
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

    fn check_range(&self, terms: &Terms) -> Result<Range, Refusal> {
        let sector = u64::from(terms.sector);
        if self.length == 0 {
            return Err(refusal(ErrorNumber::Invalid, "the range is empty"));
        }
        if self.offset.checked_add(self.length.into()).is_none_or(|end| end > terms.size) {
            let error = match self.kind {
                kind::WRITE | kind::WRITE_ZEROES => ErrorNumber::NoSpace,
                _ => ErrorNumber::Invalid,
            };
            return Err(refusal(error, "the range lies beyond the end of the export"));
        }
        if !self.offset.is_multiple_of(sector) || !u64::from(self.length).is_multiple_of(sector) {
            return Err(refusal(ErrorNumber::Invalid, "the range is no whole number of sectors"));
        }
        if matches!(self.kind, kind::READ | kind::WRITE) && self.length > terms.payload_max {
            let error = if self.has(flag::DF) { ErrorNumber::Overflow } else { ErrorNumber::Invalid };
            return Err(refusal(error, "more was asked for than is moved at once"));
        }
        if self.kind == kind::BLOCK_STATUS && !terms.allocation {
            return Err(refusal(ErrorNumber::Invalid, "no metadata context was selected"));
        }
        Ok(Range { offset: self.offset, length: self.length })
    }

    fn command(&self, range: Range) -> Command {
        let durable = self.has(flag::FUA);
        match self.kind {
            kind::READ => Command::Read { range, whole: self.has(flag::DF) },
            kind::WRITE => Command::Write { range, durable },
            kind::TRIM => Command::Trim { range, durable },
            // `NO_HOLE` asks for space to be set aside for later writes. A volume that never overwrites in place has no
            // such thing to give, and refusing would keep clients from zeroing at all. `FAST_ZERO` asks for what
            // `Volume::write_zeroes` always is.
            kind::WRITE_ZEROES => Command::WriteZeroes { range, durable },
            _ => Command::BlockStatus { range, one: self.has(flag::REQ_ONE) },
        }
    }
}
