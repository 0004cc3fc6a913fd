//! Starting a shard: examine its tables and log, and bring it into service once the superblocks
//! record where its log ends.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;

use format::{
    Address, CheckpointRoot, DriveIndex, LayerEntry, MapEntry, Row, SegmentId, SegmentRecord, SegmentState,
    ShardRecord, ZoneIndex,
};
use reactor::{Reactor, WaitList};

use super::background::Background;
use super::checkpointer::Checkpointer;
use super::cleaner::Cleaner;
use super::headers::ScannedRecord;
use super::lost_part::LostPart;
use super::replay::replay_record;
use super::scan::{LogScan, examine};
use super::scan_readable::examine_readable;
use super::tables::{LoadedTables, StoredTables};
use super::{Shard, active_layers, heal, locks, repair, scrub};
use crate::control_link::{ControlLink, ControlServices};
use crate::drive_source::DriveSource;
use crate::drives::Drives;
use crate::error::{Error, ErrorKind, Result};
use crate::fair::FairScheduler;
use crate::geometry::Geometry;
use crate::ledger::Ledger;
use crate::log::{Identity, Log, LogStart};
use crate::map::Map;
use crate::repair::BackgroundLimiter;
use crate::row_reader::RowReader;
use crate::scrub::Scrub;
use crate::segments::Segments;
use crate::space::Space;
use crate::tuning::Tuning;
use crate::write_waits::WriteWaits;

/// Reads, in units of the scheduler, that may be in flight regardless of latency when several
/// volumes compete.
const READS_MIN: u16 = 2;
/// Writes, in units of the scheduler, that may be in flight regardless of latency: with fewer,
/// records would be small.
const WRITES_MIN: u16 = 8;

/// The parameters of a shard; sent to the shard's reactor.
#[derive(Clone)]
pub(crate) struct ShardPlan {
    pub(crate) identity: Identity,
    pub(crate) geometry: Geometry,
    /// The shard's record in the superblock.
    pub(crate) record: ShardRecord,
    /// True if the pool was closed cleanly: all records of the log are complete.
    pub(crate) clean: bool,
    /// The drives; `None` for drives that must not be used.
    pub(crate) drives: Vec<Option<Arc<dyn DriveSource>>>,
    pub(crate) tuning: Tuning,
    /// Maximum number of map nodes in memory.
    pub(crate) map_nodes: usize,
    /// Maximum number of dirty map nodes between two checkpoints.
    pub(crate) dirty_nodes: usize,
    /// Number of log blocks after which a checkpoint is due.
    pub(crate) checkpoint_blocks: u64,
    /// Maximum number of segments opened since the last checkpoint.
    pub(crate) recent_max: usize,
    /// The space accounting of the pool.
    pub(crate) space: Arc<Space>,
    /// The limits of repair.
    pub(crate) repair: Arc<BackgroundLimiter>,
    /// The limits and state of scrubbing.
    pub(crate) scrub: Arc<Scrub>,
}

/// A shard that was examined. Nothing was changed except for rows that a crash had left incomplete.
pub(crate) struct Candidate {
    plan: ShardPlan,
    rows: Rc<RowReader>,
    /// The tables, and their root if it can be read.
    loaded: RefCell<Option<(Option<CheckpointRoot>, LoadedTables)>>,
    examined: RefCell<Option<LogScan>>,
    /// The parts that could not be read, if the shard was examined read-only.
    lost: RefCell<Vec<LostPart>>,
}

/// The parts of a shard that is not brought into service.
pub(super) struct ShardParts {
    pub(super) rows: Rc<RowReader>,
    pub(super) layers: Vec<LayerEntry>,
    pub(super) lost: Vec<LostPart>,
    pub(super) records: Vec<ScannedRecord>,
    pub(super) tables: StoredTables,
    /// Cells that a crash left unwritten and the next opening will write.
    pub(super) incomplete: BTreeSet<Address>,
}

/// The result of examining a shard, which the pool needs before it brings the shard into service.
#[derive(Debug)]
pub(crate) struct Examination {
    /// The shard's record, with its segments truncated to the end of the log that recovery found.
    pub(crate) record: ShardRecord,
    /// Zones in use.
    pub(crate) zones: Vec<(DriveIndex, ZoneIndex)>,
    /// Records to replay.
    pub(crate) records: usize,
    /// Incomplete records at the end of the log, which were never acknowledged as durable.
    pub(crate) dropped: usize,
    /// Number of cells of the last rows that were completed.
    pub(crate) completed: u64,
    /// Drives in use that failed these writes.
    pub(crate) failed: Vec<DriveIndex>,
    /// Drives that lack the newest durable rows of the log.
    pub(crate) behind: BTreeSet<DriveIndex>,
}

impl Candidate {
    /// Examines a shard on this reactor: loads its tables, finds the end of its log and completes
    /// its last rows. With `read_only`, nothing is written, and parts that cannot be read are
    /// recorded.
    ///
    /// # Errors
    /// `Corrupt` if durable data cannot be read; never with `read_only`.
    pub(crate) async fn examine(plan: ShardPlan, read_only: bool) -> Result<(Rc<Self>, Examination)> {
        let drives = plan.drives.iter().map(|source| source.as_ref().map(|source| source.open())).collect();
        let rows = Rc::new(RowReader::new(Drives::new(drives), Segments::new(plan.geometry)));
        rows.drives.mark_all_dirty();
        for (id, from, record) in &plan.record.recent {
            rows.segments.borrow_mut().restore(*id, extend_to_last_row(record, plan.geometry), Some(*from));
        }
        let mut record = plan.record.clone();
        for (_, _, segment) in &mut record.recent {
            *segment = extend_to_last_row(segment, plan.geometry);
        }
        let mut lost = Vec::new();
        let (loaded, examined) = if read_only {
            let loaded = load_readable_tables(&rows, &plan, &mut lost).await;
            let tables = loaded.iter().flat_map(|(_, loaded)| loaded.stored.pointers());
            let tables = std::iter::once(plan.record.root).chain(tables).filter_map(MapEntry::address);
            let tables: Vec<Address> = tables.collect();
            (loaded, examine_readable(&rows, &plan.identity, &record, plan.clean, &tables, &mut lost).await)
        } else {
            let loaded = load_tables(&rows, &plan).await?.map(|(root, loaded)| (Some(root), loaded));
            (loaded, examine(&rows, &plan.identity, &record).await?)
        };
        let report = Examination {
            record: ShardRecord { recent: rows.segments.borrow().recent(), ..plan.record.clone() },
            zones: rows.segments.borrow().zones(),
            records: examined.records.len(),
            dropped: examined.dropped,
            completed: examined.completed.len() as u64,
            failed: examined.failed.clone(),
            behind: examined.behind.clone(),
        };
        let (loaded, examined) = (RefCell::new(loaded), RefCell::new(Some(examined)));
        let candidate = Self { plan, rows, loaded, examined, lost: RefCell::new(lost) };
        Ok((Rc::new(candidate), report))
    }

    /// Takes the candidate apart for the verifier and for salvage, which do not bring it into
    /// service. `None` if that was done before.
    pub(super) fn dismantle(&self) -> Option<ShardParts> {
        let examined = self.examined.take()?;
        let (layers, tables) = match self.loaded.take() {
            Some((_, loaded)) => (loaded.layers, loaded.stored),
            None => (Vec::new(), StoredTables::default()),
        };
        let incomplete = examined.completed.into_iter().collect();
        let (rows, lost) = (self.rows.clone(), self.lost.take());
        Some(ShardParts { rows, layers, lost, records: examined.records, tables, incomplete })
    }

    /// Returns the maximum number of map nodes in memory.
    pub(super) fn map_nodes(&self) -> usize {
        self.plan.map_nodes
    }

    pub(super) fn identity(&self) -> Identity {
        self.plan.identity
    }

    /// Builds the shard with its map as of the checkpoint. It handles drive failures, and nothing
    /// else before [`Candidate::resume`].
    ///
    /// # Errors
    /// If it was called before.
    pub(crate) fn start(&self, control: Arc<dyn ControlServices>) -> Result<Rc<Shard>> {
        let examined = self.examined.borrow();
        let Some(examined) = examined.as_ref() else {
            return Err(Error::new(ErrorKind::Closed, "the shard was started before"));
        };
        let (shard, layers) = self.assemble(control, examined);
        tracing::debug!(shard = %self.plan.identity.shard, layers, "map loaded");
        Reactor::current().spawn(shard.log.clone().run()).detach();
        Ok(shard)
    }

    /// Brings the shard into service: replays the records behind the checkpoint and starts the
    /// shard's tasks.
    ///
    /// # Errors
    /// If the map cannot be read, or a checkpoint during replay cannot be written.
    pub(crate) async fn resume(&self, shard: &Rc<Shard>) -> Result<()> {
        let Some(examined) = self.examined.take() else {
            return Err(Error::new(ErrorKind::Closed, "the shard was started before"));
        };
        let replayed = !examined.records.is_empty();
        shard.rows.segments.borrow_mut().begin_replay();
        for record in examined.records {
            shard.replay(&record).await?;
        }
        {
            let mut segments = shard.rows.segments.borrow_mut();
            segments.end_replay();
            // The catalogue sets the reservations later.
            self.plan.space.set_usage(self.plan.identity.shard.index(), segments.live_blocks(), 0);
        }
        shard.checkpointer.enter_service();
        // Only now, because these tasks need a complete map: a checkpoint must not cover records
        // that are not replayed yet.
        Background::run(shard, |shard| &shard.checkpointer);
        Background::run(shard, |shard| &shard.heal);
        Background::run(shard, |shard| &shard.cleaner);
        Background::run(shard, |shard| &shard.repair);
        Background::spawn(shard, shard.clone().report_read_errors());
        Background::run(shard, |shard| &shard.lost);
        Background::run(shard, |shard| &shard.scrubber);
        shard.lost.load(shard).await;
        if replayed {
            shard.log.checkpoints.request();
        }
        Ok(())
    }

    fn assemble(&self, control: Arc<dyn ControlServices>, examined: &LogScan) -> (Rc<Shard>, usize) {
        let plan = &self.plan;
        let mut map = Map::new(plan.map_nodes, plan.dirty_nodes);
        let (tables, anchor) = match self.loaded.take() {
            Some((root, loaded)) => {
                loaded.layers.iter().for_each(|layer| map.restore_layer(layer));
                let sequence = root.map_or(plan.record.checkpointed, |root| root.sequence);
                (loaded.stored, (plan.record.root, sequence))
            }
            None => (StoredTables::default(), (MapEntry::ABSENT, plan.record.checkpointed)),
        };
        let layers = map.layer_ids().len();
        let ledger = Rc::new(Ledger::new(map, self.rows.clone()));
        let link = ControlLink { control, shard: plan.identity.shard };
        let start = LogStart {
            identity: plan.identity,
            geometry: plan.geometry,
            depth: plan.tuning.records_in_flight,
            checkpoint_blocks: plan.checkpoint_blocks,
            recent_max: plan.recent_max,
            space: plan.space.clone(),
            last: examined.last,
            anchor,
        };
        let log = Log::new(start, ledger.clone(), self.rows.clone(), link.clone());
        let [reads, writes] = FairScheduler::pair([READS_MIN, WRITES_MIN], plan.tuning.slowdown);
        let budget = Rc::new(plan.repair.budget());
        let shard = Shard {
            identity: plan.identity,
            geometry: plan.geometry,
            log,
            ledger,
            rows: self.rows.clone(),
            link,
            locks: locks::BlockLocks::default(),
            background: Background::new(budget.clone()),
            checkpointer: Checkpointer::new(tables),
            cleaner: Cleaner::default(),
            compaction: super::compact::Compaction::default(),
            heal: heal::Healer::default(),
            lost: super::lost::LostBlocks::default(),
            unsaved: super::unsaved_nodes::UnsavedNodes::default(),
            repair: repair::Repairer::new(plan.repair.clone(), budget.clone()),
            scrubber: scrub::Scrubber::new(plan.scrub.clone(), budget),
            dropping_layers: RefCell::default(),
            unpinned: WaitList::default(),
            reads,
            writes,
            active_layers: active_layers::ActiveLayers::default(),
            waits: WriteWaits::default(),
        };
        (Rc::new(shard), layers)
    }
}

impl Shard {
    /// Replays a record that was found behind the checkpoint.
    async fn replay(self: &Rc<Self>, record: &ScannedRecord) -> Result<()> {
        replay_record(&self.ledger, &self.rows, record).await?;
        if self.ledger.map.borrow().is_over_budget() {
            self.checkpointer.checkpoint_in_replay(self, record.header.location.sequence).await?;
        }
        Ok(())
    }

    /// Makes the shard's tasks and all background work end.
    pub(crate) fn begin_stop(&self) {
        self.background.begin_stop();
        self.log.begin_stop();
        self.heal.wake();
        self.lost.wake();
        self.rows.drives.bad_reads.wake();
        self.repair.request();
        self.scrubber.cancel();
        self.scrubber.wake(self);
        self.checkpointer.wake();
    }

    /// Stops the shard's tasks, then the log; requests in progress are answered first. With
    /// `checkpoint`, makes a last checkpoint of everything. After this returns, the shard does no
    /// more I/O.
    ///
    /// # Errors
    /// If that checkpoint cannot be written; the shard is stopped nevertheless.
    pub(crate) async fn stop(self: &Rc<Self>, checkpoint: bool) -> Result<()> {
        self.begin_stop();
        self.background.all_ended().await;
        let result = match (self.log.failure(), checkpoint) {
            (Some(failure), _) => Err(failure),
            (None, true) => {
                self.unsaved.store_at_last(self);
                self.checkpointer.checkpoint(self).await
            }
            (None, false) => Ok(()),
        };
        self.log.stop().await;
        result
    }

    /// Returns true if the shard is stopping, or the pool has failed: background work ends.
    pub(super) fn has_ended(&self) -> bool {
        self.background.is_stopping() || self.log.failure().is_some()
    }

    /// Returns an error if the shard is stopping; called by background work.
    ///
    /// # Errors
    /// `Closed` if it is stopping.
    pub(super) fn check_stopping(&self) -> Result<()> {
        if self.background.is_stopping() {
            return Err(Error::new(ErrorKind::Closed, "the pool is being closed"));
        }
        Ok(())
    }
}

/// Returns a listed segment as the scan needs it: an open one may have records up to its last row.
fn extend_to_last_row(record: &SegmentRecord, geometry: Geometry) -> SegmentRecord {
    let rows = if record.state == SegmentState::Open { geometry.rows() } else { record.rows };
    SegmentRecord { rows, ..record.clone() }
}

async fn load_tables(
    rows: &Rc<RowReader>,
    plan: &ShardPlan,
) -> Result<Option<(CheckpointRoot, LoadedTables)>> {
    if plan.record.root.is_absent() {
        return Ok(None);
    }
    let restore = |id: SegmentId, record: SegmentRecord| {
        let mut segments = rows.segments.borrow_mut();
        if !segments.contains(id) {
            segments.restore(id, record, None::<Row>);
        }
        Ok(())
    };
    StoredTables::load(rows, plan.record.root, plan.geometry.table_width, restore).await.map(Some)
}

/// Like [`load_tables`], but loads the readable part of the tables only.
async fn load_readable_tables(
    rows: &Rc<RowReader>,
    plan: &ShardPlan,
    lost: &mut Vec<LostPart>,
) -> Option<(Option<CheckpointRoot>, LoadedTables)> {
    if plan.record.root.is_absent() {
        return None;
    }
    let restore = |id: SegmentId, record: SegmentRecord| {
        let mut segments = rows.segments.borrow_mut();
        if !segments.contains(id) {
            segments.restore(id, record, None::<Row>);
        }
    };
    let left = StoredTables::load_readable(rows, plan.record.root, plan.geometry.table_width, restore).await;
    lost.extend(left.lost);
    Some((left.root, LoadedTables { layers: left.layers, stored: left.stored }))
}
