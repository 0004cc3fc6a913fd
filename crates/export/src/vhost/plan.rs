//! Plans the data transfers of a request between the guest's memory and the volume: directly or
//! through a bounce buffer.
//!
//! Always true: the transfers cover the data once, in order, in whole sectors. Pure functions.

use smallvec::SmallVec;

use super::limits::{BOUNCE_BUFFER_MAX, DIRECT_MIN, SEGMENT_BYTES_MAX, WHOLE_WRITE_MAX};
use super::memory::{GuestSegment, GuestSegments};

/// A part of a request's data, transferred in one volume operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Transfer {
    /// Offset in the request's data.
    pub(super) at: u64,
    /// Location in the guest's memory. Several segments use a bounce buffer.
    pub(super) segments: GuestSegments,
}

/// Splits the data of a request into transfers of whole sectors.
pub(super) fn plan(segments: &GuestSegments, sector: u32) -> SmallVec<[Transfer; 1]> {
    let mut builder =
        TransferBuilder { sector, transfers: SmallVec::new(), at: 0, gathered: SmallVec::new(), bytes: 0 };
    // A single segment needs no buffer, regardless of its length.
    let direct_min = if segments.len() == 1 { sector } else { DIRECT_MIN };
    for segment in segments {
        builder.add(*segment, direct_min);
    }
    builder.finish_gathered();
    builder.transfers
}

/// Plans a write like [`plan`], but as one transfer up to [`WHOLE_WRITE_MAX`].
pub(super) fn plan_write(segments: &GuestSegments, sector: u32) -> SmallVec<[Transfer; 1]> {
    let bytes: u64 = segments.iter().map(|segment| u64::from(segment.len)).sum();
    if bytes <= WHOLE_WRITE_MAX && bytes.is_multiple_of(sector.into()) {
        return SmallVec::from_elem(Transfer { at: 0, segments: segments.clone() }, 1);
    }
    plan(segments, sector)
}

struct TransferBuilder {
    sector: u32,
    transfers: SmallVec<[Transfer; 1]>,
    /// Offset of the transfer that is being gathered.
    at: u64,
    gathered: GuestSegments,
    bytes: u64,
}

impl TransferBuilder {
    fn add(&mut self, segment: GuestSegment, direct_min: u32) {
        let mut rest = segment;
        while rest.len > 0 {
            let whole = rest.len - rest.len % self.sector;
            if whole >= direct_min && self.bytes.is_multiple_of(self.sector.into()) {
                self.finish_gathered();
                let (direct, left) = rest.split(whole.min(SEGMENT_BYTES_MAX));
                self.push(SmallVec::from_elem(direct, 1), direct.len.into());
                rest = left;
                continue;
            }
            // Limited by the rest of the buffer, so that it ends on a sector boundary.
            let room = u32::try_from(BOUNCE_BUFFER_MAX - self.bytes).unwrap_or(u32::MAX);
            let (now, left) = rest.split(rest.len.min(room));
            self.gathered.push(now);
            self.bytes += u64::from(now.len);
            rest = left;
            if self.bytes == BOUNCE_BUFFER_MAX {
                self.finish_gathered();
            }
        }
    }

    fn finish_gathered(&mut self) {
        let (segments, bytes) = (std::mem::take(&mut self.gathered), std::mem::take(&mut self.bytes));
        if bytes > 0 {
            self.push(segments, bytes);
        }
    }

    fn push(&mut self, segments: GuestSegments, bytes: u64) {
        self.transfers.push(Transfer { at: self.at, segments });
        self.at += bytes;
    }
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
