//! Block addresses and map entries.

use std::fmt;

use crate::{Column, Row, SegmentId};

/// The address of a block in its shard: segment, column and row.
///
/// As a number: the segment in bits 32..64, the column in 24..32, the row in 0..24. Segments are
/// numbered from 1, so no address is below 2^32; smaller numbers encode entries without an address.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address(u64);

impl Address {
    /// Returns the address (`segment`, `column`, `row`).
    ///
    /// # Panics
    /// If the segment is 0 or the row does not fit into 24 bits.
    pub fn new(segment: SegmentId, column: Column, row: Row) -> Self {
        assert!(segment.get() != 0 && row.get() < 1 << 24, "invalid address: {segment:?} {row:?}");
        Self(u64::from(segment.get()) << 32 | u64::from(column.get()) << 24 | u64::from(row.get()))
    }

    /// The segment.
    #[allow(clippy::cast_possible_truncation)]
    pub const fn segment(self) -> SegmentId {
        SegmentId::new((self.0 >> 32) as u32)
    }

    /// The column.
    #[allow(clippy::cast_possible_truncation)]
    pub const fn column(self) -> Column {
        Column::new((self.0 >> 24) as u8)
    }

    /// The row.
    #[allow(clippy::cast_possible_truncation)]
    pub const fn row(self) -> Row {
        Row::new(self.0 as u32 & 0x00FF_FFFF)
    }

    /// Returns the address in its stored form.
    pub const fn to_bits(self) -> u64 {
        self.0
    }

    /// Returns the address stored as `bits`; `None` if they are not an address.
    pub const fn from_bits(bits: u64) -> Option<Self> {
        if bits >> 32 == 0 { None } else { Some(Self(bits)) }
    }

    /// Returns the address `rows` rows further in the same column.
    #[must_use]
    pub const fn plus_rows(self, rows: u32) -> Self {
        Self(self.0 + rows as u64)
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "segment {} column {} row {}", self.segment(), self.column(), self.row())
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// A map entry in its stored form: 16 bytes. Also serves as the pointer to a map node or table
/// block.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub struct MapEntry {
    bits: u64,
    crc: u32,
    spare: u32,
}

const _: () = assert!(size_of::<MapEntry>() == 16);

/// The decoded form of a map entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mapping {
    /// No mapping: the block is looked up in the parent layer, or reads as zeros if there is none.
    Absent,
    /// Reads as zeros, regardless of the parent layer.
    Zero,
    /// Unknown, because the map node with the entry is unreadable. In memory only.
    Unknown,
    /// Stored at `address`, with CRC32C `crc`.
    Block {
        /// The address of the block.
        address: Address,
        /// CRC32C of its 4096 bytes.
        crc: u32,
    },
}

impl MapEntry {
    const ZERO_BITS: u64 = 1;
    const UNKNOWN_BITS: u64 = 2;
    /// An entry without a mapping.
    pub const ABSENT: Self = Self { bits: 0, crc: 0, spare: 0 };
    /// An entry that reads as zeros.
    pub const ZERO: Self = Self { bits: Self::ZERO_BITS, crc: 0, spare: 0 };
    /// An unknown entry, because its map node is unreadable. In memory only: decoding refuses it.
    pub const UNKNOWN: Self = Self { bits: Self::UNKNOWN_BITS, crc: 0, spare: 0 };
    /// Bytes of a stored entry.
    pub const BYTES: usize = 16;

    /// Returns the entry of a stored block.
    pub const fn block(address: Address, crc: u32) -> Self {
        Self { bits: address.0, crc, spare: 0 }
    }

    /// Decodes the entry. Invalid bits, which [`MapEntry::from_bytes`] refuses, read as absent.
    pub const fn mapping(self) -> Mapping {
        match Address::from_bits(self.bits) {
            Some(address) => Mapping::Block { address, crc: self.crc },
            None if self.bits == Self::ZERO_BITS => Mapping::Zero,
            None if self.bits == Self::UNKNOWN_BITS => Mapping::Unknown,
            None => Mapping::Absent,
        }
    }

    /// Returns the address, if the entry has one.
    pub const fn address(self) -> Option<Address> {
        Address::from_bits(self.bits)
    }

    /// Returns true if the entry has no mapping.
    pub const fn is_absent(self) -> bool {
        self.bits == 0
    }

    /// Returns true if the entry is [`MapEntry::UNKNOWN`].
    pub const fn is_unknown(self) -> bool {
        self.bits == Self::UNKNOWN_BITS
    }

    /// Returns the stored form.
    ///
    /// # Panics
    /// If the entry is unknown.
    pub fn to_bytes(self) -> [u8; 16] {
        assert!(!self.is_unknown(), "an unknown entry is never stored");
        let number = u128::from(self.bits) | u128::from(self.crc) << 64 | u128::from(self.spare) << 96;
        number.to_le_bytes()
    }

    /// Decodes a stored entry; returns `None` for bytes that no writer stores.
    #[allow(clippy::cast_possible_truncation)]
    pub fn from_bytes(bytes: [u8; 16]) -> Option<Self> {
        let number = u128::from_le_bytes(bytes);
        let entry = Self { bits: number as u64, crc: (number >> 64) as u32, spare: (number >> 96) as u32 };
        let is_valid = entry.bits <= Self::ZERO_BITS || entry.bits >> 32 != 0;
        (is_valid && entry.spare == 0).then_some(entry)
    }
}

impl fmt::Debug for MapEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.mapping(), f)
    }
}

#[cfg(test)]
#[path = "address_tests.rs"]
mod tests;
