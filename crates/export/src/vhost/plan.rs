//! Plans the data transfers of a request between the guest's memory and the volume: directly or
//! through a bounce buffer.
//!
//! Always true: the transfers cover the data once, in order, in whole sectors. Pure functions.

use smallvec::SmallVec;

use super::limits::{DIRECT_MIN, GATHER_MAX, SEGMENT_BYTES_MAX, WHOLE_WRITE_MAX};
use super::memory::{Piece, Pieces};

/// A part of a request's data, transferred in one volume operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Part {
    /// Offset in the request's data.
    pub(super) at: u64,
    /// Location in the guest's memory. Several segments use a bounce buffer.
    pub(super) pieces: Pieces,
}

/// Splits the data of a request into transfers of whole sectors.
pub(super) fn plan(pieces: &Pieces, sector: u32) -> SmallVec<[Part; 1]> {
    let mut cutter = Cutter { sector, parts: SmallVec::new(), at: 0, gathered: SmallVec::new(), bytes: 0 };
    // A single segment needs no buffer, regardless of its length.
    let direct_min = if pieces.len() == 1 { sector } else { DIRECT_MIN };
    for piece in pieces {
        cutter.add(*piece, direct_min);
    }
    cutter.end_gathering();
    cutter.parts
}

/// Plans a write like [`plan`], but as one transfer up to [`WHOLE_WRITE_MAX`].
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
    /// Offset of the transfer that is being gathered.
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
            // Limited by the rest of the buffer, so that it ends on a sector boundary.
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
