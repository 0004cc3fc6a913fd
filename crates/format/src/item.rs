//! The items of a record: each one describes a write, move, unmap or merge.
//!
//! Layout in docs/format.md. Always true: every stored item can be decoded, because encoder and
//! decoder both use [`Item::check`].

use crate::limits::{
    COLUMNS_MAX, HEIGHT_MAX, LAYER_BLOCKS_MAX, ROOT_POINTERS_MAX, ROWS_MAX, TABLE_BLOCKS_MAX,
};
use crate::wire::{Reader, Writer};
use crate::{Address, FormatError, LayerBlock, LayerId};

/// Highest number of a block of a checkpoint: the table blocks come first, then the index blocks,
/// then the root.
const TABLE_INDEX_MAX: usize = TABLE_BLOCKS_MAX + ROOT_POINTERS_MAX;

/// The contents of a trimmed range of a layer that has a parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnmapMode {
    /// The contents of the parent layer, or zeros if there is none.
    Absent,
    /// Zeros.
    Zero,
}

/// One item of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Item {
    /// The next `count` payload blocks are blocks `block..` of `layer`.
    Write {
        /// The target layer.
        layer: LayerId,
        /// The first block.
        block: LayerBlock,
        /// Number of blocks, at least 1.
        count: u16,
    },
    /// The next `count` payload blocks are copies of the blocks at `from` and in the rows below it.
    /// A copy takes effect only if the map still points to the original.
    Move {
        /// The layer that owns the blocks.
        layer: LayerId,
        /// The first block.
        block: LayerBlock,
        /// Number of blocks, at least 1.
        count: u16,
        /// The old address of the first block; the other blocks were in the rows below it.
        from: Address,
    },
    /// Blocks `block..block + count` of `layer` are unmapped. No payload.
    Unmap {
        /// The trimmed layer.
        layer: LayerId,
        /// The first block.
        block: LayerBlock,
        /// Number of blocks, at least 1.
        count: u64,
        /// The contents that reads of the range return.
        mode: UnmapMode,
    },
    /// The next payload block is a map node of a layer. Ignored by replay: checkpoints point to the
    /// node.
    Node {
        /// The layer of the map.
        layer: LayerId,
        /// 0 for a leaf.
        level: u8,
        /// Number of the node within its level.
        index: u64,
    },
    /// The next payload block is block `index` of a checkpoint's tables. Ignored by replay.
    Table {
        /// Number of the table block.
        index: u32,
    },
    /// The layer, already empty, is dropped.
    DropLayer {
        /// The layer.
        layer: LayerId,
    },
    /// The entries of `from` in blocks `block..block + count` move to `into`, except where `into`
    /// has an entry of its own. No payload.
    Merge {
        /// The layer that is merged into its child.
        from: LayerId,
        /// The child layer.
        into: LayerId,
        /// The first block.
        block: LayerBlock,
        /// Number of blocks, at least 1.
        count: u32,
    },
}

impl Item {
    const WRITE: u8 = 1;
    const MOVE: u8 = 2;
    const UNMAP: u8 = 3;
    const NODE: u8 = 4;
    const TABLE: u8 = 5;
    const DROP_LAYER: u8 = 6;
    const MERGE: u8 = 7;

    /// Returns the number of payload blocks of the item.
    pub const fn payload(&self) -> u32 {
        match *self {
            Self::Write { count, .. } | Self::Move { count, .. } => count as u32,
            Self::Node { .. } | Self::Table { .. } => 1,
            Self::Unmap { .. } | Self::DropLayer { .. } | Self::Merge { .. } => 0,
        }
    }

    /// Returns the size of the item in a header in bytes, without its CRCs.
    pub const fn encoded_bytes(&self) -> usize {
        match self {
            Self::Move { .. } | Self::Unmap { .. } | Self::Merge { .. } => 24,
            _ => 16,
        }
    }

    /// Checks that the item is valid. [`crate::Header::encode`] asserts this and decoding refuses
    /// invalid items, so no record is written that recovery would refuse.
    ///
    /// # Errors
    /// `Invalid`, with the name of the invalid field.
    pub(crate) fn check(&self) -> Result<(), FormatError> {
        match *self {
            Self::Write { layer, block, count } => {
                check_layer(layer)?;
                check_range(block, u64::from(count))
            }
            Self::Move { layer, block, count, from } => {
                check_layer(layer)?;
                check_range(block, u64::from(count))?;
                check_cells(from, u32::from(count))
            }
            Self::Unmap { layer, block, count, .. } => {
                check_layer(layer)?;
                check_range(block, count)
            }
            Self::Node { layer, level, index } => {
                check_layer(layer)?;
                check_node(level, index)
            }
            Self::Table { index } if index as usize > TABLE_INDEX_MAX => {
                Err(FormatError::Invalid("table index"))
            }
            Self::Table { .. } => Ok(()),
            Self::DropLayer { layer } => check_layer(layer),
            Self::Merge { from, into, block, count } => {
                check_layer(from)?;
                check_layer(into)?;
                if into == from {
                    return Err(FormatError::Invalid("layer merged into itself"));
                }
                check_range(block, u64::from(count))
            }
        }
    }

    /// Returns the fields common to all items, as stored.
    fn front(&self) -> ItemFront {
        let front = |kind, extra, count, layer: LayerId, number| ItemFront {
            kind,
            extra,
            count,
            layer: layer.get(),
            number,
        };
        match *self {
            Self::Write { layer, block, count } => front(Self::WRITE, 0, count, layer, block.get()),
            Self::Move { layer, block, count, .. } => front(Self::MOVE, 0, count, layer, block.get()),
            Self::Unmap { layer, block, mode, .. } => {
                front(Self::UNMAP, u8::from(mode == UnmapMode::Zero), 0, layer, block.get())
            }
            Self::Node { layer, level, index } => front(Self::NODE, level, 1, layer, index),
            Self::Table { index } => front(Self::TABLE, 0, 1, LayerId::new(0), u64::from(index)),
            Self::DropLayer { layer } => front(Self::DROP_LAYER, 0, 0, layer, 0),
            Self::Merge { from, block, .. } => front(Self::MERGE, 0, 0, from, block.get()),
        }
    }

    pub(crate) fn write(&self, out: &mut Writer<'_>) {
        self.front().write(out);
        match *self {
            Self::Move { from, .. } => out.u64(from.to_bits()),
            Self::Unmap { count, .. } => out.u64(count),
            Self::Merge { into, count, .. } => {
                out.u32(into.get());
                out.u32(count);
            }
            _ => {}
        }
    }

    pub(crate) fn decode(input: &mut Reader<'_>) -> Result<Self, FormatError> {
        let (item, front) = Self::read(input)?;
        item.check()?;
        if item.front() != front {
            return Err(FormatError::Invalid("item field"));
        }
        Ok(item)
    }

    /// Reads an item without checking it, together with its stored front.
    pub(crate) fn read(input: &mut Reader<'_>) -> Result<(Self, ItemFront), FormatError> {
        let front = ItemFront::read(input)?;
        let ItemFront { kind, extra, count, layer, number } = front;
        let (layer, block) = (LayerId::new(layer), LayerBlock::new(number));
        let item = match kind {
            Self::WRITE => Self::Write { layer, block, count },
            Self::MOVE => {
                let from =
                    Address::from_bits(input.u64()?).ok_or(FormatError::Invalid("moved-from address"))?;
                Self::Move { layer, block, count, from }
            }
            Self::UNMAP => {
                let mode = match extra {
                    0 => UnmapMode::Absent,
                    1 => UnmapMode::Zero,
                    _ => return Err(FormatError::Invalid("unmap mode")),
                };
                Self::Unmap { layer, block, count: input.u64()?, mode }
            }
            Self::NODE => Self::Node { layer, level: extra, index: number },
            Self::TABLE => {
                let index = u32::try_from(number).map_err(|_| FormatError::Invalid("table index"))?;
                Self::Table { index }
            }
            Self::DROP_LAYER => Self::DropLayer { layer },
            Self::MERGE => {
                Self::Merge { from: layer, into: LayerId::new(input.u32()?), block, count: input.u32()? }
            }
            _ => return Err(FormatError::Invalid("item kind")),
        };
        Ok((item, front))
    }
}

/// The first 16 bytes of an item.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct ItemFront {
    kind: u8,
    extra: u8,
    count: u16,
    layer: u32,
    number: u64,
}

impl ItemFront {
    fn write(&self, out: &mut Writer<'_>) {
        out.u8(self.kind);
        out.u8(self.extra);
        out.u16(self.count);
        out.u32(self.layer);
        out.u64(self.number);
    }

    fn read(input: &mut Reader<'_>) -> Result<Self, FormatError> {
        Ok(Self {
            kind: input.u8()?,
            extra: input.u8()?,
            count: input.u16()?,
            layer: input.u32()?,
            number: input.u64()?,
        })
    }
}

fn check_layer(layer: LayerId) -> Result<(), FormatError> {
    if layer.get() == 0 { Err(FormatError::Invalid("layer number")) } else { Ok(()) }
}

/// Checks that the range has at least one block and ends within the layer.
fn check_range(block: LayerBlock, count: u64) -> Result<(), FormatError> {
    let end = block.get().checked_add(count).filter(|end| count > 0 && *end <= LAYER_BLOCKS_MAX);
    end.map(|_| ()).ok_or(FormatError::Invalid("item range"))
}

/// Checks that the cell `from` and the `count - 1` cells below it are within a segment.
fn check_cells(from: Address, count: u32) -> Result<(), FormatError> {
    let inside = from.column().index() < COLUMNS_MAX && from.row().get() + count <= ROWS_MAX;
    if inside { Ok(()) } else { Err(FormatError::Invalid("moved-from address")) }
}

/// Checks that the map of the largest layer has this node.
fn check_node(level: u8, index: u64) -> Result<(), FormatError> {
    let covered = 8 * (u32::from(level) + 1);
    let exists = level < HEIGHT_MAX && index <= (LAYER_BLOCKS_MAX - 1) >> covered;
    if exists { Ok(()) } else { Err(FormatError::Invalid("node")) }
}

#[cfg(test)]
#[path = "item_tests.rs"]
mod tests;
