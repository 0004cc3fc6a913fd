//! What of a volume holds data.

use std::rc::Rc;

use format::limits::{BLOCK, SLICE};

use super::{AttachedVolume, ShardAccess};
use crate::error::Result;
use crate::shard::Shard;

/// A stretch of a volume that holds data, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Bytes.
    pub length: u64,
    /// True if it holds data; otherwise it reads as zeros.
    pub data: bool,
}

impl AttachedVolume {
    /// What of the range holds data, in order; the lengths add up to `length`.
    ///
    /// # Errors
    /// `Invalid` beyond the end; those of reading the map.
    pub async fn extents(&self, offset: u64, length: u64) -> Result<Vec<Extent>> {
        self.check(offset, length)?;
        let (first, end) = (offset / BLOCK as u64, (offset + length).div_ceil(BLOCK as u64));
        let mut extents: Vec<Extent> = Vec::new();
        for piece in self.slices.cut(first, end - first, SLICE) {
            let volume = self.shared.id;
            let found = match self.shard(piece.shard)? {
                ShardAccess::Here(shard) => shard.extents(volume, piece.block, piece.blocks).await?,
                ShardAccess::There(home) => {
                    let look = move |shard: Rc<Shard>| async move {
                        shard.extents(volume, piece.block, piece.blocks).await
                    };
                    home.call(look).await??
                }
            };
            for (blocks, data) in found {
                let length = blocks * BLOCK as u64;
                match extents.last_mut() {
                    Some(last) if last.data == data => last.length += length,
                    _ => extents.push(Extent { length, data }),
                }
            }
        }
        trim_to(&mut extents, offset % BLOCK as u64, length);
        Ok(extents)
    }
}

/// Cuts `skip` bytes off the front of a list of extents and ends it after `length` more.
pub(super) fn trim_to(extents: &mut Vec<Extent>, skip: u64, length: u64) {
    if let Some(first) = extents.first_mut() {
        first.length -= skip;
    }
    let mut left = length;
    for extent in &mut *extents {
        extent.length = extent.length.min(left);
        left -= extent.length;
    }
    extents.retain(|extent| extent.length > 0);
}
