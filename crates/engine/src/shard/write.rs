//! Writing, zeroing and trimming blocks: prepare what can fail, queue, wait for the record to land.

use std::ops::Range;
use std::rc::Rc;

use codec::is_zero;
use format::limits::BLOCK;
use format::{Item, LayerBlock, LayerId, UnmapMode};
use reactor::{Buffer, Span};
use smallvec::SmallVec;

use super::{LEAF_BLOCKS, Shard};
use crate::error::{Error, ErrorKind, Result};
use crate::log::{Effect, Request, Stream};
use crate::map::Pins;

/// Leaves that one unmap record changes at most: an item for each still fits one header block.
const UNMAP_LEAVES: usize = 128;

impl Shard {
    /// Writes `data`, whole blocks and at most [`crate::log::REQUEST_BLOCKS_MAX`] of them, from block `block` of a
    /// layer on. Blocks of zeros are stored as holes.
    ///
    /// # Errors
    /// `NoSpace` in a full pool, `PoolFailed` when too many drives are lost.
    pub(crate) async fn write(&self, layer: LayerId, block: u64, data: &Span) -> Result<()> {
        let count = (data.len() / BLOCK) as u64;
        let pins = self.prepare(layer, block, count).await?;
        let request = write_request(layer, block, data, pins);
        if request.data.is_empty() {
            return self.log.commit(Stream::Trim, request).await.map(|_| ());
        }
        let request = self.admit(layer, block, count, request)?;
        self.log.commit(Stream::User, request).await.map(|_| ())
    }

    /// As [`Shard::write`], for the pool's own blocks: they may use the reserve, so that a full pool can be changed.
    ///
    /// # Errors
    /// As [`Shard::write`], but `NoSpace` only when the reserve is used up too.
    pub(crate) async fn write_meta(&self, layer: LayerId, block: u64, data: &Span) -> Result<()> {
        let pins = self.prepare(layer, block, (data.len() / BLOCK) as u64).await?;
        self.log.commit(Stream::Freeing, write_request(layer, block, data, pins)).await.map(|_| ())
    }

    /// Writes part of a block: `data` at byte `offset` of it.
    ///
    /// # Errors
    /// As [`Shard::write`], and those of reading the block.
    pub(crate) async fn write_part(
        self: &Rc<Self>,
        layer: LayerId,
        block: u64,
        offset: usize,
        data: &Span,
    ) -> Result<()> {
        let _lock = self.locks.lock(layer, block).await;
        // What was queued before the lock must be in the map before the block is read.
        self.log.settle().await;
        let buffer = Buffer::new(BLOCK);
        self.read(layer, block, &buffer.span()).await?;
        let mut buffer = buffer;
        if let Some(place) = buffer.as_mut_slice().get_mut(offset..offset + data.len()) {
            data.copy_to(0, place);
        }
        let pins = self.prepare_unlocked(layer, block, 1).await?;
        let request = self.admit(layer, block, 1, write_request(layer, block, &buffer.span(), pins))?;
        self.log.commit(Stream::User, request).await.map(|_| ())
    }

    /// Makes blocks `block..block + count` of a layer read as zeros and frees what they held.
    ///
    /// # Errors
    /// `PoolFailed` when too many drives are lost; those of reading the map.
    pub(crate) async fn unmap(&self, layer: LayerId, block: u64, count: u64) -> Result<()> {
        self.unmap_as(Stream::Trim, layer, block, count).await
    }

    async fn unmap_as(&self, stream: Stream, layer: LayerId, block: u64, count: u64) -> Result<()> {
        let end = block + count;
        // A share of what may be dirty between two checkpoints, because several may be under way.
        let leaves = (self.ledger.map.borrow().dirty_max() / 16).clamp(1, UNMAP_LEAVES) as u64;
        let most = leaves * format::NODE_ENTRIES as u64;
        let mut next = block;
        while next < end {
            if stream == Stream::Freeing {
                self.check_stopping()?;
            }
            if self.ledger.map.borrow().is_checkpoint_due() {
                self.wait_for_map().await;
            }
            // Long stretches of nothing are passed over without a record.
            let Some(found) = self.walk(|map| map.next_leaf(layer, next, end)).await? else { return Ok(()) };
            let until = end.min((found / most + 1) * most);
            self.unmap_piece(stream, layer, found, until - found).await?;
            next = until;
        }
        Ok(())
    }

    async fn unmap_piece(&self, stream: Stream, layer: LayerId, block: u64, count: u64) -> Result<()> {
        let pins = loop {
            let pins = self.prepare_unmap(layer, block, count).await?;
            if !self.locks.any_held(layer, block, count) {
                break pins;
            }
            self.ledger.unpin(&pins);
            self.locks.wait(layer, block, count).await;
        };
        if pins.is_empty() {
            return Ok(());
        }
        let request = Request {
            items: self.unmap_items(layer, block..block + count, &pins),
            data: SmallVec::new(),
            effect: Effect::Leaves(pins),
            reply: None,
        };
        self.log.commit(stream, request).await.map(|_| ())
    }

    /// Items for the part of a range that is in these leaves, in order. Not for more: a leaf that is made by a write that lands before
    /// them is not changed, and must not be by a replay.
    fn unmap_items(&self, layer: LayerId, range: Range<u64>, pins: &Pins) -> SmallVec<[Item; 1]> {
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
            mode: UnmapMode::Absent,
        };
        runs.into_iter().map(item).collect()
    }

    /// Pins every leaf that exists in a range.
    pub(super) async fn prepare_unmap(&self, layer: LayerId, block: u64, count: u64) -> Result<Pins> {
        let mut pins = Pins::new();
        let walked = self.walk(|map| map.prepare_unmap(layer, block, count, &mut pins)).await;
        if let Err(error) = walked {
            self.ledger.unpin(&pins);
            return Err(error);
        }
        Ok(pins)
    }

    /// Frees everything that a layer holds, and forgets it. Nobody may use the layer any more.
    ///
    /// # Errors
    /// As [`Shard::unmap`].
    pub(crate) async fn drop_layer(&self, layer: LayerId) -> Result<()> {
        self.dying.borrow_mut().insert(layer);
        self.unmap_as(Stream::Freeing, layer, 0, format::limits::LAYER_BLOCKS_MAX).await?;
        // Blocks of it that were being healed when it began to die.
        self.log.settle().await;
        if !self.layers().contains(&layer) {
            return Ok(());
        }
        let request = Request {
            items: SmallVec::from_elem(Item::DropLayer { layer }, 1),
            data: SmallVec::new(),
            effect: Effect::Nothing,
            reply: None,
        };
        self.log.commit(Stream::Freeing, request).await.map(|_| ())
    }

    /// Lets a write into a full pool only if it replaces what is there: that needs no more room than it gives back.
    ///
    /// # Errors
    /// `NoSpace`; the request's pins are taken back then.
    fn admit(&self, layer: LayerId, block: u64, count: u64, request: Request) -> Result<Request> {
        if !self.log.pace.space.is_full() {
            return Ok(request);
        }
        let mut entries = SmallVec::new();
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        // The leaves are pinned, so they are in memory.
        let known = self.ledger.map.borrow_mut().lookup(layer, block, count, &mut entries);
        if known.is_ok() && entries.iter().all(|entry| entry.address().is_some()) {
            return Ok(request);
        }
        if let Effect::Leaves(pins) = &request.effect {
            self.ledger.unpin(pins);
        }
        Err(Error::new(ErrorKind::NoSpace, "the pool is full: delete or trim data, or add a drive"))
    }

    /// Pins the leaves of a range, with no block of it locked. The caller queues its request without waiting for
    /// anything in between.
    async fn prepare(&self, layer: LayerId, block: u64, count: u64) -> Result<Pins> {
        if let Some(pins) = self.prepare_now(layer, block, count) {
            return Ok(pins);
        }
        // On the heap, so that most writes need not have room for it.
        Box::pin(self.prepare_waiting(layer, block, count)).await
    }

    /// As [`Shard::prepare`], if nothing has to be waited for.
    fn prepare_now(&self, layer: LayerId, block: u64, count: u64) -> Option<Pins> {
        let mut map = self.ledger.map.borrow_mut();
        if map.is_checkpoint_due() || self.locks.any_held(layer, block, count) {
            return None;
        }
        map.prepare_write(layer, block, count).ok()
    }

    async fn prepare_waiting(&self, layer: LayerId, block: u64, count: u64) -> Result<Pins> {
        loop {
            let pins = self.prepare_unlocked(layer, block, count).await?;
            if !self.locks.any_held(layer, block, count) {
                return Ok(pins);
            }
            self.ledger.unpin(&pins);
            self.locks.wait(layer, block, count).await;
        }
    }

    pub(super) async fn prepare_unlocked(&self, layer: LayerId, block: u64, count: u64) -> Result<Pins> {
        if self.ledger.map.borrow().is_checkpoint_due() {
            self.wait_for_map().await;
        }
        let found = self.ledger.map.borrow_mut().prepare_write(layer, block, count);
        match found {
            Ok(pins) => Ok(pins),
            Err(_) => self.walk(|map| map.prepare_write(layer, block, count)).await,
        }
    }
}

/// A request that writes `data`, with holes where it is zero.
fn write_request(layer: LayerId, block: u64, data: &Span, pins: Pins) -> Request {
    let mut request =
        Request { items: SmallVec::new(), data: SmallVec::new(), effect: Effect::Leaves(pins), reply: None };
    let zeros: SmallVec<[bool; 8]> = data.peek(|bytes| bytes.chunks_exact(BLOCK).map(is_zero).collect());
    let mut start = 0;
    while let Some(zero) = zeros.get(start).copied() {
        let length = zeros.iter().skip(start).take_while(|next| **next == zero).count();
        let first = LayerBlock::new(block + start as u64);
        if zero {
            let mode = UnmapMode::Absent;
            request.items.push(Item::Unmap { layer, block: first, count: length as u64, mode });
        } else {
            let count = u16::try_from(length).unwrap_or(u16::MAX);
            request.items.push(Item::Write { layer, block: first, count });
            request.data.push(data.slice(start * BLOCK..(start + length) * BLOCK));
        }
        start += length;
    }
    request
}
