//! Blocks that say which they are, so that whoever reads them knows whether they are right.

use format::limits::{BLOCK, BLOCK_BYTES};

/// Marks each block of `bytes`, which lie at `offset`, as its own.
pub(crate) fn mark(bytes: &mut [u8], offset: u64) {
    for (index, block) in bytes.chunks_exact_mut(BLOCK).enumerate() {
        let number = offset / BLOCK_BYTES + index as u64;
        block.iter_mut().zip(number.to_le_bytes()).for_each(|(place, byte)| *place = byte);
    }
}

/// Blocks that are not marked as their own.
pub(crate) fn wrong_blocks(bytes: &[u8], offset: u64) -> u64 {
    let marked = |(index, block): (usize, &[u8])| {
        block.first_chunk::<8>() == Some(&(offset / BLOCK_BYTES + index as u64).to_le_bytes())
    };
    bytes.chunks_exact(BLOCK).enumerate().filter(|block| !marked(*block)).count() as u64
}
