//! One statement of a record: what it stores, moves, forgets or merges.
//!
//! Layout in docs/format.md. Always true: an item that is written meets the demands by which
//! decoding judges it, because both ask [`Item::check`].

use crate::limits::{
    COLUMNS_MAX, HEIGHT_MAX, LAYER_BLOCKS_MAX, ROOT_POINTERS_MAX, ROWS_MAX, TABLE_BLOCKS_MAX,
};
use crate::wire::{Reader, Writer};
use crate::{Address, FormatError, LayerBlock, LayerId};

/// Highest number of a checkpoint's block: the root follows the index blocks, which follow the
/// table blocks.
const TABLE_INDEX_MAX: usize = TABLE_BLOCKS_MAX + ROOT_POINTERS_MAX;

/// What a trimmed range reads as when a layer lies below.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnmapMode {
    /// What the layer below holds (there is none: zeros).
    Absent,
    /// Zeros.
    Zero,
}

/// One thing that a record says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Item {
    /// The next `count` payload blocks are blocks `block..` of `layer`.
    Write {
        /// The layer written to.
        layer: LayerId,
        /// The first block.
        block: LayerBlock,
        /// Number of blocks, at least 1.
        count: u16,
    },
    /// The next `count` payload blocks are copies of what lay at `from` and the rows below it, and
    /// count only where the map still points there.
    Move {
        /// The layer that owns the blocks.
        layer: LayerId,
        /// The first block.
        block: LayerBlock,
        /// Number of blocks, at least 1.
        count: u16,
        /// Where the first block lay; the others in the rows below.
        from: Address,
    },
    /// Blocks `block..block + count` of `layer` are gone. No payload.
    Unmap {
        /// The layer trimmed.
        layer: LayerId,
        /// The first block.
        block: LayerBlock,
        /// Number of blocks, at least 1.
        count: u64,
        /// What the range reads as.
        mode: UnmapMode,
    },
    /// The next payload block is a node of a layer's map. Means nothing to replay: checkpoints
    /// point to it.
    Node {
        /// The layer whose map it is.
        layer: LayerId,
        /// 0 for a leaf.
        level: u8,
        /// Number of the node within its level.
        index: u64,
    },
    /// The next payload block is block `index` of a checkpoint's tables. Means nothing to replay.
    Table {
        /// Number of the table block.
        index: u32,
    },
    /// The layer, empty by now, is gone.
    DropLayer {
        /// The layer.
        layer: LayerId,
    },
    /// What `from` has in blocks `block..block + count` goes to `into`, except where that has
    /// something itself. No payload.
    Merge {
        /// The layer that is given up.
        from: LayerId,
        /// The layer above it.
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

    /// Payload blocks that belong to this item.
    pub const fn payload(&self) -> u32 {
        match *self {
            Self::Write { count, .. } | Self::Move { count, .. } => count as u32,
            Self::Node { .. } | Self::Table { .. } => 1,
            Self::Unmap { .. } | Self::DropLayer { .. } | Self::Merge { .. } => 0,
        }
    }

    /// Bytes that the item takes in a header, without its CRCs.
    pub const fn encoded_bytes(&self) -> usize {
        match self {
            Self::Move { .. } | Self::Unmap { .. } | Self::Merge { .. } => 24,
            _ => 16,
        }
    }

    /// Checks the demands of the format on an item. [`Header::encode`] asserts them and decoding
    /// refuses items that break them, so that no record is written that a recovery refuses.
    ///
    /// # Errors
    /// `Invalid`, naming the demand.
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

    /// The fields that every item has, as they are stored.
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

    /// Reads an item whose demands are not checked, and its front as it was stored.
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

/// Checks a range of at least one block that ends within the layer.
fn check_range(block: LayerBlock, count: u64) -> Result<(), FormatError> {
    let end = block.get().checked_add(count).filter(|end| count > 0 && *end <= LAYER_BLOCKS_MAX);
    end.map(|_| ()).ok_or(FormatError::Invalid("item range"))
}

/// Checks that a segment has the cell `from` and those in the rows below it, `count` in all.
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
