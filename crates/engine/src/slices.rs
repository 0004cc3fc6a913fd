//! Striping of a volume over shards: slices of its address space go to shards in rotation, and
//! requests are split accordingly.
//!
//! Arithmetic only. Must not know: shards, the use of the sub-requests.

use format::VolumeSpread;
use format::limits::{BLOCK, SLICE};
use reactor::Span;
use smallvec::SmallVec;

use crate::invariant::{narrow, to_index};

/// The striping of a volume over a consecutive range of shards, which wraps around at the pool's
/// last shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slices {
    /// Number of shards of the pool.
    shards: u64,
    /// The shard of the first slice.
    first: u64,
    /// Number of shards that hold the volume.
    width: u64,
}

impl Slices {
    /// Striping over all shards of a pool.
    #[cfg(test)]
    pub(crate) fn new(shards: usize) -> Self {
        Self::of(VolumeSpread::default(), shards)
    }

    /// Striping by a volume record's spread, in a pool of `shards` shards.
    ///
    /// # Panics
    /// If the spread exceeds the pool's shards (F4).
    pub(crate) fn of(spread: VolumeSpread, shards: usize) -> Self {
        assert!(shards > 0 && spread.fits(shards), "F4: {spread:?} in a pool of {shards} shards");
        let shards = shards as u64;
        match u64::from(spread.shards) {
            0 => Self { shards, first: 0, width: shards },
            width => Self { shards, first: spread.first.into(), width },
        }
    }

    pub(super) const BLOCKS: u64 = SLICE / BLOCK as u64;

    /// Returns the number of shards of the pool.
    pub(super) fn shards(&self) -> usize {
        to_index(self.shards)
    }

    /// Returns the shards that hold the volume, in slice order.
    pub(crate) fn holders(&self) -> impl Iterator<Item = usize> + use<> {
        let Self { shards, first, width } = *self;
        (0..width).map(move |position| to_index((first + position) % shards))
    }

    /// Returns the spread with an explicit number of shards, even if the volume is on all of them.
    pub(crate) fn spread(&self) -> VolumeSpread {
        VolumeSpread { first: narrow(self.first, "F4"), shards: narrow(self.width, "F4") }
    }

    /// Returns the position of a shard in the rotation, or `None` if it holds no slice of the
    /// volume.
    fn position(&self, shard: usize) -> Option<u64> {
        let position = (shard as u64 + self.shards - self.first) % self.shards;
        (position < self.width).then_some(position)
    }

    /// Returns the shard of a volume block and the block's number there.
    pub(crate) fn locate(&self, block: u64) -> (usize, u64) {
        let slice = block / Self::BLOCKS;
        let shard = to_index((self.first + slice % self.width) % self.shards);
        (shard, slice / self.width * Self::BLOCKS + block % Self::BLOCKS)
    }

    /// Returns the volume block of a shard's block, if the shard holds a part of the volume.
    pub(crate) fn volume_block(&self, shard: usize, block: u64) -> Option<u64> {
        let position = self.position(shard)?;
        Some((block / Self::BLOCKS * self.width + position) * Self::BLOCKS + block % Self::BLOCKS)
    }

    /// Returns the volume blocks of a run of blocks of `shard`, as runs of first block and count.
    pub(crate) fn volume_runs(&self, shard: usize, block: u64, count: u64) -> Vec<(u64, u64)> {
        let mut runs: Vec<(u64, u64)> = Vec::new();
        let mut next = block;
        while next < block + count {
            let until = ((next / Self::BLOCKS + 1) * Self::BLOCKS).min(block + count);
            runs.extend(self.volume_block(shard, next).map(|first| (first, until - next)));
            next = until;
        }
        runs
    }

    /// Returns the first block of `shard` at or after volume block `block`; 0 if the shard holds no
    /// slice of the volume.
    pub(crate) fn local_bound(&self, shard: usize, block: u64) -> u64 {
        let (slice, within) = (block / Self::BLOCKS, block % Self::BLOCKS);
        let (round, position) = (slice / self.width, slice % self.width);
        let Some(own) = self.position(shard) else { return 0 };
        round * Self::BLOCKS
            + match own.cmp(&position) {
                std::cmp::Ordering::Less => Self::BLOCKS,
                std::cmp::Ordering::Equal => within,
                std::cmp::Ordering::Greater => 0,
            }
    }

    /// Returns the first volume block after the slice of `block`.
    pub(crate) fn end_of_slice(&self, block: u64) -> u64 {
        (block / Self::BLOCKS + 1) * Self::BLOCKS
    }

    /// Splits a range of blocks at slice boundaries, into sub-requests of at most `max_bytes`
    /// bytes.
    pub(super) fn split(&self, block: u64, blocks: u64, max_bytes: u64) -> SmallVec<[SubRequest; 4]> {
        let mut parts = SmallVec::new();
        let end = block + blocks;
        let mut next = block;
        while next < end {
            let part = self.first_part(next, end - next, max_bytes);
            parts.push(SubRequest { offset: (next - block) * BLOCK as u64, ..part });
            next += part.blocks;
        }
        parts
    }

    /// Returns the first sub-request of a range of blocks.
    pub(super) fn first_part(&self, block: u64, blocks: u64, max_bytes: u64) -> SubRequest {
        let (shard, local) = self.locate(block);
        let slice_end = (block / Self::BLOCKS + 1) * Self::BLOCKS;
        let until = (block + blocks).min(slice_end).min(block + max_bytes / BLOCK as u64);
        SubRequest { shard, block: local, blocks: until - block, offset: 0 }
    }
}

/// A part of a request within one slice, and so within one shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SubRequest {
    pub(super) shard: usize,
    pub(super) block: u64,
    pub(super) blocks: u64,
    /// Offset in the request, in bytes.
    pub(super) offset: u64,
}

impl SubRequest {
    /// Returns the sub-request's bytes of the request's span.
    pub(super) fn slice_of(&self, span: &Span) -> Span {
        let at = to_index(self.offset);
        let length = to_index(self.blocks) * BLOCK;
        span.slice(at..at + length)
    }
}
