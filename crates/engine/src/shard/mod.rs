//! A shard: a share-nothing slice of the pool, with its own log and map, on one reactor.
//!
//! Owns what the parts are wired to, and the operations on blocks: read, write, unmap, flush. Its parts own their
//! state ([`Log`], [`Ledger`], [`RowReader`]); the files here are the flows through them.
//!
//! Must not know: volumes and their names, frontends, threads.

mod checkpoint;
mod clean;

mod active_layers;
mod clean_for_others;
mod compact;
mod drives_behind;
mod headers;
mod heal;
mod layer_usage;
mod locks;
mod lost;
mod merge;
mod read;
mod rebuild;
mod repair;
mod replay;
mod salvage;
mod scan;
mod scrub;
mod start;
mod tables;
mod verify;
mod walk;
mod write;

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;

use format::{DriveIndex, LayerId, VolumeId};
use reactor::{Drive, WaitList};
use smallvec::SmallVec;

pub(crate) use layer_usage::{Ancestor, Child, LayerNeighbours};
pub(crate) use repair::Completeness;
pub(crate) use salvage::{
    BlockState, LayerChain, LostPart, LostPartKind, Probe, Purpose, SalvageShard, StateRun,
};
pub(crate) use start::{Candidate, Examination, ShardPlan};
pub(crate) use verify::{LostCells, verify_shard};

use crate::control::ControlLink;
use crate::error::{Error, Result};
use crate::fair::{FairScheduler, Permit};
use crate::geometry::Geometry;
use crate::ledger::Ledger;
use crate::log::{Identity, Log, LogCounters};
use crate::repair::{BackgroundLimiter, ClientOp};
use crate::row_reader::RowReader;
use crate::scrub::Scrub;
use crate::segments::FillHistogram;
use crate::volume::ShardExtents;

/// Blocks that a leaf of the map covers.
const LEAF_BLOCKS: u64 = format::NODE_ENTRIES as u64;

/// See the module.
pub(crate) struct Shard {
    identity: Identity,
    geometry: Geometry,
    log: Rc<Log>,
    ledger: Rc<Ledger>,
    rows: Rc<RowReader>,
    link: ControlLink,
    locks: locks::BlockLocks,
    tables: tables::StoredTables,
    heal: heal::Healer,
    lost: lost::LostBlocks,
    compaction: compact::Compaction,
    repair: repair::Repairer,
    repair_limits: Arc<BackgroundLimiter>,
    scrubber: scrub::Scrubber,
    scrub: Arc<Scrub>,
    /// Layers that are being dropped, or were.
    dying: RefCell<BTreeSet<LayerId>>,
    checkpoints: Cell<u64>,
    /// Those and the ones that could not be made.
    checkpoints_ended: Cell<u64>,
    /// Those for which nothing was left.
    checkpoints_refused: Cell<u64>,
    checkpointed: WaitList,
    /// Reads of volumes, and their writes, when several want to.
    reads: Rc<FairScheduler>,
    writes: Rc<FairScheduler>,
    tops: active_layers::ActiveLayers,
    /// Nodes are not pinned any more.
    unpinned: WaitList,
    /// Segments in which nothing lives but nodes and tables that the next checkpoint stores elsewhere.
    emptied_by_checkpoint: Cell<usize>,
    /// What cleaning has gained that no checkpoint was asked for yet, in segments.
    gained: Cell<f32>,
    stopping: Cell<bool>,
    /// Tasks beside the log's that have not ended.
    tasks: Cell<usize>,
    tasks_ended: WaitList,
}

/// What a shard counted since it was started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShardCounters {
    /// Blocks written.
    pub log: LogCounters,
    /// Checkpoints done.
    pub checkpoints: u64,
    /// Those that could not be made because nothing was left for them: what is kept back for them should have done (S4).
    pub checkpoints_refused: u64,
    /// Map nodes in memory, of 4 KiB.
    pub map_nodes: u64,
    /// Those that differ from what is stored.
    pub dirty_nodes: u64,
    /// Blocks that other columns had to give back although their own drive is in use.
    pub repaired_blocks: u64,
    /// Sealed segments by fullness.
    pub segments: FillHistogram,
}

impl Shard {
    /// A drive is lost, as the superblocks say by now: takes it out of use, and has them say from where on segments miss it.
    ///
    /// # Errors
    /// When that cannot be published.
    pub(crate) async fn detach_drive(&self, drive: DriveIndex) -> Result<()> {
        if !self.rows.drives.is_online(drive) {
            return Ok(());
        }
        self.rows.drives.take_offline(drive);
        self.reset_repair();
        let concerned = self.rows.segments.borrow_mut().drive_lost(drive);
        self.mark_durable_without_flush();
        tracing::warn!(shard = %self.identity.shard, %drive, concerned, "a drive was taken out of use");
        self.request_repair();
        self.link.publish(self.log.shard_record()).await
    }

    /// Waits until a volume may read, where others want to as well.
    async fn permit_to_read(&self, volume: VolumeId, blocks: usize) -> Permit {
        self.writes.note_active(volume);
        match self.reads.try_acquire(volume, blocks) {
            Some(permit) => permit,
            // On the heap, as it is rare.
            None => Box::pin(self.reads.acquire(volume, blocks)).await,
        }
    }

    /// Waits until a volume may write.
    async fn permit_to_write(&self, volume: VolumeId, blocks: usize) -> Permit {
        self.reads.note_active(volume);
        match self.writes.try_acquire(volume, blocks) {
            Some(permit) => permit,
            None => Box::pin(self.writes.acquire(volume, blocks)).await,
        }
    }

    /// A drive joins the pool, as the superblocks say by now: from here on it is read and written.
    pub(crate) fn attach_drive(&self, index: DriveIndex, drive: Rc<dyn Drive>) {
        self.rows.drives.join(index, drive);
        self.reset_repair();
        tracing::debug!(shard = %self.identity.shard, drive = %index, "a drive joins");
    }

    /// A lost drive is to come back that holds an old copy of itself: takes all of its columns as missing, durably.
    ///
    /// # Errors
    /// When no checkpoint can be made.
    pub(crate) async fn invalidate_drive(self: &Rc<Self>, drive: DriveIndex) -> Result<()> {
        assert!(!self.rows.drives.is_online(drive), "D1: drive {drive} is in use");
        self.rows.segments.borrow_mut().invalidate_drive(drive);
        self.checkpoint_now().await
    }

    /// A drive belongs to the pool no more, and nothing lies on it.
    pub(crate) fn remove_drive(&self, index: DriveIndex) {
        self.rows.drives.take_offline(index);
        self.mark_durable_without_flush();
    }

    /// A drive has gone. If it was the last one that had to be flushed, what has landed is durable: no flush will say so.
    fn mark_durable_without_flush(&self) {
        if self.rows.drives.all_durable() {
            let mut segments = self.rows.segments.borrow_mut();
            let landed = segments.flush_mark();
            segments.flushed(&landed);
        }
    }

    /// The pool has failed: nothing is written any more.
    pub(crate) fn fail(&self, error: &Error) {
        self.log.fail(error);
        self.checkpointed.wake_all();
        self.wake_held_writes();
        self.wake_scrub();
    }

    /// Zones were given back to the pool: who waits for space may look again.
    pub(crate) fn space_freed(&self) {
        self.log.space_freed();
        self.retry_repair_for_space();
    }

    /// Makes every write that was answered by now durable.
    ///
    /// # Errors
    /// When the pool has failed.
    pub(crate) async fn flush(&self) -> Result<()> {
        self.log.flush().await
    }

    /// Waits until everything queued by now has been answered.
    pub(crate) async fn settle(&self) {
        self.log.settle().await;
    }

    /// Makes a checkpoint now.
    ///
    /// # Errors
    /// When it cannot be written; the last one stands.
    pub(crate) async fn checkpoint_now(self: &Rc<Self>) -> Result<()> {
        self.check_stopping()?;
        self.checkpoint(None).await
    }

    /// The first block from `from` on, below `end`, that a layer stores.
    ///
    /// # Errors
    /// Those of reading the map.
    pub(crate) async fn next_stored(&self, layer: LayerId, from: u64, end: u64) -> Result<Option<u64>> {
        let mut next = from;
        while let Some(found) = self.walk(|map| map.next_leaf(layer, next, end)).await? {
            let until = end.min((found / LEAF_BLOCKS + 1) * LEAF_BLOCKS);
            let mut entries = SmallVec::new();
            let count = usize::try_from(until - found).unwrap_or(usize::MAX);
            self.walk(|map| map.lookup(layer, found, count, &mut entries)).await?;
            if let Some(at) = entries.iter().position(|entry| entry.address().is_some()) {
                return Ok(Some(found + at as u64));
            }
            next = until;
        }
        Ok(None)
    }

    /// What of a range is stored, and where behind it, below `end`, something may be.
    ///
    /// # Errors
    /// Those of reading the map.
    pub(crate) async fn extents(
        &self,
        volume: VolumeId,
        (block, blocks): (u64, u64),
        end: u64,
    ) -> Result<ShardExtents> {
        let layer = self.layer_of(volume)?;
        let mut entries = SmallVec::new();
        let count = usize::try_from(blocks).unwrap_or(usize::MAX);
        self.walk_chain((layer, block, count), |map| map.lookup_through(layer, block, count, &mut entries))
            .await?;
        let mut extents: Vec<(u64, bool)> = Vec::new();
        for stored in entries.iter().map(|entry| entry.address().is_some()) {
            match extents.last_mut() {
                Some((length, of)) if *of == stored => *length += 1,
                _ => extents.push((1, stored)),
            }
        }
        let next = self.next_leaf_through(layer, block + blocks, end).await?;
        Ok(ShardExtents { extents, next })
    }

    /// What it counted.
    pub(crate) fn counters(&self) -> ShardCounters {
        let map = self.ledger.map.borrow();
        ShardCounters {
            log: self.log.counters.get(),
            checkpoints: self.checkpoints.get(),
            checkpoints_refused: self.checkpoints_refused.get(),
            map_nodes: map.node_count() as u64,
            dirty_nodes: map.dirty_count() as u64,
            repaired_blocks: self.rows.repaired.get(),
            segments: self.rows.segments.borrow().fill_histogram(),
        }
    }

    /// Blocks that a layer stores in this shard.
    pub(crate) fn stored(&self, layer: LayerId) -> u64 {
        self.ledger.map.borrow().stored(layer)
    }

    /// The highest number of a layer that this shard knows of.
    pub(crate) fn last_layer(&self) -> Option<LayerId> {
        self.ledger.map.borrow().last_layer()
    }

    /// The layers that exist in this shard.
    pub(crate) fn layers(&self) -> Vec<LayerId> {
        self.ledger.map.borrow().layer_ids()
    }

    /// A user begins to read or write.
    fn note_use(&self) -> Option<ClientOp<'_>> {
        self.repair_limits.track_client_op(self.identity.shard.index())
    }

    /// Tells the control of reads that drives did not answer as they should, until the shard stops. One task a shard.
    async fn report_read_errors(self: Rc<Self>) {
        while !self.stopping.get() {
            let reads = self.rows.drives.bad_reads.take_pending().await;
            if !reads.is_empty() {
                self.link.record_bad_reads(reads).await;
            }
        }
    }

    /// Reports drives that said they are gone while they were read.
    async fn report_gone_drives(&self) {
        let gone = std::mem::take(&mut *self.rows.gone_drives.borrow_mut());
        for (drive, error) in gone {
            if self.rows.drives.is_current(drive)
                && let Err(error) = self.link.drive_failed(drive.index, "a read found it gone", error).await
            {
                self.fail(&error);
            }
        }
    }
}
