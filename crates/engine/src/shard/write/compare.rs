//! Compare-and-write: writes blocks only if they still hold the expected bytes.
//!
//! Always true: no other write changes the range between the comparison and the write (the range is
//! locked), and the write is one request, which is atomic across crashes.

use std::rc::Rc;

use format::VolumeId;
use format::limits::BLOCK;
use reactor::{Buffer, Span};

use super::{Shard, write_request};
use crate::error::Result;

impl Shard {
    /// Writes `data` at byte `offset` of block `block` if the range holds `expected`, which has the
    /// same length. Both cover at most [`crate::log::REQUEST_BLOCKS_MAX`] blocks. On a mismatch,
    /// nothing is written, and the index of the first byte that differs is returned.
    ///
    /// # Errors
    /// As [`Shard::write`], and those of reading the range.
    pub(crate) async fn compare_and_write(
        self: &Rc<Self>,
        volume: VolumeId,
        block: u64,
        offset: usize,
        (expected, data): (&Span, &Span),
    ) -> Result<Option<usize>> {
        assert_eq!(expected.len(), data.len(), "a range is compared with as many bytes");
        let count = (offset + data.len()).div_ceil(BLOCK);
        let blocks = count as u64;
        let _lock = self.lock_blocks(volume, block, blocks).await;
        loop {
            let layer = self.layer_for_writing(volume).await?;
            // Requests that were queued before the lock was taken must be applied before the blocks
            // are read.
            self.log.wait_for_queued().await;
            let whole = Buffer::new(count * BLOCK);
            self.read_layer(layer, block, &whole.span()).await?;
            let stored = whole.span().slice(offset..offset + data.len());
            if let Some(index) = first_difference(&stored, expected) {
                return Ok(Some(index));
            }
            stored.copy_from_span(data);
            let Some(pins) = self.prepare_in(volume, layer, block, blocks).await? else { continue };
            let request = write_request(layer, block, &whole.span(), pins, self.unmap_mode(layer));
            let (write_class, request) = self.admit(layer, block, blocks, request)?;
            self.log.commit(write_class, request).await?;
            return Ok(None);
        }
    }
}

/// Returns the index of the first byte in which two spans of the same length differ.
fn first_difference(stored: &Span, expected: &Span) -> Option<usize> {
    stored.peek(|stored| {
        expected
            .peek(|expected| stored.iter().zip(expected).position(|(stored, expected)| stored != expected))
    })
}
