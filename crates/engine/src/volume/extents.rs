//! The allocated extents of a volume. Shards are queried slice by slice where data may exist; holes
//! in between are skipped in one step.
//!
//! Must not know: the map of a shard.

use std::rc::Rc;

use format::VolumeId;
use format::limits::{BLOCK, SLICE};
use futures_util::future::LocalBoxFuture;
use smallvec::SmallVec;

use super::{AttachedVolume, ShardAccess};
use crate::error::Result;
use crate::shard::{Shard, ShardExtents};
use crate::slices::{Slices, SubRequest};

/// The most slices queried for one reply, in addition to one of each shard. Bounds the work.
const SLICES_MAX: usize = 16;

/// An extent of data or a hole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// The length in bytes.
    pub length: u64,
    /// True for data; a hole reads as zeros.
    pub data: bool,
}

impl AttachedVolume {
    /// Returns the extents of the range, in order. Their lengths add up to `length`, or to less if
    /// more than 64 MiB of the range would have to be queried. Skipped holes do not count.
    ///
    /// # Errors
    /// `Invalid` beyond the end; those of reading the map.
    pub fn extents(&self, offset: u64, length: u64) -> LocalBoxFuture<'_, Result<Vec<Extent>>> {
        Box::pin(async move {
            self.check(offset, length)?;
            let (first, end) = (offset / BLOCK as u64, (offset + length).div_ceil(BLOCK as u64));
            let mut scan = ExtentScan::new(self.shared.slices, first, end);
            let mut extents: Vec<Extent> = Vec::new();
            let mut left = SLICES_MAX + self.shared.slices.shards();
            while left > 0
                && let Some(step) = scan.step()
            {
                match step {
                    ScanStep::Hole(blocks) => append(&mut extents, blocks, false),
                    ScanStep::Query(part) => {
                        left -= 1;
                        let bound = self.shared.slices.local_bound(part.shard, end);
                        let reply = self.query(part, bound).await?;
                        reply.extents.iter().for_each(|(blocks, data)| append(&mut extents, *blocks, *data));
                        scan.on_reply(part, reply.next);
                    }
                }
            }
            trim_to(&mut extents, offset % BLOCK as u64, length);
            Ok(extents)
        })
    }

    async fn query(&self, part: SubRequest, bound: u64) -> Result<ShardExtents> {
        let (volume, SubRequest { block, blocks, .. }): (VolumeId, _) = (self.shared.id, part);
        match self.shard(part.shard)? {
            ShardAccess::Local(shard) => shard.extents(volume, (block, blocks), bound).await,
            ShardAccess::Remote(handle) => {
                let query = move |shard: Rc<Shard>| async move {
                    shard.extents(volume, (block, blocks), bound).await
                };
                handle.call(query).await?
            }
        }
    }
}

/// A scan of a range of a volume for extents, in order.
pub(super) struct ExtentScan {
    slices: Slices,
    next: u64,
    end: u64,
    /// For each shard the first volume block that may hold data, once the shard was queried; `end`
    /// if there is none.
    next_data: SmallVec<[Option<u64>; 16]>,
}

/// The next step of an [`ExtentScan`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ScanStep {
    /// A hole of this many blocks.
    Hole(u64),
    /// A shard must be queried.
    Query(SubRequest),
}

impl ExtentScan {
    /// A scan of blocks `first..end`.
    pub(super) fn new(slices: Slices, first: u64, end: u64) -> Self {
        Self { slices, next: first, end, next_data: SmallVec::from_elem(None, slices.shards()) }
    }

    /// Returns the next step, or `None` at the end. A query must be followed by [`Self::on_reply`]
    /// before the next call.
    pub(super) fn step(&mut self) -> Option<ScanStep> {
        if self.next >= self.end {
            return None;
        }
        // A shard that was not queried yet may hold data in its next block.
        let next_of = |(shard, known): (usize, &Option<u64>)| {
            known.unwrap_or_else(|| {
                let bound = self.slices.local_bound(shard, self.next);
                self.slices.volume_block(shard, bound).unwrap_or(self.end)
            })
        };
        let next = self.next_data.iter().enumerate().map(next_of).min().unwrap_or(self.end).min(self.end);
        if next > self.next {
            let hole = next - self.next;
            self.next = next;
            return Some(ScanStep::Hole(hole));
        }
        Some(ScanStep::Query(self.slices.first_part(self.next, self.end - self.next, SLICE)))
    }

    /// Records that the extents of a queried run are known. `next` is the shard's first block after
    /// the run that may hold data.
    pub(super) fn on_reply(&mut self, part: SubRequest, next: Option<u64>) {
        let next = next.and_then(|next| self.slices.volume_block(part.shard, next)).unwrap_or(self.end);
        if let Some(shard_next) = self.next_data.get_mut(part.shard) {
            *shard_next = Some(next);
        }
        self.next += part.blocks;
    }
}

fn append(extents: &mut Vec<Extent>, blocks: u64, data: bool) {
    let length = blocks * BLOCK as u64;
    match extents.last_mut() {
        Some(last) if last.data == data => last.length += length,
        _ => extents.push(Extent { length, data }),
    }
}

/// Removes the first `skip` bytes of a list of extents and truncates the rest to `length` bytes.
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

#[cfg(test)]
#[path = "extents_tests.rs"]
mod tests;
