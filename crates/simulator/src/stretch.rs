//! Volumes whose data lies far apart: what a test writes in a few megabytes touches hundreds of map leaves.
//!
//! A stretched volume is [`Stretch`] times as large as the test thinks. Each group of [`GROUP`] bytes lies at the start of
//! a piece of its own, and operations that cross groups are one operation of the engine for each.

use engine::{AttachedVolume, Result};
use reactor::Span;

/// Bytes that stay together.
pub(crate) const GROUP: u64 = 16 << 10;

/// How many times larger the engine's volume is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stretch(pub(crate) u64);

impl Stretch {
    /// Where a byte lies, and how large a volume of this many bytes is.
    pub(crate) fn outside(self, bytes: u64) -> u64 {
        bytes / GROUP * GROUP * self.0 + bytes % GROUP
    }

    /// The opposite of [`Stretch::outside`].
    pub(crate) fn inside(self, bytes: u64) -> u64 {
        let piece = GROUP * self.0;
        bytes / piece * GROUP + (bytes % piece).min(GROUP)
    }
}

/// A volume in use.
pub(crate) struct Stretched {
    volume: AttachedVolume,
    stretch: Stretch,
}

impl Stretched {
    pub(crate) fn new(volume: AttachedVolume, stretch: Stretch) -> Self {
        Self { volume, stretch }
    }

    pub(crate) fn size(&self) -> u64 {
        self.stretch.inside(self.volume.size())
    }

    pub(crate) fn sector(&self) -> u32 {
        self.volume.sector()
    }

    /// Pieces that lie together: offset in the engine's volume, offset in the operation, length.
    fn pieces(&self, offset: u64, length: u64) -> Vec<(u64, usize, u64)> {
        if self.stretch.0 == 1 {
            return vec![(offset, 0, length)];
        }
        let mut pieces = Vec::new();
        let mut at = offset;
        while at < offset + length {
            let end = ((at / GROUP + 1) * GROUP).min(offset + length);
            pieces.push((self.stretch.outside(at), usize::try_from(at - offset).unwrap_or(0), end - at));
            at = end;
        }
        pieces
    }

    pub(crate) async fn write(&self, offset: u64, data: &Span) -> Result<()> {
        for (place, at, length) in self.pieces(offset, data.len() as u64) {
            let length = usize::try_from(length).unwrap_or(0);
            self.volume.write(place, &data.slice(at..at + length)).await?;
        }
        Ok(())
    }

    pub(crate) async fn read(&self, offset: u64, into: &Span) -> Result<()> {
        for (place, at, length) in self.pieces(offset, into.len() as u64) {
            let length = usize::try_from(length).unwrap_or(0);
            self.volume.read(place, &into.slice(at..at + length)).await?;
        }
        Ok(())
    }

    /// As the engine's; the gaps go with it, so that long ranges stay long.
    pub(crate) async fn write_zeroes(&self, offset: u64, length: u64) -> Result<()> {
        let end = self.stretch.outside(offset + length);
        let start = self.stretch.outside(offset);
        self.volume.write_zeroes(start, end - start).await
    }

    /// As [`Stretched::write_zeroes`].
    pub(crate) async fn discard(&self, offset: u64, length: u64) -> Result<()> {
        let end = self.stretch.outside(offset + length);
        let start = self.stretch.outside(offset);
        self.volume.discard(start, end - start).await
    }

    pub(crate) async fn flush(&self) -> Result<()> {
        self.volume.flush().await
    }

    /// Bytes that the extents of a range cover.
    pub(crate) async fn extents(&self, offset: u64, length: u64) -> Result<u64> {
        let mut covered = 0;
        for (place, _, length) in self.pieces(offset, length) {
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
    fn what_goes_out_comes_back() {
        let stretch = Stretch(64);
        for bytes in [0, 512, GROUP - 512, GROUP, GROUP + 512, 100 * GROUP + 4096] {
            assert_eq!(stretch.inside(stretch.outside(bytes)), bytes);
        }
        assert_eq!(stretch.outside(3 * GROUP), 3 << 20);
    }
}
