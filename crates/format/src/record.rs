//! The record header: what one commit of a shard holds, where it belongs and how to know that it is whole.
//!
//! Layout in docs/format.md. A record is `header_blocks` header blocks and then the payload blocks, in the order of
//! the items; block i of them lies in data column i / R at row i % R of the record's R rows. The MAC covers the used
//! bytes of the header; the payload is covered by the CRC of each block.

use crate::limits::{BLOCK, HEADER_BLOCKS_MAX, LAYER_BLOCKS_MAX, RECORD_ITEMS_MAX, RECORD_PAYLOAD_MAX};
use crate::mac::{MAC_BYTES, PoolKey};
use crate::wire::{Reader, Writer};
use crate::{
    Address, FORMAT_VERSION, FormatError, Incarnation, LayerBlock, LayerId, PoolId, Row, SegmentId, Sequence,
    ShardIndex,
};

const MAGIC: u32 = u32::from_le_bytes(*b"GREC");
/// Bytes before the items.
const FIXED: usize = 96;
const MAC_AT: usize = 12;

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
    /// The next `count` payload blocks are copies of what lay at `from` and the rows below it, and count only where
    /// the map still points there.
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
    /// The next payload block is a node of a layer's map. Means nothing to replay: checkpoints point to it.
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
    /// What `from` has in blocks `block..block + count` goes to `into`, except where that has something itself. No payload.
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

    fn encode(&self, out: &mut Writer<'_>) {
        let mut fixed = |kind: u8, extra: u8, count: u16, layer: u32, block: u64| {
            out.u8(kind);
            out.u8(extra);
            out.u16(count);
            out.u32(layer);
            out.u64(block);
        };
        match *self {
            Self::Write { layer, block, count } => fixed(Self::WRITE, 0, count, layer.get(), block.get()),
            Self::Move { layer, block, count, from } => {
                fixed(Self::MOVE, 0, count, layer.get(), block.get());
                out.u64(from.to_bits());
            }
            Self::Unmap { layer, block, count, mode } => {
                let mode = u8::from(mode == UnmapMode::Zero);
                fixed(Self::UNMAP, mode, 0, layer.get(), block.get());
                out.u64(count);
            }
            Self::Node { layer, level, index } => fixed(Self::NODE, level, 1, layer.get(), index),
            Self::Table { index } => fixed(Self::TABLE, 0, 1, 0, u64::from(index)),
            Self::DropLayer { layer } => fixed(Self::DROP_LAYER, 0, 0, layer.get(), 0),
            Self::Merge { from, into, block, count } => {
                fixed(Self::MERGE, 0, 0, from.get(), block.get());
                out.u32(into.get());
                out.u32(count);
            }
        }
    }

    fn decode(input: &mut Reader<'_>) -> Result<Self, FormatError> {
        let kind = input.u8()?;
        let extra = input.u8()?;
        let count = input.u16()?;
        let layer = LayerId::new(input.u32()?);
        let number = input.u64()?;
        let block = LayerBlock::new(number);
        let bounded = |count: u64| {
            let end = number.checked_add(count).filter(|end| *end <= LAYER_BLOCKS_MAX);
            (count > 0 && end.is_some()).then_some(()).ok_or(FormatError::Invalid("item range"))
        };
        match kind {
            Self::WRITE => {
                bounded(u64::from(count))?;
                Ok(Self::Write { layer, block, count })
            }
            Self::MOVE => {
                bounded(u64::from(count))?;
                let from =
                    Address::from_bits(input.u64()?).ok_or(FormatError::Invalid("moved-from address"))?;
                Ok(Self::Move { layer, block, count, from })
            }
            Self::UNMAP => {
                let count = input.u64()?;
                bounded(count)?;
                let mode = match extra {
                    0 => UnmapMode::Absent,
                    1 => UnmapMode::Zero,
                    _ => return Err(FormatError::Invalid("unmap mode")),
                };
                Ok(Self::Unmap { layer, block, count, mode })
            }
            Self::NODE => Ok(Self::Node { layer, level: extra, index: number }),
            Self::TABLE => {
                let index = u32::try_from(number).map_err(|_| FormatError::Invalid("table index"))?;
                Ok(Self::Table { index })
            }
            Self::DROP_LAYER => Ok(Self::DropLayer { layer }),
            Self::MERGE => {
                let into = LayerId::new(input.u32()?);
                let count = input.u32()?;
                bounded(u64::from(count))?;
                if into == layer {
                    return Err(FormatError::Invalid("layer merged into itself"));
                }
                Ok(Self::Merge { from: layer, into, block, count })
            }
            _ => Err(FormatError::Invalid("item kind")),
        }
    }
}

/// Header blocks that a record with these contents needs.
pub const fn header_blocks_for(items_bytes: usize, payload: usize) -> usize {
    (FIXED + items_bytes + 4 * payload).div_ceil(BLOCK)
}

/// Where and when a record was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordPlace {
    /// The pool.
    pub pool: PoolId,
    /// The shard whose history it continues.
    pub shard: ShardIndex,
    /// The segment it lies in.
    pub segment: SegmentId,
    /// The life of the segment.
    pub incarnation: Incarnation,
    /// Its first row.
    pub row: Row,
    /// Its position in the shard's history.
    pub sequence: Sequence,
    /// The newest record known durable when this one was written.
    pub durable: Sequence,
}

/// A verified record header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Where and when it was written.
    pub place: RecordPlace,
    /// Header blocks in front of the payload.
    pub header_blocks: u8,
    /// What it says, in order.
    pub items: Vec<Item>,
    /// CRC32C of each payload block, in order.
    pub crcs: Vec<u32>,
}

impl Header {
    /// Writes a header with these contents into `out`, whose length is that of the header blocks.
    ///
    /// # Panics
    /// If the contents break a limit, or their payload is not one CRC a block, or `out` is not
    /// [`header_blocks_for`] blocks long: records are planned within the limits.
    pub fn encode(place: &RecordPlace, items: &[Item], crcs: &[u32], key: &PoolKey, out: &mut [u8]) {
        let payload: u32 = items.iter().map(Item::payload).sum();
        let items_bytes: usize = items.iter().map(Item::encoded_bytes).sum();
        assert_eq!(payload as usize, crcs.len(), "one CRC for each payload block");
        assert!(crcs.len() <= RECORD_PAYLOAD_MAX && items.len() <= RECORD_ITEMS_MAX, "record too large");
        let blocks = header_blocks_for(items_bytes, crcs.len());
        assert!(blocks <= HEADER_BLOCKS_MAX && out.len() == blocks * BLOCK, "header size");
        let used = FIXED + items_bytes + 4 * crcs.len();

        let mut bytes = Vec::with_capacity(out.len());
        let mut writer = Writer::new(&mut bytes);
        writer.u32(MAGIC);
        writer.u32(FORMAT_VERSION);
        writer.u8(u8::try_from(blocks).unwrap_or(u8::MAX));
        writer.u8(0);
        writer.u16(place.shard.get());
        writer.raw(&[0; MAC_BYTES]);
        writer.raw(&place.pool.0);
        writer.u32(place.segment.get());
        writer.u32(place.row.get());
        writer.u64(place.incarnation.get());
        writer.u64(place.sequence.get());
        writer.u64(place.durable.get());
        writer.u32(u32::try_from(items.len()).unwrap_or(u32::MAX));
        writer.u32(payload);
        writer.u32(u32::try_from(used).unwrap_or(u32::MAX));
        writer.pad_to(FIXED);
        for item in items {
            item.encode(&mut writer);
        }
        for crc in crcs {
            writer.u32(*crc);
        }
        debug_assert_eq!(writer.len(), used);
        let mac = key.mac(&[&bytes]);
        if let Some(place) = bytes.get_mut(MAC_AT..MAC_AT + MAC_BYTES) {
            place.copy_from_slice(&mac);
        }
        let (front, rest) = out.split_at_mut(used);
        front.copy_from_slice(&bytes);
        rest.fill(0);
    }

    /// Payload blocks of the record.
    pub fn payload_blocks(&self) -> u32 {
        u32::try_from(self.crcs.len()).unwrap_or(u32::MAX)
    }

    /// Header and payload blocks together.
    pub fn blocks(&self) -> u32 {
        u32::from(self.header_blocks) + self.payload_blocks()
    }
}

/// What looks like a record header: its magic number and version are right, nothing else is known.
pub struct UnverifiedHeader {
    blocks: u8,
}

impl UnverifiedHeader {
    /// Looks at a block that may start a record.
    ///
    /// # Errors
    /// [`FormatError::NotOurs`] or [`FormatError::Version`]; a header length that no writer stores is `Invalid`.
    pub fn parse(first_block: &[u8]) -> Result<Self, FormatError> {
        let mut input = Reader::of(first_block, MAGIC)?;
        let blocks = input.u8()?;
        if blocks == 0 || usize::from(blocks) > HEADER_BLOCKS_MAX {
            return Err(FormatError::Invalid("header length"));
        }
        Ok(Self { blocks })
    }

    /// Header blocks to hand to [`UnverifiedHeader::verify`].
    pub fn blocks(&self) -> u8 {
        self.blocks
    }

    /// Verifies the MAC over the header's used bytes, and that zeros fill the rest of its blocks. `header` is the header's
    /// blocks, whole.
    ///
    /// # Errors
    /// [`FormatError::Truncated`] or [`FormatError::Checksum`]: the blocks are not what a writer of this pool stored.
    pub fn authenticate<'a>(
        &self,
        header: &'a [u8],
        key: &PoolKey,
    ) -> Result<AuthenticHeader<'a>, FormatError> {
        let mut input = Reader::new(header);
        input.raw(10)?;
        let shard = ShardIndex::new(input.u16()?);
        let mac: [u8; MAC_BYTES] = input.array()?;
        let pool = PoolId(input.array()?);
        let segment = SegmentId::new(input.u32()?);
        let row = Row::new(input.u32()?);
        let incarnation = Incarnation::new(input.u64()?);
        let sequence = Sequence::new(input.u64()?);
        let durable = Sequence::new(input.u64()?);
        let items = input.u32()? as usize;
        let payload = input.u32()? as usize;
        let used = input.u32()? as usize;
        let bytes = header.get(..used).ok_or(FormatError::Truncated)?;
        let (before, rest) = bytes.split_at_checked(MAC_AT).ok_or(FormatError::Truncated)?;
        let (_, after) = rest.split_at_checked(MAC_BYTES).ok_or(FormatError::Truncated)?;
        if key.mac(&[before, &[0; MAC_BYTES], after]) != mac {
            return Err(FormatError::Checksum);
        }
        // The rest of the blocks is part of their cells: a recovery compares cells whole.
        if header.iter().skip(used).any(|byte| *byte != 0) {
            return Err(FormatError::Checksum);
        }
        let place = RecordPlace { pool, shard, segment, incarnation, row, sequence, durable };
        Ok(AuthenticHeader { place, header_blocks: self.blocks, items, payload, bytes })
    }

    /// [`UnverifiedHeader::authenticate`], then [`AuthenticHeader::decode`].
    ///
    /// # Errors
    /// Those of both.
    pub fn verify(&self, header: &[u8], key: &PoolKey) -> Result<Header, FormatError> {
        self.authenticate(header, key)?.decode()
    }
}

/// A header whose MAC verified: a writer of this pool stored it. Its items are not decoded yet.
pub struct AuthenticHeader<'a> {
    place: RecordPlace,
    header_blocks: u8,
    items: usize,
    payload: usize,
    /// The used bytes.
    bytes: &'a [u8],
}

impl AuthenticHeader<'_> {
    /// Where and when the record was written.
    pub fn place(&self) -> &RecordPlace {
        &self.place
    }

    /// Decodes the items.
    ///
    /// # Errors
    /// [`FormatError::Invalid`] or [`FormatError::Truncated`] for contents that this release never writes. The header is
    /// authentic, so this is a bug of the writer, never the end of a log.
    pub fn decode(&self) -> Result<Header, FormatError> {
        let Self { place, header_blocks, items, payload, bytes } = *self;
        if items > RECORD_ITEMS_MAX || payload > RECORD_PAYLOAD_MAX || place.sequence.get() == 0 {
            return Err(FormatError::Invalid("record size"));
        }
        let mut input = Reader::new(bytes);
        input.raw(FIXED)?;
        let items = (0..items).map(|_| Item::decode(&mut input)).collect::<Result<Vec<_>, _>>()?;
        let crcs = (0..payload).map(|_| input.u32()).collect::<Result<Vec<_>, _>>()?;
        if items.iter().map(|item| item.payload() as usize).sum::<usize>() != payload {
            return Err(FormatError::Invalid("payload count"));
        }
        Ok(Header { place, header_blocks, items, crcs })
    }
}

#[cfg(test)]
#[path = "record_tests.rs"]
mod tests;
