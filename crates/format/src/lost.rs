//! The list of lost blocks of a shard: blocks of volumes that cannot be reconstructed from any
//! columns. Each shard stores its list in a layer reserved for it.
//!
//! A reader does not need the list: reading a listed block fails with or without it. The list keeps
//! the pool's status correct across openings, until the blocks are overwritten.

use crate::checked::narrow;
use crate::error::assert_storable;
use crate::limits::{BLOCK, COLUMNS_MAX, LAYER_BLOCKS_MAX, ROWS_MAX};
use crate::wire::{Reader, Writer};
use crate::{Address, FORMAT_VERSION, FormatError, LayerBlock, LayerId};

const MAGIC: u32 = u32::from_le_bytes(*b"GLST");
const FIXED: usize = 16;
const ENTRY_BYTES: usize = 24;
/// Entries in a block of the list.
pub const LOST_PER_BLOCK: usize = (BLOCK - FIXED) / ENTRY_BYTES;

/// A block of a volume that cannot be reconstructed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LostBlock {
    /// The layer in which the block is visible.
    pub layer: LayerId,
    /// Number of the block in that layer.
    pub block: LayerBlock,
    /// The cell that held it. If the layer maps the block to another address, it has been
    /// overwritten.
    pub address: Address,
}

impl LostBlock {
    /// Checks that the entry is valid: encoding asserts this, decoding refuses invalid entries.
    fn check(&self) -> Result<(), FormatError> {
        if self.layer.get() == 0 || self.block.get() >= LAYER_BLOCKS_MAX {
            return Err(FormatError::Invalid("lost block"));
        }
        if self.address.column().index() >= COLUMNS_MAX || self.address.row().get() >= ROWS_MAX {
            return Err(FormatError::Invalid("address of a lost block"));
        }
        Ok(())
    }
}

/// A block of the list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LostList {
    /// Up to [`LOST_PER_BLOCK`] lost blocks.
    pub listed: Vec<LostBlock>,
    /// Minimum number of further lost blocks that no block of the list names; 0 if the list is
    /// complete. Only the first block of the list has this number.
    pub unlisted: u32,
}

/// Encodes a block of the list.
///
/// # Panics
/// If there are more than [`LOST_PER_BLOCK`] entries, or one is invalid.
pub fn encode_lost(list: &LostList) -> Vec<u8> {
    assert!(list.listed.len() <= LOST_PER_BLOCK, "too many lost blocks for a block");
    list.listed.iter().for_each(|entry| assert_storable(entry.check()));
    write_lost(list)
}

fn write_lost(list: &LostList) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(BLOCK);
    let mut out = Writer::new(&mut bytes);
    out.u32(MAGIC);
    out.u32(FORMAT_VERSION);
    out.u32(narrow(list.listed.len(), "lost blocks"));
    out.u32(list.unlisted);
    for block in &list.listed {
        out.u32(block.layer.get());
        out.u32(0);
        out.u64(block.block.get());
        out.u64(block.address.to_bits());
    }
    out.pad_to(BLOCK);
    bytes
}

/// Decodes a block of the list.
///
/// # Errors
/// If a field has a value that no writer stores.
pub fn decode_lost(block: &[u8]) -> Result<LostList, FormatError> {
    let mut input = Reader::for_block_with_magic(block, MAGIC)?;
    let count = input.u32()? as usize;
    if count > LOST_PER_BLOCK {
        return Err(FormatError::Invalid("number of lost blocks"));
    }
    let unlisted = input.u32()?;
    let entry = |_| {
        let layer = LayerId::new(input.u32()?);
        input.raw(4)?;
        let block = LayerBlock::new(input.u64()?);
        let address =
            Address::from_bits(input.u64()?).ok_or(FormatError::Invalid("address of a lost block"))?;
        let lost = LostBlock { layer, block, address };
        lost.check()?;
        Ok(lost)
    };
    let listed = (0..count).map(entry).collect::<Result<_, _>>()?;
    Ok(LostList { listed, unlisted })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::assert_both;
    use crate::{Column, Row, SegmentId};

    fn lost(count: usize) -> LostList {
        let entry = |index: u32| LostBlock {
            layer: LayerId::new(16 + index),
            block: LayerBlock::new(u64::from(index) << 20),
            address: Address::new(SegmentId::new(index + 1), Column::new(3), Row::new(index)),
        };
        let count = u32::try_from(count).unwrap();
        LostList { listed: (0..count).map(entry).collect(), unlisted: count * 3 }
    }

    #[test]
    fn encoded_blocks_are_decoded() {
        for count in [0, 1, LOST_PER_BLOCK] {
            let bytes = encode_lost(&lost(count));
            assert_eq!(bytes.len(), BLOCK);
            assert_eq!(decode_lost(&bytes), Ok(lost(count)));
        }
    }

    #[test]
    fn invalid_blocks_are_refused() {
        let mut bytes = encode_lost(&lost(1));
        bytes[8..12].copy_from_slice(&u32::try_from(LOST_PER_BLOCK + 1).unwrap().to_le_bytes());
        assert_eq!(decode_lost(&bytes), Err(FormatError::Invalid("number of lost blocks")));
        assert_eq!(decode_lost(&[0; BLOCK]), Err(FormatError::BadMagic));
        assert_eq!(decode_lost(&bytes[..8]), Err(FormatError::Truncated));
    }

    #[test]
    fn entries_outside_the_limits_are_refused() {
        let check = |accepted, layer, block, column: usize, row| {
            let address = Address::new(SegmentId::new(1), Column::new(column as u8), Row::new(row));
            let entry = LostBlock { layer: LayerId::new(layer), block: LayerBlock::new(block), address };
            let lost = LostList { listed: vec![entry], unlisted: u32::MAX };
            assert_both(accepted, &lost, &write_lost(&lost), || encode_lost(&lost), decode_lost);
        };
        check(true, 16, LAYER_BLOCKS_MAX - 1, COLUMNS_MAX - 1, ROWS_MAX - 1);
        check(false, 16, LAYER_BLOCKS_MAX, 0, 0);
        check(false, 16, 0, COLUMNS_MAX, 0);
        check(false, 16, 0, 0, ROWS_MAX);
        check(false, 0, 0, 0, 0);
    }

    #[test]
    #[should_panic(expected = "too many lost blocks for a block")]
    fn encoding_too_many_entries_panics() {
        encode_lost(&lost(LOST_PER_BLOCK + 1));
    }
}
