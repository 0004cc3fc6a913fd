//! Volumes with widely spaced data, so that a test which writes a few megabytes touches hundreds of
//! map leaves, or both ends of a volume of the maximum size.
//!
//! The engine's volume is larger than the test's model of it. Each group of [`GROUP`] bytes is
//! stored at the start of its own larger chunk, and bytes from some offset on can lie behind a gap.
//! An operation across groups or the gap becomes one engine operation for each part.

use engine::{AttachedVolume, Comparison, Result};
use format::limits::VOLUME_MAX;
use reactor::Span;

/// Bytes that stay contiguous.
pub(crate) const GROUP: u64 = 16 << 10;

/// Maps byte offsets of the test's model to offsets in the engine's volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SparseLayout {
    /// The size of a chunk, in groups.
    factor: u64,
    /// The first model byte behind the gap, and the length of the gap in bytes.
    gap: (u64, u64),
}

impl SparseLayout {
    /// Creates a layout with each group at the start of a chunk of `factor` groups.
    pub(crate) const fn with_factor(factor: u64) -> Self {
        Self { factor, gap: (u64::MAX, 0) }
    }

    /// Adds a gap in the middle that extends a volume of `bytes` model bytes to the maximum volume
    /// size.
    pub(crate) fn up_to_size_limit(self, bytes: u64) -> Self {
        let middle = bytes / 2 / GROUP * GROUP;
        Self { gap: (middle, VOLUME_MAX - self.scale(bytes)), ..self }
    }

    /// Returns true if model offsets and engine offsets are equal.
    pub(crate) fn is_identity(self) -> bool {
        self == Self::with_factor(1)
    }

    /// Returns the engine offset of a byte without the gap.
    fn scale(self, byte: u64) -> u64 {
        byte / GROUP * GROUP * self.factor + byte % GROUP
    }

    /// Returns the engine offset of a model byte.
    pub(crate) fn engine_offset(self, byte: u64) -> u64 {
        let (from, gap) = self.gap;
        self.scale(byte) + if byte >= from { gap } else { 0 }
    }

    /// Returns the engine's size of a volume of this many model bytes.
    pub(crate) fn engine_size(self, bytes: u64) -> u64 {
        let (from, gap) = self.gap;
        self.scale(bytes) + if bytes > from { gap } else { 0 }
    }

    /// Returns the model size of a volume of this many engine bytes, the inverse of
    /// [`SparseLayout::engine_size`].
    pub(crate) fn model_size(self, size: u64) -> u64 {
        let (from, gap) = self.gap;
        let crosses = from != u64::MAX && size > self.scale(from);
        let size = if crosses { size - gap } else { size };
        let piece = GROUP * self.factor;
        size / piece * GROUP + (size % piece).min(GROUP)
    }

    /// Splits a model range into contiguous parts: offset in the engine's volume, offset in the
    /// range, length.
    pub(crate) fn parts(self, offset: u64, length: u64) -> Vec<(u64, usize, u64)> {
        let (from, end) = (self.gap.0, offset + length);
        let mut parts = Vec::new();
        let mut at = offset;
        while at < end {
            let group = if self.factor == 1 { end } else { (at / GROUP + 1) * GROUP };
            let before_gap = if at < from { from } else { end };
            let next = end.min(group).min(before_gap);
            parts.push((self.engine_offset(at), usize::try_from(at - offset).unwrap_or(0), next - at));
            at = next;
        }
        parts
    }
}

/// An attached volume with a sparse layout.
pub(crate) struct SparseVolume {
    volume: AttachedVolume,
    stretch: SparseLayout,
}

impl SparseVolume {
    pub(crate) fn new(volume: AttachedVolume, stretch: SparseLayout) -> Self {
        Self { volume, stretch }
    }

    pub(crate) fn size(&self) -> u64 {
        self.stretch.model_size(self.volume.size())
    }

    pub(crate) fn sector(&self) -> u32 {
        self.volume.sector()
    }

    pub(crate) fn atomic_write_bytes(&self) -> u64 {
        self.volume.atomic_write_bytes()
    }

    pub(crate) async fn write(&self, offset: u64, data: &Span) -> Result<()> {
        for (place, at, length) in self.stretch.parts(offset, data.len() as u64) {
            let length = usize::try_from(length).unwrap_or(0);
            self.volume.write(place, &data.slice(at..at + length)).await?;
        }
        Ok(())
    }

    /// Compares and writes a range that is one part.
    pub(crate) async fn compare_and_write(
        &self,
        offset: u64,
        expected: &Span,
        data: &Span,
    ) -> Result<Comparison> {
        let place = self.stretch.engine_offset(offset);
        let result = self.volume.compare_and_write(place, expected, data).await?;
        Ok(match result {
            Comparison::Differs { at } => Comparison::Differs { at: at - place + offset },
            Comparison::Written => Comparison::Written,
        })
    }

    /// Copies the range at `offset` of `source`, which has the same layout, to the same offset.
    pub(crate) async fn copy_from(&self, source: &Self, offset: u64, length: u64) -> Result<()> {
        for (place, _, length) in self.stretch.parts(offset, length) {
            self.volume.copy_from(&source.volume, place, place, length).await?;
        }
        Ok(())
    }

    pub(crate) async fn read(&self, offset: u64, into: &Span) -> Result<()> {
        for (place, at, length) in self.stretch.parts(offset, into.len() as u64) {
            let length = usize::try_from(length).unwrap_or(0);
            self.volume.read(place, &into.slice(at..at + length)).await?;
        }
        Ok(())
    }

    /// Zeroes a range including the space between its groups, so that long ranges stay long.
    pub(crate) async fn write_zeroes(&self, offset: u64, length: u64) -> Result<()> {
        let (start, end) = (self.stretch.engine_offset(offset), self.stretch.engine_size(offset + length));
        self.volume.write_zeroes(start, end - start).await
    }

    /// Discards a range like [`SparseVolume::write_zeroes`].
    pub(crate) async fn discard(&self, offset: u64, length: u64) -> Result<()> {
        let (start, end) = (self.stretch.engine_offset(offset), self.stretch.engine_size(offset + length));
        self.volume.discard(start, end - start).await
    }

    pub(crate) async fn flush(&self) -> Result<()> {
        self.volume.flush().await
    }

    /// Returns the number of bytes that the extents of a range cover.
    pub(crate) async fn extents(&self, offset: u64, length: u64) -> Result<u64> {
        let mut covered = 0;
        for (place, _, length) in self.stretch.parts(offset, length) {
            let extents = self.volume.extents(place, length).await?;
            covered += extents.iter().map(|extent| extent.length).sum::<u64>();
        }
        Ok(covered)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn model_size_inverts_engine_size() {
        let stretch = SparseLayout::with_factor(64);
        for bytes in [0, 512, GROUP - 512, GROUP, GROUP + 512, 100 * GROUP + 4096] {
            assert_eq!(stretch.model_size(stretch.engine_size(bytes)), bytes);
        }
        assert_eq!(stretch.engine_size(3 * GROUP), 3 << 20);
    }

    #[test]
    fn a_gap_extends_the_volume_to_the_maximum_size() {
        for factor in [1, 64] {
            let stretch = SparseLayout::with_factor(factor).up_to_size_limit(256 << 10);
            assert_eq!(
                (stretch.engine_size(256 << 10), stretch.model_size(VOLUME_MAX)),
                (VOLUME_MAX, 256 << 10)
            );
            for bytes in [512, (128 << 10) - 512, 128 << 10, (128 << 10) + 512, (256 << 10) - 512] {
                assert_eq!(stretch.model_size(stretch.engine_size(bytes)), bytes);
            }
            // Two sectors, one on each side of the gap.
            let parts = stretch.parts((128 << 10) - 512, 1024);
            let [(before, 0, 512), (behind, 512, 512)] = parts.as_slice() else { panic!("{parts:?}") };
            assert_eq!(
                behind - before,
                stretch.engine_offset(128 << 10) - stretch.engine_offset((128 << 10) - 512)
            );
            assert!(behind - before > VOLUME_MAX - (64 << 20));
        }
    }
}
