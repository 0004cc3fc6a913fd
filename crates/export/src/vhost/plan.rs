//! How the data of a request goes between the guest's memory and the volume: where it lies, or through a buffer.
//!
//! Always true: the parts of a plan cover the data once, in order, in whole sectors. Decides, does nothing.

use smallvec::SmallVec;

use super::limits::{DIRECT_MIN, GATHER_MAX, SEGMENT_BYTES_MAX, WHOLE_WRITE_MAX};
use super::memory::{Piece, Pieces};

/// A part of a request's data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Part {
    /// Byte of the data at which it starts.
    pub(super) at: u64,
    /// Where it lies; more than one piece go through a buffer.
    pub(super) pieces: Pieces,
}

/// Cuts the data of a request into parts of whole sectors.
pub(super) fn plan(pieces: &Pieces, sector: u32) -> SmallVec<[Part; 1]> {
    let mut cutter = Cutter { sector, parts: SmallVec::new(), at: 0, gathered: SmallVec::new(), bytes: 0 };
    // Alone, a piece needs no buffer however short it is.
    let direct_min = if pieces.len() == 1 { sector } else { DIRECT_MIN };
    for piece in pieces {
        cutter.add(*piece, direct_min);
    }
    cutter.end_gathering();
    cutter.parts
}

/// As [`plan`] for a write, which stays whole up to [`WHOLE_WRITE_MAX`].
pub(super) fn plan_write(pieces: &Pieces, sector: u32) -> SmallVec<[Part; 1]> {
    let bytes: u64 = pieces.iter().map(|piece| u64::from(piece.len)).sum();
    if bytes <= WHOLE_WRITE_MAX && bytes.is_multiple_of(sector.into()) {
        return SmallVec::from_elem(Part { at: 0, pieces: pieces.clone() }, 1);
    }
    plan(pieces, sector)
}

struct Cutter {
    sector: u32,
    parts: SmallVec<[Part; 1]>,
    /// Where the part that is being gathered starts.
    at: u64,
    gathered: Pieces,
    bytes: u64,
}

impl Cutter {
    fn add(&mut self, piece: Piece, direct_min: u32) {
        let mut rest = piece;
        while rest.len > 0 {
            let whole = rest.len - rest.len % self.sector;
            if whole >= direct_min && self.bytes.is_multiple_of(self.sector.into()) {
                self.end_gathering();
                let (direct, left) = rest.split(whole.min(SEGMENT_BYTES_MAX));
                self.push(SmallVec::from_elem(direct, 1), direct.len.into());
                rest = left;
                continue;
            }
            // At most as much as the buffer still takes, so that its end is on a sector.
            let room = u32::try_from(GATHER_MAX - self.bytes).unwrap_or(u32::MAX);
            let (now, left) = rest.split(rest.len.min(room));
            self.gathered.push(now);
            self.bytes += u64::from(now.len);
            rest = left;
            if self.bytes == GATHER_MAX {
                self.end_gathering();
            }
        }
    }

    fn end_gathering(&mut self) {
        let (pieces, bytes) = (std::mem::take(&mut self.gathered), std::mem::take(&mut self.bytes));
        if bytes > 0 {
            self.push(pieces, bytes);
        }
    }

    fn push(&mut self, pieces: Pieces, bytes: u64) {
        self.parts.push(Part { at: self.at, pieces });
        self.at += bytes;
    }
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
