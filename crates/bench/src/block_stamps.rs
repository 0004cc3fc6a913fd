//! Blocks stamped with their own block number, so that a reader can verify them.

use format::limits::{BLOCK, BLOCK_BYTES};

/// Stamps each block of `bytes`, which start at volume offset `offset`, with its block number.
pub(crate) fn stamp(bytes: &mut [u8], offset: u64) {
    for (index, block) in bytes.chunks_exact_mut(BLOCK).enumerate() {
        let number = offset / BLOCK_BYTES + index as u64;
        block.iter_mut().zip(number.to_le_bytes()).for_each(|(place, byte)| *place = byte);
    }
}

/// Counts the blocks without the stamp of their block number.
pub(crate) fn wrong_blocks(bytes: &[u8], offset: u64) -> u64 {
    let marked = |(index, block): (usize, &[u8])| {
        block.first_chunk::<8>() == Some(&(offset / BLOCK_BYTES + index as u64).to_le_bytes())
    };
    bytes.chunks_exact(BLOCK).enumerate().filter(|block| !marked(*block)).count() as u64
}
