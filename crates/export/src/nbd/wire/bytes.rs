//! Integers in the byte order of the protocol.
#![allow(clippy::big_endian_bytes, reason = "the protocol's numbers are big-endian")]

/// Reads integers and bytes from the front of a message.
pub(super) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(super) fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*taken)
    }

    pub(super) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }

    /// Returns true at the end of the message.
    pub(super) fn is_at_end(&self) -> bool {
        self.0.is_empty()
    }
}

/// Appends integers and bytes to a message.
pub(super) trait Put {
    fn put(&mut self, bytes: &[u8]);

    fn put_u16(&mut self, value: u16) {
        self.put(&value.to_be_bytes());
    }

    fn put_u32(&mut self, value: u32) {
        self.put(&value.to_be_bytes());
    }

    fn put_u64(&mut self, value: u64) {
        self.put(&value.to_be_bytes());
    }
}

impl Put for Vec<u8> {
    fn put(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

/// Converts a length to the protocol's type.
///
/// # Panics
/// If it exceeds the limits of any message.
pub(super) fn length(bytes: usize) -> u32 {
    match u32::try_from(bytes) {
        Ok(length) => length,
        Err(_) => panic!("a message of {bytes} bytes is beyond any limit"),
    }
}
