//! Compare-and-write on a volume: the building block of SCSI COMPARE AND WRITE and NVMe Compare and
//! Write.

use std::rc::Rc;

use format::limits::{BLOCK_BYTES, SLICE};
use futures_util::future::LocalBoxFuture;
use reactor::Span;

use super::{AttachedVolume, ShardAccess};
use crate::error::{Error, ErrorKind, Result};
use crate::invariant::to_index;
use crate::shard::Shard;

/// The result of [`AttachedVolume::compare_and_write`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// The range held the expected bytes, and holds the new ones.
    Written,
    /// The range differs from the expected bytes at this offset of the volume, and is unchanged.
    Differs {
        /// The first byte that differs.
        at: u64,
    },
}

impl AttachedVolume {
    /// Writes `data` at `offset` if the range holds `expected`, as one atomic step: no other write
    /// to the range happens between the comparison and the write, and a crash leaves the old or the
    /// new bytes. Offset and length are whole sectors. Durable after a later [`Self::flush`].
    ///
    /// # Errors
    /// `Invalid` if the lengths differ, beyond the end, across the border of two slices (4 MiB), or
    /// for more blocks than [`crate::Pool::atomic_write_bytes`]; otherwise as [`Self::read`] and
    /// [`Self::write`].
    pub fn compare_and_write<'a>(
        &'a self,
        offset: u64,
        expected: &'a Span,
        data: &'a Span,
    ) -> LocalBoxFuture<'a, Result<Comparison>> {
        Box::pin(async move {
            let length = data.len() as u64;
            self.check_write(offset, length)?;
            self.check_atomic(offset, expected.len() as u64, length)?;
            if self.shared.rate_limiter.is_limited() {
                self.wait_for_limits(length).await;
                self.check_write(offset, length)?;
            }
            let (shard, block) = self.shared.slices.locate(offset / BLOCK_BYTES);
            let within = to_index(offset % BLOCK_BYTES);
            let volume = self.shared.id;
            let differs = match self.shard(shard)? {
                ShardAccess::Local(shard) => {
                    shard.compare_and_write(volume, block, within, (expected, data)).await?
                }
                ShardAccess::Remote(handle) => {
                    let (expected, data) = (expected.clone(), data.clone());
                    let step = move |shard: Rc<Shard>| async move {
                        shard.compare_and_write(volume, block, within, (&expected, &data)).await
                    };
                    handle.call(step).await??
                }
            };
            Ok(differs.map_or(Comparison::Written, |index| Comparison::Differs { at: offset + index as u64 }))
        })
    }

    /// Refuses a range that one write does not cover atomically.
    fn check_atomic(&self, offset: u64, expected: u64, length: u64) -> Result<()> {
        let invalid = |message: String| Err(Error::new(ErrorKind::Invalid, message));
        if expected != length {
            return invalid(format!(
                "the length of the data to write is {length} bytes, but {expected} bytes are to be compared"
            ));
        }
        if length == 0 {
            return invalid("an empty range cannot be compared".into());
        }
        let end = offset + length;
        let covered = end.next_multiple_of(BLOCK_BYTES) - offset / BLOCK_BYTES * BLOCK_BYTES;
        let max = self.pool.atomic_write_bytes();
        if covered > max || offset / SLICE != (end - 1) / SLICE {
            return invalid(format!(
                "bytes {offset} to {end} exceed an atomic write: up to {max} bytes within one slice of {SLICE} bytes"
            ));
        }
        Ok(())
    }
}
