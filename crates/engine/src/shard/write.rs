//! Writing, zeroing and trimming blocks: prepare the fallible steps, queue, wait until the record
//! is applied.

mod compare;
mod full_pool;

use std::ops::Range;
use std::rc::Rc;

use codec::is_zero;
use format::limits::BLOCK;
use format::{Item, LayerBlock, LayerId, UnmapMode, VolumeId};
use reactor::{Buffer, Span};
use smallvec::SmallVec;

use self::full_pool::{ZeroAdmission, no_space_for_zeros};
use super::locks::RangeLock;
use super::walk::pin_leaves;
use super::{LEAF_BLOCKS, Shard};
use crate::error::Result;
use crate::log::{Effect, Request, WriteClass};
use crate::map::{Map, Pins};
use crate::write_waits::WriteWait;

/// Maximum number of leaves that one unmap record changes: an item for each still fits one header
/// block.
const UNMAP_LEAVES: usize = 128;

/// Number of blocks whose first bytes are prefetched during the search for zero blocks.
const ZERO_PREFETCH_BLOCKS: usize = 16;

impl Shard {
    /// Writes `data`, whole blocks and at most [`crate::log::REQUEST_BLOCKS_MAX`] of them, to a
    /// volume from block `block` on. Blocks of zeros are stored as holes.
    ///
    /// # Errors
    /// `NoSpace` in a full pool, `PoolFailed` when too many drives have failed.
    pub(crate) async fn write(&self, volume: VolumeId, block: u64, data: &Span) -> Result<()> {
        let _use = self.track_client_op();
        let count = (data.len() / BLOCK) as u64;
        let _permit = self.permit_to_write(volume, data.len() / BLOCK).await;
        if self.log.pacer.space.is_full() {
            // Boxed, so that the futures of most writes need no room for it.
            Box::pin(self.load_visible(volume, block, count)).await?;
        }
        let (layer, pins) = self.prepare(volume, block, count).await?;
        let request = write_request(layer, block, data, pins, self.unmap_mode(layer));
        let (write_class, request) = self.admit(layer, block, count, request)?;
        self.log.commit(write_class, request).await.map(|_| ())
    }

    /// Changes blocks of the catalogue or of the event log atomically: writes those in `written`
    /// and unmaps those in `gone`. May use the reserve, so that a full pool can be changed.
    ///
    /// # Errors
    /// As [`Shard::write`], but `NoSpace` only when the reserve is used up too.
    pub(crate) async fn change_system(
        &self,
        layer: LayerId,
        written: &[(u64, Span)],
        gone: &[u64],
    ) -> Result<()> {
        let mut request =
            Request { items: SmallVec::new(), data: SmallVec::new(), effect: Effect::Nothing, reply: None };
        let mut pins = Pins::new();
        for block in written.iter().map(|(block, _)| block).chain(gone) {
            match self.prepare_system(layer, *block).await {
                Ok(more) => pins.extend(more),
                Err(error) => {
                    self.unpin(&pins);
                    return Err(error);
                }
            }
        }
        request.effect = Effect::Leaves(pins);
        for (block, data) in written {
            request.items.push(Item::Write { layer, block: LayerBlock::new(*block), count: 1 });
            request.data.push(data.clone());
        }
        for block in gone {
            let block = LayerBlock::new(*block);
            request.items.push(Item::Unmap { layer, block, count: 1, mode: UnmapMode::Absent });
        }
        self.log.commit(WriteClass::Freeing, request).await.map(|_| ())
    }

    /// Writes `data` at byte `offset` of block `block`; it may begin and end within a block, and
    /// covers at most [`crate::log::REQUEST_BLOCKS_MAX`] blocks. It is one request, as atomic as
    /// one of whole blocks.
    ///
    /// # Errors
    /// As [`Shard::write`], and those of reading the blocks at its ends.
    pub(crate) async fn write_bytes(
        self: &Rc<Self>,
        volume: VolumeId,
        block: u64,
        offset: usize,
        data: &Span,
    ) -> Result<()> {
        let end = offset + data.len();
        let count = end.div_ceil(BLOCK);
        let (blocks, last) = (count as u64, block + count as u64 - 1);
        let _lock = self.lock_blocks(volume, block, blocks).await;
        loop {
            let layer = self.layer_for_writing(volume).await?;
            // Requests that were queued before the lock was taken must be applied before the blocks
            // are read.
            self.log.wait_for_queued().await;
            let whole = Buffer::new(count * BLOCK);
            if !offset.is_multiple_of(BLOCK) {
                self.read_layer(layer, block, &whole.span().slice(0..BLOCK)).await?;
            }
            if !end.is_multiple_of(BLOCK) && (last > block || offset.is_multiple_of(BLOCK)) {
                self.read_layer(layer, last, &whole.span().slice((count - 1) * BLOCK..count * BLOCK)).await?;
            }
            whole.span().slice(offset..end).copy_from_span(data);
            if self.log.pacer.space.is_full() {
                self.load_visible(volume, block, blocks).await?;
            }
            let Some(pins) = self.prepare_in(volume, layer, block, blocks).await? else { continue };
            let request = write_request(layer, block, &whole.span(), pins, self.unmap_mode(layer));
            let (write_class, request) = self.admit(layer, block, blocks, request)?;
            return self.log.commit(write_class, request).await.map(|_| ());
        }
    }

    /// Makes blocks `block..block + count` of a volume read as zeros, and frees their data.
    ///
    /// # Errors
    /// `PoolFailed` when too many drives have failed; those of reading the map; `NoSpace` in a full
    /// pool where zeros would have to hide blocks of a snapshot. The rest of the range is zeroed
    /// and freed then.
    pub(crate) async fn unmap(&self, volume: VolumeId, block: u64, count: u64) -> Result<()> {
        // Checked even if there is nothing to unmap: the next opening may replay a write that
        // failed with the shard.
        if let Some(failure) = self.log.failure() {
            return Err(failure);
        }
        let end = block + count;
        let most = self.unmap_blocks();
        let mut next = block;
        let mut refused = Ok(());
        while next < end {
            self.make_room_in_map().await?;
            let layer = self.layer_for_writing(volume).await?;
            let mode = self.unmap_mode(layer);
            // Long unmapped ranges are skipped without a record.
            let Some(found) = self.next_leaf_through(layer, next, end).await? else { break };
            let until = match mode {
                UnmapMode::Absent => end.min((found / most + 1) * most),
                UnmapMode::Zero if self.log.pacer.space.is_full() => {
                    let until = end.min((found / LEAF_BLOCKS + 1) * LEAF_BLOCKS);
                    match self.zeros_in_full_pool(layer, found, until - found).await? {
                        ZeroAdmission::Admitted => until,
                        ZeroAdmission::Needless => {
                            next = until;
                            continue;
                        }
                        ZeroAdmission::Refused => {
                            refused = Err(no_space_for_zeros());
                            next = until;
                            continue;
                        }
                    }
                }
                UnmapMode::Zero => {
                    self.end_of_leaves(layer, found, end.min(found.saturating_add(most))).await?
                }
            };
            let pins = match mode {
                UnmapMode::Absent => self.prepare_unmap(layer, found, until - found).await?,
                // Blocks of the layers below must be hidden everywhere.
                UnmapMode::Zero => match self.prepare_in(volume, layer, found, until - found).await? {
                    Some(pins) => pins,
                    None => continue,
                },
            };
            let held = self.locks.any_held(volume, found, until - found);
            if held || !self.is_active_layer(volume, layer) || self.unmap_mode(layer) != mode {
                self.unpin(&pins);
                if held {
                    self.wait_for_locks(volume, found, until - found).await;
                }
                continue;
            }
            self.commit_unmap(WriteClass::Trim, (layer, found, until - found, mode), pins).await?;
            next = until;
        }
        refused
    }

    /// Like [`Shard::unmap`], for a layer that is not written to.
    pub(super) async fn unmap_layer(
        &self,
        write_class: WriteClass,
        layer: LayerId,
        block: u64,
        count: u64,
    ) -> Result<()> {
        let end = block + count;
        let most = self.unmap_blocks();
        let mut next = block;
        while next < end {
            if write_class == WriteClass::Freeing {
                self.check_stopping()?;
            }
            self.make_room_in_map().await?;
            let Some(found) = self.walk(|map| map.next_leaf(layer, next, end)).await? else { return Ok(()) };
            let until = end.min((found / most + 1) * most);
            let mode = UnmapMode::Absent;
            let pins = self.prepare_unmap(layer, found, until - found).await?;
            self.commit_unmap(write_class, (layer, found, until - found, mode), pins).await?;
            next = until;
        }
        Ok(())
    }

    /// Returns the maximum number of blocks that one unmap record covers.
    fn unmap_blocks(&self) -> u64 {
        // A share of the nodes that may be dirty between two checkpoints, because several requests
        // may be in progress.
        let leaves = (self.ledger.map.borrow().dirty_max() / 16).clamp(1, UNMAP_LEAVES) as u64;
        leaves * format::NODE_ENTRIES as u64
    }

    pub(super) async fn make_room_in_map(&self) -> Result<()> {
        if self.map_wants_checkpoint() {
            self.checkpointer.wait_for_map(self).await?;
        }
        Ok(())
    }

    /// Returns true if a checkpoint should begin so that no request has to wait for space in the
    /// map. If only the checkpoint reserve is left, it begins as late as possible: most requests
    /// are refused then, and a checkpoint for each of them would use the reserve up.
    pub(super) fn map_wants_checkpoint(&self) -> bool {
        let map = self.ledger.map.borrow();
        map.is_checkpoint_due()
            && (map.is_checkpoint_urgent() || !self.log.pacer.space.only_checkpoint_reserve_left())
    }

    /// Returns the end of the contiguous leaves from `block` on, in a layer and those below it
    /// together.
    async fn end_of_leaves(&self, layer: LayerId, block: u64, end: u64) -> Result<u64> {
        let leaf = format::NODE_ENTRIES as u64;
        let mut until = (block / leaf + 1) * leaf;
        while until < end && self.next_leaf_through(layer, until, end).await? == Some(until) {
            until += leaf;
        }
        Ok(until.min(end))
    }

    async fn commit_unmap(
        &self,
        write_class: WriteClass,
        (layer, block, count, mode): (LayerId, u64, u64, UnmapMode),
        pins: Pins,
    ) -> Result<()> {
        if pins.is_empty() {
            return Ok(());
        }
        let request = Request {
            items: self.unmap_items(layer, block..block + count, mode, &pins),
            data: SmallVec::new(),
            effect: Effect::Leaves(pins),
            reply: None,
        };
        self.log.commit(write_class, request).await.map(|_| ())
    }

    /// Returns the unmap items for the part of a range that is in these leaves, in order. Not for
    /// more: a leaf that an earlier record creates meanwhile is not changed here, and must not be
    /// changed by a replay.
    fn unmap_items(
        &self,
        layer: LayerId,
        range: Range<u64>,
        mode: UnmapMode,
        pins: &Pins,
    ) -> SmallVec<[Item; 1]> {
        let map = self.ledger.map.borrow();
        let mut runs: SmallVec<[Range<u64>; 2]> = SmallVec::new();
        for leaf in pins {
            let start = map.leaf_start(*leaf);
            let (first, end) = (start.max(range.start), (start + LEAF_BLOCKS).min(range.end));
            match runs.last_mut() {
                Some(last) if last.end == first => last.end = end,
                _ => runs.push(first..end),
            }
        }
        let item = |run: Range<u64>| Item::Unmap {
            layer,
            block: LayerBlock::new(run.start),
            count: run.end - run.start,
            mode,
        };
        runs.into_iter().map(item).collect()
    }

    /// Pins every leaf that exists in a range.
    pub(super) async fn prepare_unmap(&self, layer: LayerId, block: u64, count: u64) -> Result<Pins> {
        let mut pins = Pins::new();
        let walked = self.walk(|map| map.prepare_unmap(layer, block, count, &mut pins)).await;
        if let Err(error) = walked {
            self.unpin(&pins);
            return Err(error);
        }
        Ok(pins)
    }

    /// Returns the layer that a volume writes to, with the leaves of a range pinned, once no block
    /// of it is locked. The caller queues its request without waiting in between.
    async fn prepare(&self, volume: VolumeId, block: u64, count: u64) -> Result<(LayerId, Pins)> {
        if let Some(prepared) = self.prepare_now(volume, block, count) {
            return Ok(prepared);
        }
        // Boxed, so that the futures of most writes need no room for it.
        Box::pin(self.prepare_waiting(volume, block, count)).await
    }

    /// Like [`Shard::prepare`], if it need not wait.
    fn prepare_now(&self, volume: VolumeId, block: u64, count: u64) -> Option<(LayerId, Pins)> {
        let layer = self.layer_of(volume).ok()?;
        if self.map_wants_checkpoint() {
            return None;
        }
        let mut map = self.ledger.map.borrow_mut();
        if self.locks.any_held(volume, block, count) || !self.is_active_layer(volume, layer) {
            return None;
        }
        let mut pins = Pins::new();
        if map.prepare_write(layer, block, count, &mut pins).is_err() {
            map.unpin(&pins);
            return None;
        }
        Some((layer, pins))
    }

    async fn prepare_waiting(&self, volume: VolumeId, block: u64, count: u64) -> Result<(LayerId, Pins)> {
        loop {
            let layer = self.layer_for_writing(volume).await?;
            let Some(pins) = self.prepare_in(volume, layer, block, count).await? else { continue };
            if !self.locks.any_held(volume, block, count) {
                return Ok((layer, pins));
            }
            self.unpin(&pins);
            self.wait_for_locks(volume, block, count).await;
        }
    }

    /// Locks blocks for an operation that reads them before it writes them.
    async fn lock_blocks(&self, volume: VolumeId, block: u64, count: u64) -> RangeLock<'_> {
        let held = self.locks.any_held(volume, block, count);
        let _wait = held.then(|| self.waits.begin(WriteWait::OverlappingWrite));
        self.locks.lock(volume, block, count).await
    }

    /// Waits until no block of a range is locked.
    async fn wait_for_locks(&self, volume: VolumeId, block: u64, count: u64) {
        let _wait = self.waits.begin(WriteWait::OverlappingWrite);
        self.locks.wait(volume, block, count).await;
    }

    /// Pins the leaves of a range in the layer that a volume writes to; `None` if that is another
    /// layer by now. The former may have been dropped, and a new leaf would create it again.
    async fn prepare_in(
        &self,
        volume: VolumeId,
        layer: LayerId,
        block: u64,
        count: u64,
    ) -> Result<Option<Pins>> {
        self.make_room_in_map().await?;
        let mut pins = Pins::new();
        let prepare = |map: &mut Map| {
            let is_active_layer = self.is_active_layer(volume, layer);
            if is_active_layer {
                map.prepare_write(layer, block, count, &mut pins).map(|()| true)
            } else {
                Ok(false)
            }
        };
        let prepared = self.walk(prepare).await;
        if !matches!(prepared, Ok(true)) {
            self.unpin(&pins);
        }
        Ok(prepared?.then_some(pins))
    }

    /// Like [`Shard::prepare_in`], for a system layer, which is never dropped.
    async fn prepare_system(&self, layer: LayerId, block: u64) -> Result<Pins> {
        self.make_room_in_map().await?;
        pin_leaves(&self.ledger, &self.rows, layer, block, 1).await
    }
}

/// Builds a request that writes `data`, with holes of mode `unmap_mode` where it is zero.
fn write_request(layer: LayerId, block: u64, data: &Span, pins: Pins, unmap_mode: UnmapMode) -> Request {
    let mut request =
        Request { items: SmallVec::new(), data: SmallVec::new(), effect: Effect::Leaves(pins), reply: None };
    let zeros = data.peek(zeros);
    let mut start = 0;
    while let Some(zero) = zeros.get(start).copied() {
        let length = zeros.iter().skip(start).take_while(|next| **next == zero).count();
        let first = LayerBlock::new(block + start as u64);
        if zero {
            let count = length as u64;
            request.items.push(Item::Unmap { layer, block: first, count, mode: unmap_mode });
        } else {
            let Ok(count) = u16::try_from(length) else { panic!("R3: a write of {length} blocks") };
            request.items.push(Item::Write { layer, block: first, count });
            request.data.push(data.slice(start * BLOCK..(start + length) * BLOCK));
        }
        start += length;
    }
    request
}

/// Returns which blocks are zero. The first bytes usually decide, and the writer may still have
/// them in its caches: several blocks are prefetched at a time.
fn zeros(bytes: &[u8]) -> SmallVec<[bool; 8]> {
    let blocks = bytes.chunks_exact(BLOCK);
    let mut ahead = blocks.clone().skip(1);
    ahead.by_ref().take(ZERO_PREFETCH_BLOCKS).for_each(|block| reactor::prefetch(block.as_ptr(), 1));
    let is_zero = |block| {
        if let Some(next) = ahead.next() {
            reactor::prefetch(next.as_ptr(), 1);
        }
        is_zero(block)
    };
    blocks.map(is_zero).collect()
}
