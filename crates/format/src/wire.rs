//! Bounds-checked reading and writing of consecutive little-endian fields.

use crate::checked::narrow;
use crate::limits::BLOCK;
use crate::{FORMAT_VERSION, FormatError};

/// Appends fields to a vector.
pub(crate) struct Writer<'a> {
    bytes: &'a mut Vec<u8>,
}

impl<'a> Writer<'a> {
    pub(crate) fn new(bytes: &'a mut Vec<u8>) -> Self {
        Self { bytes }
    }

    pub(crate) fn u8(&mut self, value: u8) {
        self.bytes.push(value);
    }

    pub(crate) fn u16(&mut self, value: u16) {
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    pub(crate) fn u32(&mut self, value: u32) {
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    pub(crate) fn u64(&mut self, value: u64) {
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    pub(crate) fn raw(&mut self, value: &[u8]) {
        self.bytes.extend_from_slice(value);
    }

    /// Writes a text, preceded by its length in 16 bits.
    ///
    /// # Panics
    /// If the text is longer than `limit` bytes: names are validated on input.
    pub(crate) fn text(&mut self, value: &str, limit: usize) {
        assert!(value.len() <= limit, "a text of {} bytes where {limit} are allowed", value.len());
        self.u16(narrow(value.len(), "text"));
        self.raw(value.as_bytes());
    }

    /// Appends zeros up to a total of `length` bytes.
    pub(crate) fn pad_to(&mut self, length: usize) {
        assert!(self.bytes.len() <= length, "{} bytes where {length} are allowed", self.bytes.len());
        self.bytes.resize(length, 0);
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }
}

/// Reads fields from the front of a slice.
pub(crate) struct Reader<'a> {
    bytes: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    /// Returns a reader for one whole block.
    pub(crate) fn for_block(bytes: &'a [u8]) -> Result<Self, FormatError> {
        match bytes.len() {
            BLOCK => Ok(Self::new(bytes)),
            ..BLOCK => Err(FormatError::Truncated),
            _ => Err(FormatError::Invalid("block size")),
        }
    }

    /// Checks the magic number and the version, and returns a reader for the bytes that follow
    /// them.
    pub(crate) fn with_magic(bytes: &'a [u8], magic: u32) -> Result<Self, FormatError> {
        Self::new(bytes).after_magic(magic)
    }

    /// Does the same for one whole block.
    pub(crate) fn for_block_with_magic(bytes: &'a [u8], magic: u32) -> Result<Self, FormatError> {
        Self::for_block(bytes)?.after_magic(magic)
    }

    fn after_magic(mut self, magic: u32) -> Result<Self, FormatError> {
        if self.u32()? != magic {
            return Err(FormatError::BadMagic);
        }
        match self.u32()? {
            FORMAT_VERSION => Ok(self),
            found => Err(FormatError::Version { found }),
        }
    }

    /// Checks that no bytes are left.
    pub(crate) fn end(&self) -> Result<(), FormatError> {
        if self.bytes.is_empty() { Ok(()) } else { Err(FormatError::Invalid("length")) }
    }

    pub(crate) fn raw(&mut self, length: usize) -> Result<&'a [u8], FormatError> {
        let (taken, rest) = self.bytes.split_at_checked(length).ok_or(FormatError::Truncated)?;
        self.bytes = rest;
        Ok(taken)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], FormatError> {
        let (taken, rest) = self.bytes.split_first_chunk::<N>().ok_or(FormatError::Truncated)?;
        self.bytes = rest;
        Ok(*taken)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, FormatError> {
        Ok(u8::from_le_bytes(self.array()?))
    }

    pub(crate) fn u16(&mut self) -> Result<u16, FormatError> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    pub(crate) fn u32(&mut self) -> Result<u32, FormatError> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub(crate) fn u64(&mut self) -> Result<u64, FormatError> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    pub(crate) fn text(&mut self, limit: usize) -> Result<String, FormatError> {
        let length = usize::from(self.u16()?);
        if length > limit {
            return Err(FormatError::Invalid("text length"));
        }
        let bytes = self.raw(length)?;
        let text = std::str::from_utf8(bytes).map_err(|_| FormatError::Invalid("text encoding"))?;
        Ok(text.to_owned())
    }
}
