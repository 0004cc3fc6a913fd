//! Types that requests and replies share.

/// The longest string of the protocol, in bytes.
pub(in crate::nbd) const STRING_MAX: usize = 4096;

/// A message with a wrong magic number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::nbd) struct BadMagic(pub(in crate::nbd) u64);

/// The client's identifier of a request; replies carry it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::nbd) struct Cookie(pub(in crate::nbd) u64);

/// A range of bytes of an export, not empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::nbd) struct ByteRange {
    pub(in crate::nbd) offset: u64,
    pub(in crate::nbd) length: u32,
}

impl ByteRange {
    /// Returns the range from `from` to `to`, if it is not empty and its length fits a `u32`.
    pub(in crate::nbd) fn between(from: u64, to: u64) -> Option<Self> {
        let length = u32::try_from(to.checked_sub(from)?).ok()?;
        (length > 0).then_some(Self { offset: from, length })
    }

    /// Splits the range at multiples of `size` bytes of the export.
    pub(in crate::nbd) fn pieces(self, size: u32) -> impl Iterator<Item = Self> {
        let size = u64::from(size);
        let end = self.offset + u64::from(self.length);
        let mut next = self.offset;
        std::iter::from_fn(move || {
            let offset = next;
            next = end.min((offset / size + 1) * size);
            Self::between(offset, next)
        })
    }
}

/// The protocol's error numbers, which are Linux's on every platform.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::nbd) enum ErrorNumber {
    NotPermitted = 1,
    Io = 5,
    Invalid = 22,
    NoSpace = 28,
    Overflow = 75,
    Shutdown = 108,
}
