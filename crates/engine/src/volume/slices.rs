//! How a volume's blocks are dealt out to the shards: in slices of its address space, in turns; and requests cut accordingly.
//!
//! Arithmetic only. Must not know: what a shard is, what is done with the pieces.

use format::VolumeSpread;
use format::limits::{BLOCK, SLICE};
use reactor::Span;
use smallvec::SmallVec;

/// How a volume's blocks are dealt out to the shards: to some that follow one another, the pool's first following its last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slices {
    /// Shards of the pool.
    shards: u64,
    /// The one that the first slice goes to.
    first: u64,
    /// How many have a turn.
    turns: u64,
}

impl Slices {
    /// Over all shards of a pool.
    #[cfg(test)]
    pub(crate) fn new(shards: usize) -> Self {
        Self::of(VolumeSpread::default(), shards)
    }

    /// As a volume's record says, in a pool of so many shards, which has them.
    pub(crate) fn of(spread: VolumeSpread, shards: usize) -> Self {
        assert!(shards > 0 && spread.fits(shards), "F4: {spread:?} in a pool of {shards} shards");
        let shards = shards as u64;
        match u64::from(spread.shards) {
            0 => Self { shards, first: 0, turns: shards },
            turns => Self { shards, first: spread.first.into(), turns },
        }
    }

    pub(super) const BLOCKS: u64 = SLICE / BLOCK as u64;

    /// How many shards the pool has.
    pub(super) fn shards(&self) -> usize {
        usize::try_from(self.shards).unwrap_or(usize::MAX)
    }

    /// The shards that hold the volume, in the order of their turns.
    pub(crate) fn holders(&self) -> impl Iterator<Item = usize> + use<> {
        let Self { shards, first, turns } = *self;
        (0..turns).map(move |turn| usize::try_from((first + turn) % shards).unwrap_or(0))
    }

    /// The shards that hold the volume, by number even if they are all.
    pub(crate) fn spread(&self) -> VolumeSpread {
        let narrow = |number| u16::try_from(number).unwrap_or(u16::MAX);
        VolumeSpread { first: narrow(self.first), shards: narrow(self.turns) }
    }

    /// The turn of a shard; `None` if it holds nothing of the volume.
    fn turn(&self, shard: usize) -> Option<u64> {
        let turn = (shard as u64 + self.shards - self.first) % self.shards;
        (turn < self.turns).then_some(turn)
    }

    /// The shard of a volume's block, and the block's number there.
    pub(crate) fn place(&self, block: u64) -> (usize, u64) {
        let slice = block / Self::BLOCKS;
        let shard = usize::try_from((self.first + slice % self.turns) % self.shards).unwrap_or(0);
        (shard, slice / self.turns * Self::BLOCKS + block % Self::BLOCKS)
    }

    /// The volume's block that a block of a shard is, if the shard holds any.
    pub(crate) fn global_block(&self, shard: usize, block: u64) -> Option<u64> {
        let turn = self.turn(shard)?;
        Some((block / Self::BLOCKS * self.turns + turn) * Self::BLOCKS + block % Self::BLOCKS)
    }

    /// The volume's blocks that a run of blocks in `shard` is, as runs.
    pub(crate) fn global(&self, shard: usize, block: u64, count: u64) -> Vec<(u64, u64)> {
        let mut runs: Vec<(u64, u64)> = Vec::new();
        let mut next = block;
        while next < block + count {
            let until = ((next / Self::BLOCKS + 1) * Self::BLOCKS).min(block + count);
            runs.extend(self.global_block(shard, next).map(|global| (global, until - next)));
            next = until;
        }
        runs
    }

    /// The first block in `shard` at or behind the volume's block `block`; 0 if the shard holds nothing of the volume.
    pub(crate) fn local_bound(&self, shard: usize, block: u64) -> u64 {
        let (slice, within) = (block / Self::BLOCKS, block % Self::BLOCKS);
        let (round, turn) = (slice / self.turns, slice % self.turns);
        let Some(own) = self.turn(shard) else { return 0 };
        round * Self::BLOCKS
            + match own.cmp(&turn) {
                std::cmp::Ordering::Less => Self::BLOCKS,
                std::cmp::Ordering::Equal => within,
                std::cmp::Ordering::Greater => 0,
            }
    }

    /// The first block of the slice behind the one of the volume's block `block`.
    pub(crate) fn end_of_slice(&self, block: u64) -> u64 {
        (block / Self::BLOCKS + 1) * Self::BLOCKS
    }

    /// Cuts a range of blocks at slice borders, into pieces of at most `most` bytes.
    pub(super) fn cut(&self, block: u64, blocks: u64, most: u64) -> SmallVec<[Piece; 4]> {
        let mut pieces = SmallVec::new();
        let end = block + blocks;
        let mut next = block;
        while next < end {
            let piece = self.first_piece(next, end - next, most);
            pieces.push(Piece { at: (next - block) * BLOCK as u64, ..piece });
            next += piece.blocks;
        }
        pieces
    }

    /// The first piece of a range of blocks.
    pub(super) fn first_piece(&self, block: u64, blocks: u64, most: u64) -> Piece {
        let (shard, local) = self.place(block);
        let slice_end = (block / Self::BLOCKS + 1) * Self::BLOCKS;
        let until = (block + blocks).min(slice_end).min(block + most / BLOCK as u64);
        Piece { shard, block: local, blocks: until - block, at: 0 }
    }
}

/// A piece of a request, within one shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) shard: usize,
    pub(super) block: u64,
    pub(super) blocks: u64,
    /// Byte of the request at which it starts.
    pub(super) at: u64,
}

impl Piece {
    /// The bytes of a request that belong to it.
    pub(super) fn part(&self, span: &Span) -> Span {
        let at = usize::try_from(self.at).unwrap_or(usize::MAX);
        let length = usize::try_from(self.blocks).unwrap_or(usize::MAX) * BLOCK;
        span.slice(at..at + length)
    }
}
