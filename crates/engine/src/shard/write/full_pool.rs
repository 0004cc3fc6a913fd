//! Admission into a full pool: a write must take no more space than the range holds already.
//!
//! A block that replaces a stored block takes no space, nor do zeros where nothing has to be
//! hidden. Zeros that hide a block of a snapshot need an entry in a leaf of the volume's own layer;
//! only a leaf that has entries is stored anyway. A leaf that was merely created in memory, for a
//! request that was refused, does not count.

use std::ops::Range;

use format::{Item, LayerBlock, LayerId, MapEntry, UnmapMode, VolumeId};
use smallvec::SmallVec;

use super::{LEAF_BLOCKS, Shard};
use crate::error::{Error, ErrorKind, Result};
use crate::invariant::to_index;
use crate::log::{Effect, Request, WriteClass};
use crate::map::Map;

/// The decision about zeros over blocks of one leaf, in a full pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ZeroAdmission {
    /// The zeros take no space, or the volume has reserved it.
    Admitted,
    /// The blocks read as zeros already.
    Needless,
    /// The zeros would hide blocks of a snapshot, and take space for a new leaf.
    Refused,
}

impl Shard {
    /// Admits a request to write blocks of a layer, whose leaves are pinned, and returns its write
    /// class. In a full pool, it must take no more space than the blocks and leaves that it
    /// replaces; zeros that have nothing to hide then create no leaf.
    ///
    /// # Errors
    /// `NoSpace`; the request's pins are released then.
    pub(super) fn admit(
        &self,
        layer: LayerId,
        block: u64,
        count: u64,
        mut request: Request,
    ) -> Result<(WriteClass, Request)> {
        let write_class = if request.data.is_empty() { WriteClass::Trim } else { WriteClass::User };
        if !self.log.pacer.space.is_full() || self.is_reserved(layer) {
            return Ok((write_class, request));
        }
        // The leaves are pinned, so they are in memory.
        let items =
            space_neutral_items(&mut self.ledger.map.borrow_mut(), layer, (block, count), &request.items);
        if let Some(items) = items {
            request.items = items;
            return Ok((write_class, request));
        }
        if let Effect::Leaves(pins) = &request.effect {
            self.unpin(pins);
        }
        Err(match write_class {
            WriteClass::Trim => no_space_for_zeros(),
            _ => Error::new(ErrorKind::NoSpace, "the pool is full: delete or trim data, or add a drive"),
        })
    }

    /// Decides about zeros over blocks that lie in one leaf of a layer with a parent, in a full
    /// pool.
    pub(super) async fn zeros_in_full_pool(
        &self,
        layer: LayerId,
        block: u64,
        count: u64,
    ) -> Result<ZeroAdmission> {
        assert_eq!(block / LEAF_BLOCKS, (block + count - 1) / LEAF_BLOCKS, "the blocks lie in one leaf");
        if self.is_reserved(layer) || self.walk(|map| map.has_entries(layer, block)).await? {
            return Ok(ZeroAdmission::Admitted);
        }
        let range = (layer, block, to_index(count));
        let is_visible = self.walk_chain(range, |map| shows_data(map, layer, block..block + count)).await?;
        Ok(if is_visible { ZeroAdmission::Refused } else { ZeroAdmission::Needless })
    }

    /// Loads the map nodes that decide whether zeros hide blocks of a parent layer, so that
    /// [`Shard::admit`], which does not wait, finds them in memory. If they are evicted in between,
    /// it refuses the request.
    pub(super) async fn load_visible(&self, volume: VolumeId, block: u64, count: u64) -> Result<()> {
        let layer = self.layer_for_writing(volume).await?;
        if self.unmap_mode(layer) == UnmapMode::Absent {
            return Ok(());
        }
        let range = (layer, block, to_index(count));
        self.walk_chain(range, |map| shows_data(map, layer, block..block + count)).await.map(|_| ())
    }

    /// Returns true if a layer has a reservation, and the pool has space for it.
    fn is_reserved(&self, layer: LayerId) -> bool {
        !self.log.pacer.space.is_full_for_reservations() && self.ledger.map.borrow().has_reservation(layer)
    }
}

/// The error for zeros that would take space.
pub(super) fn no_space_for_zeros() -> Error {
    let message = "the pool is full, and zeros over blocks of a snapshot take space: delete snapshots or data, or add a drive";
    Error::new(ErrorKind::NoSpace, message)
}

/// Returns the items of a request for `count` blocks from `block` on so that they take no space;
/// `None` if they do. Writes must replace stored blocks. Zeros in a leaf without entries become
/// absent blocks if they hide nothing; an absent block of such a leaf is not stored.
fn space_neutral_items(
    map: &mut Map,
    layer: LayerId,
    (block, count): (u64, u64),
    items: &[Item],
) -> Option<SmallVec<[Item; 1]>> {
    let mut entries: SmallVec<[MapEntry; 8]> = SmallVec::new();
    map.lookup(layer, block, to_index(count), &mut entries).ok()?;
    let is_stored =
        |at: u64| entries.get(to_index(at - block)).is_some_and(|entry| entry.address().is_some());
    let mut neutral = SmallVec::new();
    for item in items {
        match *item {
            Item::Write { block, count, .. } => {
                if !(block.get()..block.get() + u64::from(count)).all(is_stored) {
                    return None;
                }
                neutral.push(*item);
            }
            Item::Unmap { block, count, mode: UnmapMode::Zero, .. } => {
                for part in by_leaf(block.get()..block.get() + count) {
                    let mode = zero_mode(map, layer, &part)?;
                    let (block, count) = (LayerBlock::new(part.start), part.end - part.start);
                    neutral.push(Item::Unmap { layer, block, count, mode });
                }
            }
            Item::Unmap { mode: UnmapMode::Absent, .. } => neutral.push(*item),
            _ => panic!("R3: a client's request has an item that is neither a write nor zeros"),
        }
    }
    Some(neutral)
}

/// Returns the mode in which blocks of one leaf become zeros without taking space; `None` if there
/// is none, or if it depends on a node that is not in memory.
fn zero_mode(map: &mut Map, layer: LayerId, blocks: &Range<u64>) -> Option<UnmapMode> {
    if map.has_entries(layer, blocks.start).ok()? {
        return Some(UnmapMode::Zero);
    }
    let is_visible = shows_data(map, layer, blocks.clone()).ok()?;
    (!is_visible).then_some(UnmapMode::Absent)
}

/// Returns true if a layer or one below it shows data in a range.
fn shows_data(
    map: &mut Map,
    layer: LayerId,
    blocks: Range<u64>,
) -> std::result::Result<bool, crate::map::MissingNode> {
    let mut entries = SmallVec::new();
    map.lookup_through(layer, blocks.start, to_index(blocks.end - blocks.start), &mut entries)?;
    Ok(entries.iter().any(|entry| entry.address().is_some()))
}

/// Splits a range at the boundaries of leaves.
fn by_leaf(blocks: Range<u64>) -> impl Iterator<Item = Range<u64>> {
    let leaves = blocks.start / LEAF_BLOCKS..blocks.end.div_ceil(LEAF_BLOCKS);
    leaves.map(move |leaf| (leaf * LEAF_BLOCKS).max(blocks.start)..((leaf + 1) * LEAF_BLOCKS).min(blocks.end))
}
