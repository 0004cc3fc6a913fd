//! Copying a range on the server side, for SCSI EXTENDED COPY, NVMe Copy and clones of images.
//!
//! The data passes through memory of the engine, not through the client. Blocks cannot be shared by
//! map in this log format: a record's descriptors name the layer and block of each cell, from which
//! the cleaner and the repair find its only map entry. Holes are copied by map: they are zeroed in
//! the target, and neither read nor written.

use std::sync::Arc;

use format::limits::BLOCK_BYTES;
use futures_util::future::LocalBoxFuture;
use reactor::Buffer;

use super::AttachedVolume;
use crate::error::{Error, ErrorKind, Result};
use crate::invariant::to_index;
use crate::join_all::join_all;

/// Bytes that are read and written at once.
const COPY_PIECE: u64 = 1 << 20;
/// Pieces that are in flight at once.
const COPIES_IN_FLIGHT: u64 = 4;

impl AttachedVolume {
    /// Copies `length` bytes from offset `from` of `source`, a volume or snapshot of the same pool,
    /// to `offset` of this volume. Offsets and length are whole sectors of both. Other writes to
    /// the ranges meanwhile may or may not be copied, or be overwritten. Durable after a later
    /// [`Self::flush`].
    ///
    /// # Errors
    /// `Invalid` beyond an end, or if the ranges are of one volume and overlap; as [`Self::read`]
    /// and [`Self::write`]. A part of the range may have been copied then.
    pub fn copy_from<'a>(
        &'a self,
        source: &'a Self,
        from: u64,
        offset: u64,
        length: u64,
    ) -> LocalBoxFuture<'a, Result<()>> {
        Box::pin(async move {
            source.check(from, length)?;
            self.check_write(offset, length)?;
            let is_same = Arc::ptr_eq(&self.shared, &source.shared);
            if is_same && from < offset + length && offset < from + length {
                let message = format!("the ranges at {from} and at {offset} of {length} bytes overlap");
                return Err(Error::new(ErrorKind::Invalid, message));
            }
            let mut done = 0;
            while done < length {
                let extents = source.extents(from + done, length - done).await?;
                assert!(!extents.is_empty(), "a range that is not empty has extents");
                for extent in extents {
                    if extent.data {
                        self.copy_data(source, from + done, offset + done, extent.length).await?;
                    } else {
                        self.write_zeroes(offset + done, extent.length).await?;
                    }
                    done += extent.length;
                }
            }
            Ok(())
        })
    }

    /// Copies a range that holds data, some pieces at a time.
    async fn copy_data(&self, source: &Self, from: u64, offset: u64, length: u64) -> Result<()> {
        let mut done = 0;
        while done < length {
            let window = (length - done).min(COPY_PIECE * COPIES_IN_FLIGHT);
            let pieces = (0..window.div_ceil(COPY_PIECE)).map(|piece| {
                let at = done + piece * COPY_PIECE;
                let bytes = COPY_PIECE.min(done + window - at);
                async move {
                    // A piece is far smaller than the memory of any machine.
                    let buffer = Buffer::new(to_index(bytes));
                    source.read(from + at, &buffer.span()).await?;
                    self.write(offset + at, &buffer.span()).await
                }
            });
            join_all(pieces).await?;
            done += window;
        }
        Ok(())
    }
}

const _: () = assert!(COPY_PIECE.is_multiple_of(BLOCK_BYTES));
