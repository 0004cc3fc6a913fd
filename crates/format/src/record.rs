//! The record header: contents, location and integrity of one commit of a shard.
//!
//! Layout in docs/format.md. A record consists of `header_blocks` header blocks and then the
//! payload blocks, in the order of the items. Block i is stored in data column i / R at row i % R
//! of the record's R rows. The MAC covers the used bytes of the header; the CRC of each block
//! covers the payload.

use crate::checked::narrow;
use crate::error::assert_storable;
use crate::item::Item;
use crate::limits::{BLOCK, HEADER_BLOCKS_MAX, RECORD_ITEMS_MAX, RECORD_PAYLOAD_MAX};
use crate::mac::{MAC_BYTES, PoolKey};
use crate::wire::{Reader, Writer};
use crate::{FORMAT_VERSION, FormatError, Incarnation, PoolId, Row, SegmentId, Sequence, ShardIndex};

const MAGIC: u32 = u32::from_le_bytes(*b"GREC");
/// Bytes before the items.
const FIXED: usize = 96;
const MAC_AT: usize = 12;

/// Returns the number of header blocks of a record with these contents.
pub const fn header_blocks_for(items_bytes: usize, payload: usize) -> usize {
    (FIXED + items_bytes + 4 * payload).div_ceil(BLOCK)
}

/// The location of a record, and its position in the shard's log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordLocation {
    /// The pool.
    pub pool: PoolId,
    /// The shard that wrote it.
    pub shard: ShardIndex,
    /// The segment that contains it.
    pub segment: SegmentId,
    /// The incarnation of the segment.
    pub incarnation: Incarnation,
    /// First row of the record.
    pub row: Row,
    /// Position of the record in the shard's log.
    pub sequence: Sequence,
    /// The newest record known durable when this one was written.
    pub durable: Sequence,
}

/// A verified record header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// The location of the record.
    pub location: RecordLocation,
    /// Header blocks before the payload.
    pub header_blocks: u8,
    /// The items, in order.
    pub items: Vec<Item>,
    /// CRC32C of each payload block, in order.
    pub crcs: Vec<u32>,
}

impl Header {
    /// Encodes a header with these contents into `out`, which has the length of the header blocks.
    ///
    /// # Panics
    /// If the contents are invalid, if the payload is not one CRC per block, or if `out` is not
    /// [`header_blocks_for`] blocks long: records are planned within the limits.
    pub fn encode(location: &RecordLocation, items: &[Item], crcs: &[u32], key: &PoolKey, out: &mut [u8]) {
        let size = assert_storable(check_header(location, items, crcs.len()));
        assert_eq!(out.len(), usize::from(size.blocks) * BLOCK, "header size");
        write_header(location, size, items, crcs, key, out);
    }

    /// Returns the number of payload blocks of the record.
    pub fn payload_blocks(&self) -> u32 {
        narrow(self.crcs.len(), "R3")
    }

    /// Returns the number of header and payload blocks together.
    pub fn blocks(&self) -> u32 {
        u32::from(self.header_blocks) + self.payload_blocks()
    }
}

/// Size of a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct HeaderSize {
    /// Header blocks.
    blocks: u8,
    /// Bytes in use, from the start.
    used: usize,
}

impl HeaderSize {
    fn of(items: &[Item], payload: usize) -> Self {
        let items_bytes: usize = items.iter().map(Item::encoded_bytes).sum();
        let blocks = header_blocks_for(items_bytes, payload);
        Self {
            blocks: narrow(blocks.min(usize::from(u8::MAX)), "header blocks"),
            used: FIXED + items_bytes + 4 * payload,
        }
    }
}

/// Checks that a header with `crcs` CRCs is valid; returns its size.
fn check_header(location: &RecordLocation, items: &[Item], crcs: usize) -> Result<HeaderSize, FormatError> {
    check_counts(items.len(), crcs)?;
    if location.sequence.get() == 0 {
        return Err(FormatError::Invalid("record sequence"));
    }
    items.iter().try_for_each(Item::check)?;
    if items.iter().map(|item| item.payload() as usize).sum::<usize>() != crcs {
        return Err(FormatError::Invalid("payload count"));
    }
    let size = HeaderSize::of(items, crcs);
    if usize::from(size.blocks) > HEADER_BLOCKS_MAX {
        return Err(FormatError::Invalid("header length"));
    }
    Ok(size)
}

fn check_counts(items: usize, payload: usize) -> Result<(), FormatError> {
    if items > RECORD_ITEMS_MAX || payload > RECORD_PAYLOAD_MAX {
        return Err(FormatError::Invalid("record size"));
    }
    Ok(())
}

/// Writes a header of this size without checking its contents.
fn write_header(
    location: &RecordLocation,
    size: HeaderSize,
    items: &[Item],
    crcs: &[u32],
    key: &PoolKey,
    out: &mut [u8],
) {
    let mut bytes = Vec::with_capacity(out.len());
    let mut writer = Writer::new(&mut bytes);
    writer.u32(MAGIC);
    writer.u32(FORMAT_VERSION);
    writer.u8(size.blocks);
    writer.u8(0);
    writer.u16(location.shard.get());
    writer.raw(&[0; MAC_BYTES]);
    writer.raw(&location.pool.0);
    writer.u32(location.segment.get());
    writer.u32(location.row.get());
    writer.u64(location.incarnation.get());
    writer.u64(location.sequence.get());
    writer.u64(location.durable.get());
    writer.u32(narrow(items.len(), "items"));
    writer.u32(narrow(crcs.len(), "R3"));
    writer.u32(narrow(size.used, "header bytes"));
    writer.pad_to(FIXED);
    for item in items {
        item.write(&mut writer);
    }
    for crc in crcs {
        writer.u32(*crc);
    }
    debug_assert_eq!(writer.len(), size.used);
    let mac = key.mac(&[&bytes]);
    if let Some(field) = bytes.get_mut(MAC_AT..MAC_AT + MAC_BYTES) {
        field.copy_from_slice(&mac);
    }
    let (front, rest) = out.split_at_mut(size.used);
    front.copy_from_slice(&bytes);
    rest.fill(0);
}

/// A possible record header: its magic number and version are right, nothing else is verified.
pub struct UnverifiedHeader {
    blocks: u8,
}

impl UnverifiedHeader {
    /// Parses the first block of a possible record.
    ///
    /// # Errors
    /// [`FormatError::BadMagic`], [`FormatError::Version`], or `Invalid` for a header length that
    /// no writer stores.
    pub fn parse(first_block: &[u8]) -> Result<Self, FormatError> {
        let mut input = Reader::with_magic(first_block, MAGIC)?;
        let blocks = input.u8()?;
        if blocks == 0 || usize::from(blocks) > HEADER_BLOCKS_MAX {
            return Err(FormatError::Invalid("header length"));
        }
        Ok(Self { blocks })
    }

    /// Returns the number of header blocks to pass to [`UnverifiedHeader::verify`].
    pub fn blocks(&self) -> u8 {
        self.blocks
    }

    /// Verifies the MAC over the used bytes of the header, and that the rest of its blocks is zero.
    /// `header` is all of the header blocks.
    ///
    /// # Errors
    /// [`FormatError::Truncated`] or [`FormatError::Checksum`]: no writer of this pool stored these
    /// blocks.
    pub fn authenticate<'a>(
        &self,
        header: &'a [u8],
        key: &PoolKey,
    ) -> Result<AuthenticatedHeader<'a>, FormatError> {
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
        // The rest of the blocks is part of their cells: recovery compares whole cells.
        if header.iter().skip(used).any(|byte| *byte != 0) {
            return Err(FormatError::Checksum);
        }
        let location = RecordLocation { pool, shard, segment, incarnation, row, sequence, durable };
        Ok(AuthenticatedHeader { location, header_blocks: self.blocks, items, payload, bytes })
    }

    /// Calls [`UnverifiedHeader::authenticate`], then [`AuthenticatedHeader::decode`].
    ///
    /// # Errors
    /// The errors of both.
    pub fn verify(&self, header: &[u8], key: &PoolKey) -> Result<Header, FormatError> {
        self.authenticate(header, key)?.decode()
    }
}

/// A header with a valid MAC: a writer of this pool stored it. Its items are not decoded yet.
pub struct AuthenticatedHeader<'a> {
    location: RecordLocation,
    header_blocks: u8,
    items: usize,
    payload: usize,
    /// The used bytes.
    bytes: &'a [u8],
}

impl AuthenticatedHeader<'_> {
    /// Returns the location of the record.
    pub fn location(&self) -> &RecordLocation {
        &self.location
    }

    /// Decodes the items.
    ///
    /// # Errors
    /// [`FormatError::Invalid`] or [`FormatError::Truncated`] for contents that this release never
    /// writes. The header is authentic, so this is a bug of the writer, not the end of the log.
    pub fn decode(&self) -> Result<Header, FormatError> {
        let Self { location, header_blocks: blocks, items, payload, bytes } = *self;
        check_counts(items, payload)?;
        let mut input = Reader::new(bytes);
        input.raw(FIXED)?;
        let items = (0..items).map(|_| Item::decode(&mut input)).collect::<Result<Vec<_>, _>>()?;
        let crcs = (0..payload).map(|_| input.u32()).collect::<Result<Vec<_>, _>>()?;
        if check_header(&location, &items, crcs.len())? != (HeaderSize { blocks, used: bytes.len() }) {
            return Err(FormatError::Invalid("header length"));
        }
        Ok(Header { location, header_blocks: blocks, items, crcs })
    }
}

#[cfg(test)]
#[path = "record_tests.rs"]
pub(crate) mod tests;
