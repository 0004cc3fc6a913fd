//! What of a volume holds data. The shards are asked slice by slice where there may be any; what lies between is skipped, however long.
//!
//! Must not know: how a shard finds out.

use std::rc::Rc;

use format::VolumeId;
use format::limits::{BLOCK, SLICE};
use smallvec::SmallVec;

use super::{AttachedVolume, Piece, ShardAccess, Slices};
use crate::error::Result;
use crate::shard::Shard;

/// Slices in which there may be data that are looked at for one answer, besides one of each shard: what it takes is bounded.
const SLICES_MAX: usize = 16;

/// A stretch of a volume that holds data, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Bytes.
    pub length: u64,
    /// True if it holds data; otherwise it reads as zeros.
    pub data: bool,
}

/// What a shard says of a piece.
pub(crate) struct Stored {
    /// How many blocks hold data, or do not, in turns.
    pub(crate) extents: Vec<(u64, bool)>,
    /// The first block behind it, of those that were asked about, from which on there may be data.
    pub(crate) next: Option<u64>,
}

impl AttachedVolume {
    /// What of the range holds data, in order. The lengths add up to `length`, or to less if more than 64 MiB of it would have to be
    /// looked at: holes are skipped, and do not count.
    ///
    /// # Errors
    /// `Invalid` beyond the end; those of reading the map.
    pub async fn extents(&self, offset: u64, length: u64) -> Result<Vec<Extent>> {
        self.check(offset, length)?;
        let (first, end) = (offset / BLOCK as u64, (offset + length).div_ceil(BLOCK as u64));
        let mut survey = Survey::new(self.shared.slices, first, end);
        let mut extents: Vec<Extent> = Vec::new();
        let mut left = SLICES_MAX + self.shared.slices.shards();
        while left > 0
            && let Some(step) = survey.step()
        {
            match step {
                Step::Hole(blocks) => append(&mut extents, blocks, false),
                Step::Ask(piece) => {
                    left -= 1;
                    let bound = self.shared.slices.local_bound(piece.shard, end);
                    let found = self.stored(piece, bound).await?;
                    found.extents.iter().for_each(|(blocks, data)| append(&mut extents, *blocks, *data));
                    survey.told(piece, found.next);
                }
            }
        }
        trim_to(&mut extents, offset % BLOCK as u64, length);
        Ok(extents)
    }

    async fn stored(&self, piece: Piece, bound: u64) -> Result<Stored> {
        let (volume, Piece { block, blocks, .. }): (VolumeId, _) = (self.shared.id, piece);
        match self.shard(piece.shard)? {
            ShardAccess::Here(shard) => shard.extents(volume, (block, blocks), bound).await,
            ShardAccess::There(home) => {
                let look = move |shard: Rc<Shard>| async move {
                    shard.extents(volume, (block, blocks), bound).await
                };
                home.call(look).await?
            }
        }
    }
}

/// A look at a range of a volume, from its beginning on.
pub(super) struct Survey {
    slices: Slices,
    next: u64,
    end: u64,
    /// For each shard the first of its blocks that may hold data, as far as that is known; there is none if it lies at the end.
    ahead: SmallVec<[Option<u64>; 16]>,
}

/// What is to be done next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// So many blocks hold nothing.
    Hole(u64),
    /// A shard knows.
    Ask(Piece),
}

impl Survey {
    /// Of the blocks from `first` up to `end`.
    pub(super) fn new(slices: Slices, first: u64, end: u64) -> Self {
        Self { slices, next: first, end, ahead: SmallVec::from_elem(None, slices.shards()) }
    }

    /// The next step; `None` at the end. What is asked must be told before the next one.
    pub(super) fn step(&mut self) -> Option<Step> {
        if self.next >= self.end {
            return None;
        }
        // Of a shard that was not asked yet, whatever comes next.
        let next_of = |(shard, known): (usize, &Option<u64>)| {
            known.unwrap_or_else(|| {
                let bound = self.slices.local_bound(shard, self.next);
                self.slices.global_block(shard, bound).unwrap_or(self.end)
            })
        };
        let next = self.ahead.iter().enumerate().map(next_of).min().unwrap_or(self.end).min(self.end);
        if next > self.next {
            let hole = next - self.next;
            self.next = next;
            return Some(Step::Hole(hole));
        }
        Some(Step::Ask(self.slices.first_piece(self.next, self.end - self.next, SLICE)))
    }

    /// A shard has told of a piece, and from which of its blocks behind that on there may be data.
    pub(super) fn told(&mut self, piece: Piece, next: Option<u64>) {
        let next = next.and_then(|next| self.slices.global_block(piece.shard, next)).unwrap_or(self.end);
        if let Some(known) = self.ahead.get_mut(piece.shard) {
            *known = Some(next);
        }
        self.next += piece.blocks;
    }
}

fn append(extents: &mut Vec<Extent>, blocks: u64, data: bool) {
    let length = blocks * BLOCK as u64;
    match extents.last_mut() {
        Some(last) if last.data == data => last.length += length,
        _ => extents.push(Extent { length, data }),
    }
}

/// Cuts `skip` bytes off the front of a list of extents and ends it after `length` more.
pub(super) fn trim_to(extents: &mut Vec<Extent>, skip: u64, length: u64) {
    if let Some(first) = extents.first_mut() {
        first.length -= skip;
    }
    let mut left = length;
    for extent in &mut *extents {
        extent.length = extent.length.min(left);
        left -= extent.length;
    }
    extents.retain(|extent| extent.length > 0);
}

#[cfg(test)]
#[path = "extents_tests.rs"]
mod tests;
