//! Checkpoints: the map as of one record, stored while writes continue, and published.
//!
//! Steps, in an order that a crash may interrupt anywhere: freeze (an instant), nodes (leaves
//! first), tables, root, flush, publish, and release of the segments that were freed before the
//! freeze. Until the publish is durable the previous checkpoint remains valid; nothing that it
//! refers to was changed, because freed segments are released only afterwards (S3).

use std::cell::Cell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

use format::limits::BLOCK;
use format::{CheckpointRoot, Item, LayerEntry, MapEntry, Sequence};
use reactor::{Buffer, LocalReceiver, Reactor, Span, WaitList, local_oneshot};
use smallvec::SmallVec;

use super::Shard;
use super::background::{BackgroundJob, StepOutcome};
use super::tables::{StoredTables, TableContents};
use crate::error::{Error, ErrorKind, Result};
use crate::geometry::Geometry;
use crate::invariant::narrow;
use crate::log::{Effect, Request, WriteClass};
use crate::map::{NodeImage, NodeRef};
use crate::write_waits::WriteWait;

/// Maximum number of node requests in flight.
const REQUESTS_MAX: usize = 4;

/// Maximum number of nodes in one request: with the record's header they fill whole rows of 2, 4, 8
/// or 16 data columns. Longer requests delay client writes more (docs/decisions.md).
const NODES_MAX: usize = 63;

/// Nodes that are copied before the task yields: this many, or a multiple of the nodes that became
/// dirty in the meantime. Otherwise clients would fill the map's memory before the checkpoint that
/// makes room in it ends.
const IMAGES_MIN: usize = 16;
const IMAGES_PER_DIRTIED: usize = 2;

/// Delay before a request that needs a checkpoint tries again after a failed one.
const RETRY_DELAY: Duration = Duration::from_millis(100);

type Pending = LocalReceiver<Result<Vec<MapEntry>>>;

/// Node images that one request stores.
#[derive(Default)]
struct Images {
    items: SmallVec<[Item; 1]>,
    data: SmallVec<[Span; 1]>,
    nodes: Vec<NodeRef>,
}

/// The checkpointer of a shard.
pub(super) struct Checkpointer {
    /// The tables of the last checkpoint.
    pub(super) tables: StoredTables,
    /// Recovery has replayed all records into the map.
    in_service: Cell<bool>,
    completed: Cell<u64>,
    /// Checkpoints that have completed or failed.
    ended: Cell<u64>,
    /// Checkpoints that failed for lack of space.
    refused: Cell<u64>,
    changed: WaitList,
}

impl BackgroundJob for Checkpointer {
    async fn wait_for_work(&self, shard: &Shard) {
        shard.log.checkpoints.requested().await;
        shard.compaction.until_ended(shard).await;
    }

    async fn step(&self, shard: &Rc<Shard>) -> StepOutcome {
        if shard.has_ended() {
            return StepOutcome::Ended;
        }
        let again = shard.log.checkpoint_failure().is_some();
        if let Err(error) = self.checkpoint(shard).await {
            if again {
                tracing::debug!(shard = %shard.identity.shard, %error, "checkpoint failed again");
            } else {
                tracing::error!(shard = %shard.identity.shard, %error, "checkpoint failed");
            }
        }
        StepOutcome::Idle
    }
}

impl Checkpointer {
    /// Creates the checkpointer of a shard that is not in service yet, with the tables of its last
    /// checkpoint.
    pub(super) fn new(tables: StoredTables) -> Self {
        Self {
            tables,
            in_service: Cell::new(false),
            completed: Cell::new(0),
            ended: Cell::new(0),
            refused: Cell::new(0),
            changed: WaitList::default(),
        }
    }

    /// Notes that recovery has replayed all records: checkpoints may be made.
    pub(super) fn enter_service(&self) {
        self.in_service.set(true);
        self.wake();
    }

    /// Returns the number of completed checkpoints.
    pub(super) fn completed(&self) -> u64 {
        self.completed.get()
    }

    /// Returns the number of checkpoints that have completed or failed.
    pub(super) fn ended(&self) -> u64 {
        self.ended.get()
    }

    /// Returns the number of checkpoints that failed for lack of space (S4).
    pub(super) fn refused(&self) -> u64 {
        self.refused.get()
    }

    /// Counts a checkpoint that has ended, and wakes all that wait for one.
    pub(super) fn count(&self, result: &Result<()>) {
        self.ended.set(self.ended.get() + 1);
        match result {
            Ok(()) => self.completed.set(self.completed.get() + 1),
            Err(error) if error.kind() == ErrorKind::NoSpace => self.refused.set(self.refused.get() + 1),
            Err(_) => {}
        }
        assert!(self.completed.get() + self.refused.get() <= self.ended.get(), "M3: checkpoints end once");
        self.wake();
    }

    /// Wakes all waits: a checkpoint has ended, or the state of the shard has changed.
    pub(super) fn wake(&self) {
        self.changed.wake_all();
    }

    /// Waits until a condition holds, which is checked at the end of each checkpoint and at each
    /// [`Checkpointer::wake`].
    pub(super) async fn until(&self, holds: impl Fn() -> bool) {
        self.changed.until(|| holds().then_some(())).await;
    }

    /// If the map exceeds its memory because too many nodes are dirty, waits until a checkpoint has
    /// made room, or the shard stops.
    ///
    /// # Errors
    /// `NoSpace` when there is no space left for a checkpoint.
    pub(super) async fn wait_for_map(&self, shard: &Shard) -> Result<()> {
        shard.log.checkpoints.request();
        let is_running = || !shard.has_ended();
        let waits = || shard.ledger.map.borrow().is_over_budget() && is_running();
        let _wait = waits().then(|| shard.waits.begin(WriteWait::MapMemory));
        shard.compaction.wake_waiters();
        while waits() {
            shard.log.checkpoints.request();
            let before = self.ended();
            self.until(|| !waits() || self.ended() != before).await;
            match shard.log.checkpoint_failure().filter(|_| waits()) {
                Some(error) if error.kind() == ErrorKind::NoSpace => {
                    return Err(Error::new(
                        ErrorKind::NoSpace,
                        format!("no checkpoint can be made: {error}"),
                    ));
                }
                Some(_) => Reactor::current().sleep(RETRY_DELAY).await,
                None => {}
            }
        }
        Ok(())
    }

    /// Makes a checkpoint of a shard in service. Waits until a running recovery has replayed all
    /// records: before, the map lacks records that the log counts as applied (S5).
    ///
    /// # Errors
    /// When a record or a superblock could not be written. The last checkpoint stays valid, and
    /// nothing is lost. `Closed` if the shard stops before it is in service.
    pub(super) async fn checkpoint(&self, shard: &Rc<Shard>) -> Result<()> {
        self.wait_for_service(shard).await?;
        self.checkpoint_next(shard, None).await
    }

    /// Makes a checkpoint of a shard that is being recovered. `replayed` is the last record in the
    /// map.
    ///
    /// # Errors
    /// As [`Checkpointer::checkpoint`].
    pub(super) async fn checkpoint_in_replay(&self, shard: &Rc<Shard>, replayed: Sequence) -> Result<()> {
        assert!(!self.in_service.get(), "S5: the shard is in service");
        self.checkpoint_next(shard, Some(replayed)).await
    }

    /// Waits until the recovery has replayed all records.
    ///
    /// # Errors
    /// `Closed` if the shard stops before.
    pub(super) async fn wait_for_service(&self, shard: &Shard) -> Result<()> {
        let decided = || self.in_service.get() || shard.background.is_stopping();
        self.until(decided).await;
        match self.in_service.get() {
            true => Ok(()),
            false => Err(Error::new(ErrorKind::Closed, "the pool is closed before it was recovered")),
        }
    }

    async fn checkpoint_next(&self, shard: &Rc<Shard>, replayed: Option<Sequence>) -> Result<()> {
        self.until(|| !shard.log.checkpoints.is_running()).await;
        shard.log.checkpoint_started();
        let result = self.checkpoint_exclusive(shard, replayed).await;
        if result.is_err() {
            shard.ledger.map.borrow_mut().abandon_freeze();
            shard.ledger.forget_dropped();
            *shard.ledger.mark.borrow_mut() = None;
        }
        shard.log.checkpoint_ended(&result);
        self.count(&result);
        shard.unpinned.wake_all();
        if result.is_ok() {
            shard.repair.on_checkpoint();
        }
        result
    }

    async fn checkpoint_exclusive(&self, shard: &Rc<Shard>, replayed: Option<Sequence>) -> Result<()> {
        let sequence = self.freeze(shard, replayed);
        let levels = shard.ledger.map.borrow().frozen_levels();
        for level in 0..levels {
            self.store_level(shard, level).await?;
        }
        let layers = shard.ledger.map.borrow_mut().thaw();
        shard.ledger.forget_dropped();
        let root = self.store_tables(shard, sequence, &layers).await?;
        let mark = shard.ledger.mark.borrow_mut().take();
        let Some(mark) = mark else {
            return Err(Error::new(ErrorKind::Closed, "the checkpoint was cancelled"));
        };
        shard.rows.segments.borrow_mut().end_checkpoint(&mark);
        shard.log.checkpoints.advance(root, sequence);
        let record = shard.log.appender.shard_record();
        tracing::debug!(shard = %shard.identity.shard, %sequence, ?root, recent = record.recent.len(), "publishing a checkpoint");
        shard.link.publish(record).await?;
        let zones = shard.rows.segments.borrow_mut().release(&mark);
        if !zones.is_empty() {
            tracing::debug!(shard = %shard.identity.shard, zones = zones.len(), "zones released");
            shard.link.release(zones);
        }
        Ok(())
    }

    /// Freezes the state that the checkpoint stores; returns the sequence of the last record it
    /// covers.
    fn freeze(&self, shard: &Shard, replayed: Option<Sequence>) -> Sequence {
        shard.log.checkpoints.restart_count();
        shard.cleaner.checkpoint_begins();
        let mut mark = {
            let mut segments = shard.rows.segments.borrow_mut();
            segments.free_emptied();
            segments.begin_checkpoint()
        };
        mark.leave_out(&self.tables.pointers());
        let running = shard.ledger.mark.borrow_mut().replace(mark);
        assert!(running.is_none(), "M3: checkpoints are made one at a time");
        {
            let mut map = shard.ledger.map.borrow_mut();
            map.forget_merged(shard.rows.segments.borrow().oldest_incarnation());
            map.freeze();
        }
        let nodes = shard.ledger.map.borrow().dirty_count();
        tracing::debug!(shard = %shard.identity.shard, nodes, "checkpoint begins");
        let sequence = replayed.unwrap_or_else(|| shard.log.appender.applied());
        assert!(sequence <= shard.log.appender.applied(), "S5: a checkpoint contains only applied records");
        sequence
    }

    /// Stores every frozen node of a level. Their parents are stored afterwards, with the new
    /// addresses.
    async fn store_level(&self, shard: &Shard, level: usize) -> Result<()> {
        let mut pending: VecDeque<Pending> = VecDeque::new();
        let mut outcome = Ok(());
        // After a failure the rest stays frozen, and becomes dirty again.
        while outcome.is_ok()
            && let Some(images) = self.gather_images(shard, level).await
        {
            pending.extend(self.enqueue_images(shard, images));
            if pending.len() >= REQUESTS_MAX
                && let Some(first) = pending.pop_front()
            {
                outcome = wait_for_reply(first).await;
            }
        }
        for receiver in pending {
            outcome = outcome.and(wait_for_reply(receiver).await);
        }
        outcome
    }

    /// Collects as many images of a level as one request stores; empty nodes need no storing.
    /// `None` when the level is done.
    async fn gather_images(&self, shard: &Shard, level: usize) -> Option<Images> {
        let images_max = nodes_of_request(&shard.geometry);
        let (mut images, mut taken) = (Images::default(), 0);
        let (mut count, mut dirtied) = (IMAGES_MIN, shard.ledger.map.borrow().dirtied());
        while taken < images_max {
            let portion = shard.ledger.map.borrow_mut().take_level(level, count.min(images_max - taken));
            if portion.is_empty() {
                break;
            }
            taken += portion.len();
            portion.into_iter().for_each(|image| self.add_image(shard, &mut images, image));
            Reactor::current().yield_now().await;
            let before = std::mem::replace(&mut dirtied, shard.ledger.map.borrow().dirtied());
            count = IMAGES_MIN.max(IMAGES_PER_DIRTIED * dirtied.saturating_sub(before));
        }
        (taken > 0).then_some(images)
    }

    fn add_image(&self, shard: &Shard, images: &mut Images, image: NodeImage) {
        let Some(entries) = image.entries else {
            shard.ledger.node_stored(image.node, MapEntry::ABSENT);
            return;
        };
        let mut block = Buffer::new(BLOCK);
        format::encode_entries(&entries, block.as_mut_slice());
        images.items.push(Item::Node { layer: image.layer, level: image.level, index: image.index });
        images.data.push(block.span());
        images.nodes.push(image.node);
    }

    /// Queues images for storing, if there are any.
    fn enqueue_images(&self, shard: &Shard, images: Images) -> Option<Pending> {
        let Images { items, data, nodes } = images;
        if nodes.is_empty() {
            return None;
        }
        assert!(items.len() == nodes.len() && data.len() == nodes.len(), "R3: every node is stored");
        let (sender, receiver) = local_oneshot();
        let request = Request { items, data, effect: Effect::Nodes(nodes), reply: Some(sender) };
        shard.log.enqueue(WriteClass::Checkpoint, request);
        Some(receiver)
    }

    /// Stores the tables and flushes. Repeats this if a drive failed meanwhile, which the tables
    /// must record.
    async fn store_tables(
        &self,
        shard: &Rc<Shard>,
        sequence: Sequence,
        layers: &[LayerEntry],
    ) -> Result<MapEntry> {
        loop {
            let (contents, version) = self.table_contents(shard, sequence, layers)?;
            let root = self.tables.store(&shard.log, &shard.rows, &contents).await?;
            shard.log.flush().await?;
            if shard.rows.segments.borrow().version() == version {
                return Ok(root);
            }
        }
    }

    fn table_contents(
        &self,
        shard: &Shard,
        sequence: Sequence,
        layers: &[LayerEntry],
    ) -> Result<(TableContents, u64)> {
        let segments = shard.rows.segments.borrow();
        let mark = shard.ledger.mark.borrow();
        let Some(mark) = mark.as_ref() else {
            return Err(Error::new(ErrorKind::Closed, "no checkpoint is in progress"));
        };
        let stored = segments.stored(mark);
        let root = CheckpointRoot {
            shard: shard.identity.shard,
            sequence,
            segment_slots: narrow(stored.len(), "C5"),
            tables: format::TableCounts::default(),
            indexes: Vec::new(),
        };
        let contents = TableContents {
            root,
            geometry: shard.geometry,
            segments: stored,
            live: mark.live.clone(),
            layers: layers.to_vec(),
        };
        Ok((contents, segments.version()))
    }
}

async fn wait_for_reply(pending: Pending) -> Result<()> {
    let closed = || Err(Error::new(ErrorKind::Closed, "the pool was closed"));
    pending.await.unwrap_or_else(closed).map(|_| ())
}

/// Returns the largest number of nodes in one request.
fn nodes_of_request(geometry: &Geometry) -> usize {
    geometry.meta_blocks().min(NODES_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;
    use format::{LayerId, header_blocks_for};

    #[test]
    fn a_request_of_nodes_fills_whole_rows() {
        let node = Item::Node { layer: LayerId::new(u32::MAX), level: 4, index: u64::MAX >> 32 };
        assert_eq!(header_blocks_for(NODES_MAX * node.encoded_bytes(), NODES_MAX), 1);
        for columns in [2, 4, 8, 16] {
            assert!((NODES_MAX + 1).is_multiple_of(columns), "{columns} data columns");
        }
        assert_eq!((NODES_MAX + 1) / 4 * BLOCK, 64 << 10, "the length of a column of 4+1");
    }

    #[test]
    fn no_request_has_more_than_the_maximum_of_nodes() {
        // Zones of 1 MiB: the geometry allows twice as many.
        let geometry = Geometry {
            scheme: "4+1".parse().unwrap(),
            table_width: 5,
            zone_bytes: 1 << 20,
            data_start: 4 << 20,
        };
        assert!(geometry.meta_blocks() > NODES_MAX);
        assert_eq!(nodes_of_request(&geometry), NODES_MAX);
        let tiny = Geometry { zone_bytes: 64 << 10, ..geometry };
        assert_eq!(nodes_of_request(&tiny), tiny.meta_blocks());
    }

    #[test]
    fn ends_are_counted_by_their_results() {
        let checkpointer = Checkpointer::new(StoredTables::default());
        let failed = |kind| Err(Error::new(kind, "no checkpoint"));
        for result in [Ok(()), failed(ErrorKind::NoSpace), failed(ErrorKind::Closed), Ok(())] {
            checkpointer.count(&result);
        }
        let counts = (checkpointer.completed(), checkpointer.refused(), checkpointer.ended());
        assert_eq!(counts, (2, 1, 4));
    }
}
