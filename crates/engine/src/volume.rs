//! Volumes: byte ranges over the shards.
//!
//! A volume's blocks are striped over the shards in slices ([`crate::slices`]). A request is split
//! at slice boundaries and at the size limit of a log record; the parts run concurrently. A write
//! of up to [`Pool::atomic_write_bytes`] within one slice is atomic with respect to crashes, at any
//! alignment; blocks that it covers partly count as whole.

mod abortable;
mod compare;
mod copy;
mod extents;

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use format::VolumeId;
use format::limits::BLOCK;
use futures_util::future::LocalBoxFuture;
use reactor::{Buffer, Handle, Reactor, Remote, Span};

use crate::error::{Error, ErrorKind, Result};
use crate::invariant::{part, to_index};
use crate::join_all::join_all;
use crate::log::REQUEST_BLOCKS_MAX;
use crate::pool::{Catalogue, Pool, VolumeShared};
use crate::shard::Shard;
use crate::slices::SubRequest;
use crate::volume_uid::VolumeUid;
pub use abortable::Execution;
pub use compare::Comparison;
pub use extents::Extent;

/// The largest sub-request, in bytes.
const PART_MAX: u64 = REQUEST_BLOCKS_MAX as u64 * BLOCK as u64;

/// An open volume. Usable from any thread; for I/O, [`Volume::attach`] it to a reactor.
#[derive(Clone)]
pub struct Volume {
    shared: Arc<VolumeShared>,
    pool: Pool,
}

impl Pool {
    /// Opens a volume by name.
    ///
    /// # Errors
    /// `NotFound`, or `Busy` while the volume is being deleted.
    pub fn open_volume<'a>(&'a self, name: &'a str) -> LocalBoxFuture<'a, Result<Volume>> {
        Box::pin(async move {
            let name = name.to_owned();
            let open = move |catalogue: Rc<Catalogue>| async move { catalogue.open(&name) };
            let shared = self.catalogue().call(open).await??;
            Ok(Volume { shared, pool: self.clone() })
        })
    }
}

impl Volume {
    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// Returns the stable identity within the pool.
    pub fn uid(&self) -> VolumeUid {
        self.shared.uid
    }

    /// Returns the current size in bytes.
    pub fn size(&self) -> u64 {
        self.shared.size.load(Ordering::Acquire)
    }

    /// Returns the sector size in bytes.
    pub fn sector(&self) -> u32 {
        self.shared.sector
    }

    /// True if it is a snapshot, which is read-only.
    pub fn is_snapshot(&self) -> bool {
        self.shared.is_snapshot
    }

    /// Returns the volume's pool.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Returns the reactors that own the volume's blocks, each once, in slice order. Requests
    /// issued there may need no other reactor.
    pub fn reactors(&self) -> Vec<Remote> {
        let mut reactors: Vec<Remote> = Vec::new();
        for shard in self.shared.slices.holders() {
            if let Some(handle) = self.pool.shards().get(shard)
                && !reactors.iter().any(|remote| remote.is_same(handle.remote()))
            {
                reactors.push(handle.remote().clone());
            }
        }
        reactors
    }

    /// Returns the volume for use on the reactor of this thread.
    pub fn attach(&self) -> AttachedVolume {
        let shards = self.pool.shards().iter().map(|handle| match handle.local() {
            Some(shard) => ShardAccess::Local(shard),
            None => ShardAccess::Remote(handle.clone()),
        });
        AttachedVolume { shared: self.shared.clone(), shards: shards.collect(), pool: self.pool.clone() }
    }
}

/// A shard on this reactor or on another one.
enum ShardAccess {
    Local(Rc<Shard>),
    Remote(Handle<Shard>),
}

/// A volume attached to one reactor.
pub struct AttachedVolume {
    shared: Arc<VolumeShared>,
    shards: Vec<ShardAccess>,
    pool: Pool,
}

impl AttachedVolume {
    /// Returns the current size in bytes.
    pub fn size(&self) -> u64 {
        self.shared.size.load(Ordering::Acquire)
    }

    /// Returns the sector size in bytes.
    pub fn sector(&self) -> u32 {
        self.shared.sector
    }

    /// Returns the size in bytes up to which a write within one slice is atomic: see
    /// [`Pool::atomic_write_bytes`].
    pub fn atomic_write_bytes(&self) -> u64 {
        self.pool.atomic_write_bytes()
    }

    /// Fills `into` with the bytes from `offset` on. Offset and length are whole sectors.
    ///
    /// # Errors
    /// `Invalid` beyond the end; `Corrupt` if a block cannot be read. The contents of `into` are
    /// unspecified after an error.
    pub async fn read(&self, offset: u64, into: &Span) -> Result<()> {
        self.check(offset, into.len() as u64)?;
        if self.shared.rate_limiter.is_limited() {
            self.wait_for_limits(into.len() as u64).await;
            // The volume may have been shrunk or deleted in the meantime (F5).
            self.check(offset, into.len() as u64)?;
        }
        if into.len() == BLOCK && offset.is_multiple_of(BLOCK as u64) {
            let (shard, block) = self.shared.slices.locate(offset / BLOCK as u64);
            return match self.shard(shard)? {
                ShardAccess::Local(shard) => shard.read_block(self.shared.id, block, into).await,
                ShardAccess::Remote(handle) => self.read_remote_block(handle, block, into).await,
            };
        }
        // Boxed, which keeps the future of the most frequent read small.
        if !is_aligned(offset, into.len()) {
            return self.read_unaligned(offset, into).await;
        }
        self.read_aligned(offset, into).await
    }

    /// Hints that the block at `offset` will be accessed soon: prefetches its map entry into the
    /// CPU cache.
    pub fn prefetch_entry(&self, offset: u64) {
        self.with_block(offset, |shard, volume, block| shard.prefetch_entry(volume, block));
    }

    /// Runs `step` with the block at `offset` if it belongs to a shard of this reactor.
    fn with_block(&self, offset: u64, step: impl FnOnce(&Shard, VolumeId, u64)) {
        let (shard, block) = self.shared.slices.locate(offset / BLOCK as u64);
        if let Some(ShardAccess::Local(shard)) = self.shards.get(shard) {
            step(shard, self.shared.id, block);
        }
    }

    /// Waits until the rate limits admit `bytes` more bytes.
    fn wait_for_limits(&self, bytes: u64) -> LocalBoxFuture<'_, ()> {
        Box::pin(async move {
            let reactor = Reactor::current();
            let wait = self.shared.rate_limiter.delay(bytes, reactor.now().as_nanos());
            if !wait.is_zero() {
                reactor.sleep(wait).await;
            }
        })
    }

    /// Reads one block on another reactor, with a small task because one is created for each block.
    fn read_remote_block<'a>(
        &'a self,
        handle: &'a Handle<Shard>,
        block: u64,
        into: &'a Span,
    ) -> LocalBoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let (volume, into) = (self.shared.id, into.clone());
            handle.call(move |shard| async move { shard.read_block(volume, block, &into).await }).await?
        })
    }

    fn read_aligned<'a>(&'a self, offset: u64, into: &'a Span) -> LocalBoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let parts =
                self.shared.slices.split(offset / BLOCK as u64, into.len() as u64 / BLOCK as u64, PART_MAX);
            match parts.as_slice() {
                [only] => self.read_part(*only, into.clone()).await,
                _ => join_all(parts.iter().map(|part| self.read_part(*part, part.slice_of(into)))).await,
            }
        })
    }

    /// Reads the enclosing blocks and copies the requested bytes.
    fn read_unaligned<'a>(&'a self, offset: u64, into: &'a Span) -> LocalBoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let start = offset - offset % BLOCK as u64;
            let end = (offset + into.len() as u64).next_multiple_of(BLOCK as u64);
            let around = Buffer::new(to_index(end - start));
            self.read_aligned(start, &around.span()).await?;
            let skip = to_index(offset - start);
            into.copy_from(0, part(around.as_slice(), skip..skip + into.len(), "R1"));
            Ok(())
        })
    }

    async fn read_part(&self, part: SubRequest, into: Span) -> Result<()> {
        let volume = self.shared.id;
        match self.shard(part.shard)? {
            ShardAccess::Local(shard) => shard.read(volume, part.block, &into).await,
            ShardAccess::Remote(handle) => {
                handle.call(move |shard| async move { shard.read(volume, part.block, &into).await }).await?
            }
        }
    }

    /// Writes `data` from `offset` on. Offset and length are whole sectors. Durable after a later
    /// [`Self::flush`].
    ///
    /// # Errors
    /// `Invalid` beyond the end; `NoSpace` in a full pool; `PoolFailed` when too many drives have
    /// failed.
    pub async fn write(&self, offset: u64, data: &Span) -> Result<()> {
        self.check_write(offset, data.len() as u64)?;
        if self.shared.rate_limiter.is_limited() {
            self.wait_for_limits(data.len() as u64).await;
            self.check_write(offset, data.len() as u64)?;
        }
        if !is_aligned(offset, data.len()) {
            return self.write_unaligned(offset, data).await;
        }
        if data.len() == BLOCK {
            let (shard, block) = self.shared.slices.locate(offset / BLOCK as u64);
            if let ShardAccess::Local(shard) = self.shard(shard)? {
                return shard.write(self.shared.id, block, data).await;
            }
        }
        self.write_aligned(offset, data).await
    }

    fn write_aligned<'a>(&'a self, offset: u64, data: &'a Span) -> LocalBoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let parts =
                self.shared.slices.split(offset / BLOCK as u64, data.len() as u64 / BLOCK as u64, PART_MAX);
            match parts.as_slice() {
                [only] => self.write_part(*only, data.clone()).await,
                _ => join_all(parts.iter().map(|part| self.write_part(*part, part.slice_of(data)))).await,
            }
        })
    }

    async fn write_part(&self, part: SubRequest, data: Span) -> Result<()> {
        let volume = self.shared.id;
        match self.shard(part.shard)? {
            ShardAccess::Local(shard) => shard.write(volume, part.block, &data).await,
            ShardAccess::Remote(handle) => {
                handle.call(move |shard| async move { shard.write(volume, part.block, &data).await }).await?
            }
        }
    }

    /// Writes a range that begins or ends within a block. Each sub-request is one request of a
    /// shard, including its partial blocks.
    fn write_unaligned<'a>(&'a self, offset: u64, data: &'a Span) -> LocalBoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let end = offset + data.len() as u64;
            let first = offset / BLOCK as u64;
            let parts = self.shared.slices.split(first, end.div_ceil(BLOCK as u64) - first, PART_MAX);
            join_all(parts.iter().map(|part| {
                let start = first * BLOCK as u64 + part.offset;
                let (from, to) = (offset.max(start), end.min(start + part.blocks * BLOCK as u64));
                let bytes = data.slice(to_index(from - offset)..to_index(to - offset));
                self.write_bytes(*part, to_index(from - start), bytes)
            }))
            .await
        })
    }

    async fn write_bytes(&self, part: SubRequest, within: usize, data: Span) -> Result<()> {
        let (volume, block) = (self.shared.id, part.block);
        match self.shard(part.shard)? {
            ShardAccess::Local(shard) => shard.write_bytes(volume, block, within, &data).await,
            ShardAccess::Remote(handle) => {
                let write = move |shard: Rc<Shard>| async move {
                    shard.write_bytes(volume, block, within, &data).await
                };
                handle.call(write).await?
            }
        }
    }

    /// Zeroes the range and frees its blocks. Offset and length are whole sectors.
    ///
    /// # Errors
    /// `Invalid` beyond the end; `PoolFailed` when too many drives have failed; `NoSpace` in a full
    /// pool if the zeros would hide blocks of a snapshot.
    pub fn write_zeroes(&self, offset: u64, length: u64) -> LocalBoxFuture<'_, Result<()>> {
        Box::pin(async move {
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
                    ShardAccess::Local(shard) => shard.unmap(volume, from, to - from).await?,
                    ShardAccess::Remote(handle) => {
                        handle
                            .call(move |shard| async move { shard.unmap(volume, from, to - from).await })
                            .await??;
                    }
                }
            }
            self.zero_bytes(end, offset + length - end).await
        })
    }

    /// Zeroes a range that contains no whole block, by a write of zeros.
    async fn zero_bytes(&self, offset: u64, length: u64) -> Result<()> {
        if length == 0 {
            return Ok(());
        }
        let zeros = Buffer::zeroed(to_index(length));
        self.write_unaligned(offset, &zeros.span()).await
    }

    /// Discards the range: whole blocks in it are freed and read as zeros, partial blocks keep
    /// their bytes.
    ///
    /// # Errors
    /// As [`Self::write_zeroes`].
    pub fn discard(&self, offset: u64, length: u64) -> LocalBoxFuture<'_, Result<()>> {
        Box::pin(async move {
            self.check_write(offset, length)?;
            let (first, end) =
                (offset.next_multiple_of(BLOCK as u64), (offset + length) / BLOCK as u64 * BLOCK as u64);
            if first >= end {
                return Ok(());
            }
            self.write_zeroes(first, end - first).await
        })
    }

    /// Makes every acknowledged write durable.
    ///
    /// # Errors
    /// When the pool has failed: writes that were not flushed before may be lost.
    pub fn flush(&self) -> LocalBoxFuture<'_, Result<()>> {
        Box::pin(async move {
            join_all(self.shared.slices.holders().map(|shard| async move {
                match self.shard(shard)? {
                    ShardAccess::Local(shard) => shard.flush().await,
                    ShardAccess::Remote(handle) => {
                        handle.call(|shard| async move { shard.flush().await }).await?
                    }
                }
            }))
            .await
        })
    }

    fn shard(&self, index: usize) -> Result<&ShardAccess> {
        self.shards.get(index).ok_or_else(|| Error::new(ErrorKind::Closed, "the pool was closed"))
    }

    fn check(&self, offset: u64, length: u64) -> Result<()> {
        if self.shared.deleted.load(Ordering::Acquire) {
            return Err(Error::new(ErrorKind::Closed, "the volume was deleted"));
        }
        let size = self.size();
        if offset.checked_add(length).is_none_or(|end| end > size) {
            let message =
                format!("bytes {offset} to {offset}+{length} are beyond the end of the volume at {size}");
            return Err(Error::new(ErrorKind::Invalid, message));
        }
        Ok(())
    }

    fn check_write(&self, offset: u64, length: u64) -> Result<()> {
        if self.shared.is_snapshot {
            return Err(Error::new(ErrorKind::ReadOnly, "a snapshot is read-only"));
        }
        self.check(offset, length)
    }
}

fn is_aligned(offset: u64, length: usize) -> bool {
    offset.is_multiple_of(BLOCK as u64) && length.is_multiple_of(BLOCK)
}

#[cfg(test)]
#[path = "volume_tests.rs"]
mod tests;
