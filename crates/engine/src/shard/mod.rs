//! A shard: a share-nothing slice of the pool, with its own log and map, on one reactor.
//!
//! Owns the wiring of its parts and the operations on blocks: read, write, unmap, flush. The parts
//! own their state ([`Log`], [`Ledger`], [`RowReader`]); the files in this directory are the flows
//! through them.
//!
//! Must not know: volumes and their names, frontends, threads.

mod background;
mod block_mover;
mod checkpointer;
mod cleaner;

mod active_layers;
mod compact;
mod compaction_plan;
mod drives_behind;
mod extents;
mod headers;
mod heal;
mod layer_usage;
mod locks;
mod lost;
mod lost_part;
mod lost_table;
mod merge;
mod read;
mod rebuild;
mod repair;
mod replay;
mod row_repairs;
mod salvage;
mod scan;
mod scan_readable;
mod scrub;
mod start;
mod tables;
mod unsaved_nodes;
mod verify;
mod visible;
mod walk;
mod write;

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

use format::{DriveIndex, LayerId, VolumeId};
use reactor::{Drive, WaitList};
use smallvec::SmallVec;

pub(crate) use extents::ShardExtents;
pub(crate) use layer_usage::{Ancestor, Child, LayerNeighbours};
pub(crate) use lost_part::{LostPart, LostPartKind};
pub(crate) use repair::Completeness;
pub(crate) use salvage::{BlockState, LayerChain, Probe, Purpose, SalvageShard, StateRun};
pub(crate) use start::{Candidate, Examination, ShardPlan};
pub(crate) use verify::{LostCells, verify_shard};

use crate::control_link::ControlLink;
use crate::error::{Error, Result};
use crate::fair::{FairScheduler, Permit};
use crate::geometry::Geometry;
use crate::invariant::to_index;
use crate::ledger::Ledger;
use crate::log::{Identity, Log, LogCounters};
use crate::repair::ClientOp;
use crate::row_reader::RowReader;
use crate::segments::FillHistogram;
use crate::write_waits::{WriteWait, WriteWaitCounts, WriteWaits};

/// Number of blocks that a leaf of the map covers.
const LEAF_BLOCKS: u64 = format::NODE_ENTRIES as u64;

/// A shard of the pool.
pub(crate) struct Shard {
    identity: Identity,
    geometry: Geometry,
    log: Rc<Log>,
    ledger: Rc<Ledger>,
    rows: Rc<RowReader>,
    link: ControlLink,
    locks: locks::BlockLocks,
    /// The background jobs, each with its state, and their scheduler.
    background: background::Background,
    checkpointer: checkpointer::Checkpointer,
    pub(crate) cleaner: cleaner::Cleaner,
    compaction: compact::Compaction,
    heal: heal::Healer,
    pub(crate) lost: lost::LostBlocks,
    unsaved: unsaved_nodes::UnsavedNodes,
    pub(crate) repair: repair::Repairer,
    pub(crate) scrubber: scrub::Scrubber,
    /// Layers that are being dropped, or were dropped.
    dropping_layers: RefCell<BTreeSet<LayerId>>,
    /// Schedulers of the reads and the writes of volumes that compete.
    reads: Rc<FairScheduler>,
    writes: Rc<FairScheduler>,
    active_layers: active_layers::ActiveLayers,
    /// The writes that wait before they are queued in the log.
    waits: WriteWaits,
    /// Notified when map nodes are unpinned.
    unpinned: WaitList,
}

/// Counters of a shard since it was started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShardCounters {
    /// Counters of the log.
    pub log: LogCounters,
    /// Completed checkpoints.
    pub checkpoints: u64,
    /// Checkpoints that failed for lack of space, although the checkpoint reserve should have been
    /// enough (S4).
    pub checkpoints_refused: u64,
    /// Compactions in the checkpoint reserve.
    pub compactions: u64,
    /// Compactions that needed more segments than their plan, and did not get them (S4).
    pub compaction_overruns: u64,
    /// Map nodes in memory, of 4 KiB.
    pub map_nodes: u64,
    /// Map nodes that differ from their stored copy.
    pub dirty_nodes: u64,
    /// Blocks that were reconstructed from other columns although their own drive is in use.
    pub repaired_blocks: u64,
    /// Client writes in progress, by the event that they wait for.
    pub write_waits: WriteWaitCounts,
    /// Histogram of sealed segments by their share of live blocks.
    pub segments: FillHistogram,
}

impl Shard {
    /// Takes a failed drive, which the superblocks already record as failed, out of use, and
    /// publishes the row of each open segment from which on its column is missing.
    ///
    /// # Errors
    /// If that cannot be published.
    pub(crate) async fn detach_drive(&self, drive: DriveIndex) -> Result<()> {
        if !self.rows.drives.is_online(drive) {
            return Ok(());
        }
        self.rows.drives.take_offline(drive);
        self.repair.reset(self);
        let segments = self.rows.segments.borrow_mut().drive_lost(drive);
        self.mark_durable_without_flush();
        tracing::warn!(shard = %self.identity.shard, %drive, segments, "drive taken out of use");
        self.repair.request();
        self.link.publish(self.log.appender.shard_record()).await
    }

    /// Waits until a volume may read, where others want to as well.
    async fn permit_to_read(&self, volume: VolumeId, blocks: usize) -> Permit {
        self.writes.note_active(volume);
        match self.reads.try_acquire(volume, blocks) {
            Some(permit) => permit,
            // Boxed because it is rare.
            None => Box::pin(self.reads.acquire(volume, blocks)).await,
        }
    }

    /// Waits until a volume may write.
    async fn permit_to_write(&self, volume: VolumeId, blocks: usize) -> Permit {
        self.reads.note_active(volume);
        match self.writes.try_acquire(volume, blocks) {
            Some(permit) => permit,
            None => {
                let _wait = self.waits.begin(WriteWait::Admission);
                Box::pin(self.writes.acquire(volume, blocks)).await
            }
        }
    }

    /// Starts to read and write a drive that has joined the pool; the superblocks already record
    /// it.
    pub(crate) fn attach_drive(&self, index: DriveIndex, drive: Rc<dyn Drive>) {
        self.rows.drives.join(index, drive);
        self.repair.reset(self);
        tracing::debug!(shard = %self.identity.shard, drive = %index, "drive attached");
    }

    /// Marks all columns of a failed drive as missing, durably, before it returns with outdated
    /// contents.
    ///
    /// # Errors
    /// If no checkpoint can be made.
    pub(crate) async fn invalidate_drive(self: &Rc<Self>, drive: DriveIndex) -> Result<()> {
        assert!(!self.rows.drives.is_online(drive), "D1: drive {drive} is in use");
        self.rows.segments.borrow_mut().invalidate_drive(drive);
        self.checkpoint_now().await
    }

    /// Stops using a drive that was removed from the pool; it holds no data.
    pub(crate) fn remove_drive(&self, index: DriveIndex) {
        self.rows.drives.take_offline(index);
        self.mark_durable_without_flush();
    }

    /// Marks applied records as durable if no drive in use needs a flush: if the last one was
    /// removed, no flush will report it.
    fn mark_durable_without_flush(&self) {
        if self.rows.drives.all_durable() {
            let mut segments = self.rows.segments.borrow_mut();
            let applied = segments.flush_mark();
            segments.flushed(&applied);
        }
    }

    /// Fails the shard because the pool has failed: nothing is written any more.
    pub(crate) fn fail(&self, error: &Error) {
        self.log.fail(error);
        self.checkpointer.wake();
        self.wake_held_writes();
        self.scrubber.wake(self);
    }

    /// Notes that zones were returned to the pool, and retries the requests that wait for space.
    pub(crate) fn space_freed(&self) {
        self.log.space_freed();
        self.repair.retry_for_space();
        if !self.unsaved.is_empty() {
            self.lost.wake();
        }
    }

    /// Number of map nodes that are only in memory because their copies on the drives are lost.
    pub(crate) fn unsaved_nodes(&self) -> u64 {
        self.unsaved.count()
    }

    /// Makes every write that was answered by now durable.
    ///
    /// # Errors
    /// If the pool has failed.
    pub(crate) async fn flush(&self) -> Result<()> {
        self.log.flush().await
    }

    /// Waits until everything queued by now has been answered.
    pub(crate) async fn wait_for_queued(&self) {
        self.log.wait_for_queued().await;
    }

    /// Makes a checkpoint now.
    ///
    /// # Errors
    /// If it cannot be written; the previous one remains valid.
    pub(crate) async fn checkpoint_now(self: &Rc<Self>) -> Result<()> {
        self.check_stopping()?;
        self.checkpointer.checkpoint(self).await
    }

    /// Returns the first block from `from` on, below `end`, that a layer stores.
    ///
    /// # Errors
    /// Errors of map reads.
    pub(crate) async fn next_stored(&self, layer: LayerId, from: u64, end: u64) -> Result<Option<u64>> {
        let mut next = from;
        while let Some(found) = self.walk(|map| map.next_leaf(layer, next, end)).await? {
            let until = end.min((found / LEAF_BLOCKS + 1) * LEAF_BLOCKS);
            let mut entries = SmallVec::new();
            let count = to_index(until - found);
            self.walk(|map| map.lookup(layer, found, count, &mut entries)).await?;
            if let Some(at) = entries.iter().position(|entry| entry.address().is_some()) {
                return Ok(Some(found + at as u64));
            }
            next = until;
        }
        Ok(None)
    }

    /// Returns the stored extents of a range, and the first block behind it, below `end`, that may
    /// be stored.
    ///
    /// # Errors
    /// Errors of map reads.
    pub(crate) async fn extents(
        &self,
        volume: VolumeId,
        (block, blocks): (u64, u64),
        end: u64,
    ) -> Result<ShardExtents> {
        let layer = self.layer_of(volume)?;
        let mut entries = SmallVec::new();
        let count = to_index(blocks);
        self.walk_chain((layer, block, count), |map| map.lookup_through(layer, block, count, &mut entries))
            .await?;
        let mut extents: Vec<(u64, bool)> = Vec::new();
        for stored in entries.iter().map(|entry| entry.address().is_some()) {
            match extents.last_mut() {
                Some((length, is_stored)) if *is_stored == stored => *length += 1,
                _ => extents.push((1, stored)),
            }
        }
        let next = self.next_leaf_through(layer, block + blocks, end).await?;
        Ok(ShardExtents { extents, next })
    }

    /// Returns the shard's counters.
    pub(crate) fn counters(&self) -> ShardCounters {
        let map = self.ledger.map.borrow();
        let mut write_waits = self.log.write_waits();
        write_waits.add_all(&self.waits.counts());
        ShardCounters {
            log: self.log.counters.get(),
            checkpoints: self.checkpointer.completed(),
            checkpoints_refused: self.checkpointer.refused(),
            compactions: self.compaction.count(),
            compaction_overruns: self.log.compaction_overruns(),
            map_nodes: map.node_count() as u64,
            dirty_nodes: map.dirty_count() as u64,
            repaired_blocks: self.rows.repaired.get(),
            write_waits,
            segments: self.rows.segments.borrow().fill_histogram(),
        }
    }

    /// Returns the number of blocks that a layer stores in this shard.
    pub(crate) fn stored(&self, layer: LayerId) -> u64 {
        self.ledger.map.borrow().stored(layer)
    }

    /// Returns the number of blocks up to which a write is atomic across a crash.
    pub(crate) fn atomic_blocks(&self) -> u32 {
        self.geometry.atomic_blocks()
    }

    /// Returns the highest layer number in this shard.
    pub(crate) fn last_layer(&self) -> Option<LayerId> {
        self.ledger.map.borrow().last_layer()
    }

    /// Returns the layers that exist in this shard.
    pub(crate) fn layers(&self) -> Vec<LayerId> {
        self.ledger.map.borrow().layer_ids()
    }

    /// Notes the begin of a client read or write, for the throttles of background work.
    fn track_client_op(&self) -> Option<ClientOp<'_>> {
        self.background.budget.track_client_op(self.identity.shard.index())
    }

    /// Reports failed and corrupt reads of drives to the control until the shard stops. One task
    /// per shard.
    async fn report_read_errors(self: Rc<Self>) {
        while !self.background.is_stopping() {
            let reads = self.rows.drives.bad_reads.take_pending().await;
            if !reads.is_empty() {
                self.link.record_bad_reads(reads).await;
            }
        }
    }

    /// Reports drives that were found gone by a read.
    async fn report_gone_drives(&self) {
        let gone = std::mem::take(&mut *self.rows.gone_drives.borrow_mut());
        for (drive, error) in gone {
            if self.rows.drives.is_current(drive)
                && let Err(error) =
                    self.link.drive_failed(drive.index, "drive disappeared during a read", error).await
            {
                self.fail(&error);
            }
        }
    }
}
