//! Volumes: byte ranges over the shards.
//!
//! A volume's blocks are dealt out to the shards ([`Slices`]). A request is cut at slice borders and at what one record takes;
//! the pieces run side by side. A write that touches up to [`Pool::atomic_write_bytes`] of blocks within one slice is there
//! whole after a crash, or not at all, wherever in its blocks it begins and ends.

mod compare;
mod copy;
mod extents;
mod slices;
mod uid;

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;

use format::VolumeId;
use format::limits::BLOCK;
use reactor::{Buffer, Home, Reactor, Remote, Span};

use crate::error::{Error, ErrorKind, Result};
use crate::log::REQUEST_BLOCKS_MAX;
use crate::pool::{Pool, VolumeShared};
use crate::shard::Shard;
pub use compare::Comparison;
pub use extents::Extent;
pub(crate) use extents::Stored;
use slices::Piece;
pub(crate) use slices::Slices;
pub use uid::VolumeUid;

/// Bytes of the largest piece that goes to a shard at once.
const PIECE: u64 = REQUEST_BLOCKS_MAX as u64 * BLOCK as u64;

/// A volume that is open. Usable from any thread; for input and output, [`Volume::attach`] it to a reactor.
#[derive(Clone)]
pub struct Volume {
    shared: Arc<VolumeShared>,
    pool: Pool,
}

impl Volume {
    pub(crate) fn new(shared: Arc<VolumeShared>, pool: Pool) -> Self {
        Self { shared, pool }
    }

    /// Name.
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// The stable identity within the pool.
    pub fn uid(&self) -> VolumeUid {
        self.shared.uid
    }

    /// Size in bytes, now.
    pub fn size(&self) -> u64 {
        self.shared.size.load(Ordering::Acquire)
    }

    /// Sector size that it offers, in bytes.
    pub fn sector(&self) -> u32 {
        self.shared.sector
    }

    /// True if it is a snapshot, which is read and never written.
    pub fn is_snapshot(&self) -> bool {
        self.shared.is_snapshot
    }

    /// The pool that it belongs to.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// The reactors that its blocks are on, each once, in the order of its slices: requests that come up there need not go to another.
    pub fn reactors(&self) -> Vec<Remote> {
        let mut found: Vec<Remote> = Vec::new();
        for shard in self.shared.slices.holders() {
            if let Some(home) = self.pool.shards().get(shard)
                && !found.iter().any(|remote| remote.is_same(home.remote()))
            {
                found.push(home.remote().clone());
            }
        }
        found
    }

    /// The volume for the reactor that runs on this thread.
    pub fn attach(&self) -> AttachedVolume {
        let shards = self.pool.shards().iter().map(|home| match home.local() {
            Some(shard) => ShardAccess::Here(shard),
            None => ShardAccess::There(home.clone()),
        });
        AttachedVolume { shared: self.shared.clone(), shards: shards.collect(), pool: self.pool.clone() }
    }
}

enum ShardAccess {
    Here(Rc<Shard>),
    There(Home<Shard>),
}

/// A volume as one reactor uses it.
pub struct AttachedVolume {
    shared: Arc<VolumeShared>,
    shards: Vec<ShardAccess>,
    pool: Pool,
}

impl AttachedVolume {
    /// Size in bytes, now.
    pub fn size(&self) -> u64 {
        self.shared.size.load(Ordering::Acquire)
    }

    /// Sector size that it offers, in bytes.
    pub fn sector(&self) -> u32 {
        self.shared.sector
    }

    /// Fills `into` with the bytes from `offset` on. Offset and length are whole sectors.
    ///
    /// # Errors
    /// `Invalid` beyond the end; `Corrupt` for what cannot be read; nothing is known of `into` then.
    pub async fn read(&self, offset: u64, into: &Span) -> Result<()> {
        self.check(offset, into.len() as u64)?;
        if self.shared.rate_limiter.is_limited() {
            Box::pin(self.wait_for_limits(into.len() as u64)).await;
            // The volume may have become smaller, or have been deleted (F5).
            self.check(offset, into.len() as u64)?;
        }
        if into.len() == BLOCK && offset.is_multiple_of(BLOCK as u64) {
            let (shard, block) = self.shared.slices.place(offset / BLOCK as u64);
            return match self.shard(shard)? {
                ShardAccess::Here(shard) => shard.read_block(self.shared.id, block, into).await,
                ShardAccess::There(home) => Box::pin(self.read_one_there(home, block, into)).await,
            };
        }
        // On the heap, so that the commonest read need not have room for the others.
        if !is_aligned(offset, into.len()) {
            return Box::pin(self.read_unaligned(offset, into)).await;
        }
        Box::pin(self.read_aligned(offset, into)).await
    }

    /// What lies at `offset` will be read or written soon: a hint, which costs little and finds what has to be waited for.
    pub fn expect(&self, offset: u64) {
        self.with_block(offset, |shard, volume, block| shard.expect(volume, block));
    }

    /// What lies at `offset` will be read next: a hint, as [`Self::expect`].
    pub fn expect_read(&self, offset: u64) {
        self.with_block(offset, |shard, volume, block| shard.expect_read(volume, block));
    }

    /// Runs `step` with the block at `offset` if it belongs to a shard of this reactor.
    fn with_block(&self, offset: u64, step: impl FnOnce(&Shard, VolumeId, u64)) {
        let (shard, block) = self.shared.slices.place(offset / BLOCK as u64);
        if let Some(ShardAccess::Here(shard)) = self.shards.get(shard) {
            step(shard, self.shared.id, block);
        }
    }

    /// Waits until the volume may take this much more.
    async fn wait_for_limits(&self, bytes: u64) {
        let reactor = Reactor::current();
        let wait = self.shared.rate_limiter.delay(bytes, reactor.now().as_nanos());
        if !wait.is_zero() {
            reactor.sleep(wait).await;
        }
    }

    /// As small a task there as it can be: it is made and dropped with every block.
    async fn read_one_there(&self, home: &Home<Shard>, block: u64, into: &Span) -> Result<()> {
        let (volume, into) = (self.shared.id, into.clone());
        home.call(move |shard| async move { shard.read_block(volume, block, &into).await }).await?
    }

    async fn read_aligned(&self, offset: u64, into: &Span) -> Result<()> {
        let pieces = self.shared.slices.cut(offset / BLOCK as u64, into.len() as u64 / BLOCK as u64, PIECE);
        match pieces.as_slice() {
            [only] => self.read_piece(*only, into.clone()).await,
            _ => all(pieces.iter().map(|piece| self.read_piece(*piece, piece.part(into)))).await,
        }
    }

    /// Reads the blocks around, and copies what was asked for.
    async fn read_unaligned(&self, offset: u64, into: &Span) -> Result<()> {
        let start = offset - offset % BLOCK as u64;
        let end = (offset + into.len() as u64).next_multiple_of(BLOCK as u64);
        let around = Buffer::new(usize::try_from(end - start).unwrap_or(usize::MAX));
        self.read_aligned(start, &around.span()).await?;
        let skip = usize::try_from(offset - start).unwrap_or(usize::MAX);
        into.copy_from(0, around.as_slice().get(skip..skip + into.len()).unwrap_or(&[]));
        Ok(())
    }

    async fn read_piece(&self, piece: Piece, into: Span) -> Result<()> {
        let volume = self.shared.id;
        match self.shard(piece.shard)? {
            ShardAccess::Here(shard) => shard.read(volume, piece.block, &into).await,
            ShardAccess::There(home) => {
                home.call(move |shard| async move { shard.read(volume, piece.block, &into).await }).await?
            }
        }
    }

    /// Writes `data` from `offset` on. Offset and length are whole sectors. Durable after a later [`Self::flush`].
    ///
    /// # Errors
    /// `Invalid` beyond the end; `NoSpace` in a full pool; `PoolFailed` when too many drives are lost.
    pub async fn write(&self, offset: u64, data: &Span) -> Result<()> {
        self.check_write(offset, data.len() as u64)?;
        if self.shared.rate_limiter.is_limited() {
            Box::pin(self.wait_for_limits(data.len() as u64)).await;
            self.check_write(offset, data.len() as u64)?;
        }
        if !is_aligned(offset, data.len()) {
            // On the heap, as in `read`.
            return Box::pin(self.write_unaligned(offset, data)).await;
        }
        if data.len() == BLOCK {
            let (shard, block) = self.shared.slices.place(offset / BLOCK as u64);
            if let ShardAccess::Here(shard) = self.shard(shard)? {
                return shard.write(self.shared.id, block, data).await;
            }
        }
        Box::pin(self.write_aligned(offset, data)).await
    }

    async fn write_aligned(&self, offset: u64, data: &Span) -> Result<()> {
        let pieces = self.shared.slices.cut(offset / BLOCK as u64, data.len() as u64 / BLOCK as u64, PIECE);
        match pieces.as_slice() {
            [only] => self.write_piece(*only, data.clone()).await,
            _ => all(pieces.iter().map(|piece| self.write_piece(*piece, piece.part(data)))).await,
        }
    }

    async fn write_piece(&self, piece: Piece, data: Span) -> Result<()> {
        let volume = self.shared.id;
        match self.shard(piece.shard)? {
            ShardAccess::Here(shard) => shard.write(volume, piece.block, &data).await,
            ShardAccess::There(home) => {
                home.call(move |shard| async move { shard.write(volume, piece.block, &data).await }).await?
            }
        }
    }

    /// A write that begins or ends within a block. Each piece is one request, its partial blocks included.
    async fn write_unaligned(&self, offset: u64, data: &Span) -> Result<()> {
        let end = offset + data.len() as u64;
        let first = offset / BLOCK as u64;
        let pieces = self.shared.slices.cut(first, end.div_ceil(BLOCK as u64) - first, PIECE);
        all(pieces.iter().map(|piece| {
            let start = first * BLOCK as u64 + piece.at;
            let (from, to) = (offset.max(start), end.min(start + piece.blocks * BLOCK as u64));
            let index = |byte: u64| usize::try_from(byte).unwrap_or(usize::MAX);
            let bytes = data.slice(index(from - offset)..index(to - offset));
            self.write_bytes(*piece, index(from - start), bytes)
        }))
        .await
    }

    async fn write_bytes(&self, piece: Piece, within: usize, data: Span) -> Result<()> {
        let (volume, block) = (self.shared.id, piece.block);
        match self.shard(piece.shard)? {
            ShardAccess::Here(shard) => shard.write_bytes(volume, block, within, &data).await,
            ShardAccess::There(home) => {
                let write = move |shard: Rc<Shard>| async move {
                    shard.write_bytes(volume, block, within, &data).await
                };
                home.call(write).await?
            }
        }
    }

    /// Makes the range read as zeros and frees what it held. Offset and length are whole sectors.
    ///
    /// # Errors
    /// `Invalid` beyond the end; `PoolFailed` when too many drives are lost.
    pub async fn write_zeroes(&self, offset: u64, length: u64) -> Result<()> {
        self.check_write(offset, length)?;
        let (first, end) =
            (offset.next_multiple_of(BLOCK as u64), (offset + length) / BLOCK as u64 * BLOCK as u64);
        if first >= end {
            return self.zero_bytes(offset, length).await;
        }
        self.zero_bytes(offset, first - offset).await?;
        let blocks = (end - first) / BLOCK as u64;
        for (index, shard) in self.shards.iter().enumerate() {
            let block = first / BLOCK as u64;
            let (from, to) = (
                self.shared.slices.local_bound(index, block),
                self.shared.slices.local_bound(index, block + blocks),
            );
            if from >= to {
                continue;
            }
            let volume = self.shared.id;
            match shard {
                ShardAccess::Here(shard) => shard.unmap(volume, from, to - from).await?,
                ShardAccess::There(home) => {
                    home.call(move |shard| async move { shard.unmap(volume, from, to - from).await })
                        .await??;
                }
            }
        }
        self.zero_bytes(end, offset + length - end).await
    }

    /// Zeroes a range smaller than a block, within one block or over a border.
    async fn zero_bytes(&self, offset: u64, length: u64) -> Result<()> {
        if length == 0 {
            return Ok(());
        }
        let zeros = Buffer::zeroed(usize::try_from(length).unwrap_or(usize::MAX));
        self.write_unaligned(offset, &zeros.span()).await
    }

    /// Tells that the range is no longer wanted: whole blocks in it are freed and read as zeros, partial ones keep
    /// their bytes.
    ///
    /// # Errors
    /// As [`Self::write_zeroes`].
    pub async fn discard(&self, offset: u64, length: u64) -> Result<()> {
        self.check_write(offset, length)?;
        let (first, end) =
            (offset.next_multiple_of(BLOCK as u64), (offset + length) / BLOCK as u64 * BLOCK as u64);
        if first >= end {
            return Ok(());
        }
        self.write_zeroes(first, end - first).await
    }

    /// Makes every write that was answered by now durable.
    ///
    /// # Errors
    /// When the pool has failed: what was not flushed before may be lost.
    pub async fn flush(&self) -> Result<()> {
        all(self.shared.slices.holders().map(|shard| async move {
            match self.shard(shard)? {
                ShardAccess::Here(shard) => shard.flush().await,
                ShardAccess::There(home) => home.call(|shard| async move { shard.flush().await }).await?,
            }
        }))
        .await
    }

    fn shard(&self, index: usize) -> Result<&ShardAccess> {
        self.shards.get(index).ok_or_else(|| Error::new(ErrorKind::Closed, "the pool was closed"))
    }

    fn check(&self, offset: u64, length: u64) -> Result<()> {
        if self.shared.gone.load(Ordering::Acquire) {
            return Err(Error::new(ErrorKind::Closed, "the volume was deleted"));
        }
        let size = self.size();
        if offset.checked_add(length).is_none_or(|end| end > size) {
            let message =
                format!("bytes {offset} to {offset}+{length} lie beyond the volume's end at {size}");
            return Err(Error::new(ErrorKind::Invalid, message));
        }
        Ok(())
    }

    fn check_write(&self, offset: u64, length: u64) -> Result<()> {
        if self.shared.is_snapshot {
            return Err(Error::new(ErrorKind::ReadOnly, "a snapshot is never written"));
        }
        self.check(offset, length)
    }
}

fn is_aligned(offset: u64, length: usize) -> bool {
    offset.is_multiple_of(BLOCK as u64) && length.is_multiple_of(BLOCK)
}

/// Runs futures side by side; gives the first error, after all have ended.
pub(crate) async fn all<F: Future<Output = Result<()>>>(futures: impl Iterator<Item = F>) -> Result<()> {
    let mut running: Vec<Option<Pin<Box<F>>>> = futures.map(|future| Some(Box::pin(future))).collect();
    let mut result = Ok(());
    std::future::poll_fn(|context| {
        let mut left = false;
        for place in &mut running {
            let Some(future) = place else { continue };
            match future.as_mut().poll(context) {
                Poll::Ready(ended) => {
                    if result.is_ok() {
                        result = ended;
                    }
                    *place = None;
                }
                Poll::Pending => left = true,
            }
        }
        if left { Poll::Pending } else { Poll::Ready(()) }
    })
    .await;
    result
}

#[cfg(test)]
#[path = "volume_tests.rs"]
mod tests;
