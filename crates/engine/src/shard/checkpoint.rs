//! Checkpoints: the map as of one record, stored while writes continue, and published.
//!
//! Steps, in an order that a crash may interrupt anywhere: freeze (an instant), nodes (leaves
//! first), tables, root, flush, publish, and release of the segments that were freed before the
//! freeze. Until the publish is durable the previous checkpoint remains valid; nothing that it
//! refers to was changed, because freed segments are released only afterwards (S3).

use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

use format::limits::BLOCK;
use format::{CheckpointRoot, Item, LayerEntry, MapEntry, Sequence};
use reactor::{Buffer, LocalReceiver, Reactor, Span, local_oneshot};
use smallvec::SmallVec;

use super::Shard;
use super::tables::TableContents;
use crate::error::{Error, ErrorKind, Result};
use crate::invariant::narrow;
use crate::log::{Effect, Request, WriteClass};
use crate::map::{NodeImage, NodeRef};
use crate::write_waits::WriteWait;

/// Maximum number of node requests in flight.
const REQUESTS_MAX: usize = 4;

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

impl Shard {
    /// Makes checkpoints when they are due, until the shard stops. One task per shard.
    pub(super) async fn run_checkpoints(self: Rc<Self>) {
        loop {
            self.log.checkpoints.requested().await;
            self.compacted().await;
            if self.stopping.get() || self.log.failure().is_some() {
                return;
            }
            let again = self.log.checkpoint_failure().is_some();
            if let Err(error) = self.checkpoint().await {
                if again {
                    tracing::debug!(shard = %self.identity.shard, %error, "checkpoint failed again");
                } else {
                    tracing::error!(shard = %self.identity.shard, %error, "checkpoint failed");
                }
            }
        }
    }

    /// If the map exceeds its memory because too many nodes are dirty, waits until a checkpoint has
    /// made room, or the shard stops.
    ///
    /// # Errors
    /// `NoSpace` when there is no space left for a checkpoint.
    pub(super) async fn wait_for_map(&self) -> Result<()> {
        self.log.checkpoints.request();
        let is_running = || self.log.failure().is_none() && !self.stopping.get();
        let waits = || self.ledger.map.borrow().is_over_budget() && is_running();
        let _wait = waits().then(|| self.waits.begin(WriteWait::MapMemory));
        self.compaction.wake_waiters();
        while waits() {
            self.log.checkpoints.request();
            let before = self.checkpointer.ended();
            self.checkpointer.until(|| !waits() || self.checkpointer.ended() != before).await;
            match self.log.checkpoint_failure().filter(|_| waits()) {
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
    pub(super) async fn checkpoint(self: &Rc<Self>) -> Result<()> {
        self.wait_for_service().await?;
        self.checkpoint_next(None).await
    }

    /// Makes a checkpoint of a shard that is being recovered. `replayed` is the last record in the
    /// map.
    ///
    /// # Errors
    /// As [`Shard::checkpoint`].
    pub(super) async fn checkpoint_in_replay(self: &Rc<Self>, replayed: Sequence) -> Result<()> {
        assert!(!self.in_service.get(), "S5: the shard is in service");
        self.checkpoint_next(Some(replayed)).await
    }

    /// Waits until the recovery has replayed all records.
    ///
    /// # Errors
    /// `Closed` if the shard stops before.
    pub(super) async fn wait_for_service(&self) -> Result<()> {
        let decided = || self.in_service.get() || self.stopping.get();
        self.checkpointer.until(decided).await;
        match self.in_service.get() {
            true => Ok(()),
            false => Err(Error::new(ErrorKind::Closed, "the pool is closed before it was recovered")),
        }
    }

    async fn checkpoint_next(self: &Rc<Self>, replayed: Option<Sequence>) -> Result<()> {
        self.checkpointer.until(|| !self.log.checkpoints.is_running()).await;
        self.log.checkpoint_started();
        let result = self.checkpoint_exclusive(replayed).await;
        if result.is_err() {
            self.ledger.map.borrow_mut().abandon_freeze();
            self.ledger.forget_dropped();
            *self.ledger.mark.borrow_mut() = None;
        }
        self.log.checkpoint_ended(&result);
        self.checkpointer.count(&result);
        self.unpinned.wake_all();
        if result.is_ok() {
            self.repair_after_checkpoint();
        }
        result
    }

    async fn checkpoint_exclusive(self: &Rc<Self>, replayed: Option<Sequence>) -> Result<()> {
        let sequence = self.freeze(replayed);
        let levels = self.ledger.map.borrow().frozen_levels();
        for level in 0..levels {
            self.store_level(level).await?;
        }
        let layers = self.ledger.map.borrow_mut().thaw();
        self.ledger.forget_dropped();
        let root = self.store_tables(sequence, &layers).await?;
        let mark = self.ledger.mark.borrow_mut().take();
        let Some(mark) = mark else {
            return Err(Error::new(ErrorKind::Closed, "the checkpoint was cancelled"));
        };
        self.rows.segments.borrow_mut().end_checkpoint(&mark);
        self.log.checkpoints.advance(root, sequence);
        let record = self.log.appender.shard_record();
        tracing::debug!(shard = %self.identity.shard, %sequence, ?root, recent = record.recent.len(), "publishing a checkpoint");
        self.link.publish(record).await?;
        let zones = self.rows.segments.borrow_mut().release(&mark);
        if !zones.is_empty() {
            tracing::debug!(shard = %self.identity.shard, zones = zones.len(), "zones released");
            self.link.release(zones);
        }
        Ok(())
    }

    /// Freezes the state that the checkpoint stores; returns the sequence of the last record it
    /// covers.
    fn freeze(&self, replayed: Option<Sequence>) -> Sequence {
        self.log.checkpoints.restart_count();
        self.cleaner.checkpoint_begins();
        let mut mark = {
            let mut segments = self.rows.segments.borrow_mut();
            segments.free_emptied();
            segments.begin_checkpoint()
        };
        mark.leave_out(&self.tables.pointers());
        let running = self.ledger.mark.borrow_mut().replace(mark);
        assert!(running.is_none(), "M3: checkpoints are made one at a time");
        {
            let mut map = self.ledger.map.borrow_mut();
            map.forget_merged(self.rows.segments.borrow().oldest_incarnation());
            map.freeze();
        }
        let nodes = self.ledger.map.borrow().dirty_count();
        tracing::debug!(shard = %self.identity.shard, nodes, "checkpoint begins");
        let sequence = replayed.unwrap_or_else(|| self.log.appender.applied());
        assert!(sequence <= self.log.appender.applied(), "S5: a checkpoint contains only applied records");
        sequence
    }

    /// Stores every frozen node of a level. Their parents are stored afterwards, with the new
    /// addresses.
    async fn store_level(&self, level: usize) -> Result<()> {
        let mut pending: VecDeque<Pending> = VecDeque::new();
        let mut outcome = Ok(());
        // After a failure the rest stays frozen, and becomes dirty again.
        while outcome.is_ok()
            && let Some(images) = self.gather_images(level).await
        {
            pending.extend(self.enqueue_images(images));
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
    async fn gather_images(&self, level: usize) -> Option<Images> {
        let images_max = self.geometry.meta_blocks();
        let (mut images, mut taken) = (Images::default(), 0);
        let (mut count, mut dirtied) = (IMAGES_MIN, self.ledger.map.borrow().dirtied());
        while taken < images_max {
            let portion = self.ledger.map.borrow_mut().take_level(level, count.min(images_max - taken));
            if portion.is_empty() {
                break;
            }
            taken += portion.len();
            portion.into_iter().for_each(|image| self.add_image(&mut images, image));
            Reactor::current().yield_now().await;
            let before = std::mem::replace(&mut dirtied, self.ledger.map.borrow().dirtied());
            count = IMAGES_MIN.max(IMAGES_PER_DIRTIED * dirtied.saturating_sub(before));
        }
        (taken > 0).then_some(images)
    }

    fn add_image(&self, images: &mut Images, image: NodeImage) {
        let Some(entries) = image.entries else {
            self.ledger.node_stored(image.node, MapEntry::ABSENT);
            return;
        };
        let mut block = Buffer::new(BLOCK);
        format::encode_entries(&entries, block.as_mut_slice());
        images.items.push(Item::Node { layer: image.layer, level: image.level, index: image.index });
        images.data.push(block.span());
        images.nodes.push(image.node);
    }

    /// Queues images for storing, if there are any.
    fn enqueue_images(&self, images: Images) -> Option<Pending> {
        let Images { items, data, nodes } = images;
        if nodes.is_empty() {
            return None;
        }
        assert!(items.len() == nodes.len() && data.len() == nodes.len(), "R3: every node is stored");
        let (sender, receiver) = local_oneshot();
        let request = Request { items, data, effect: Effect::Nodes(nodes), reply: Some(sender) };
        self.log.enqueue(WriteClass::Checkpoint, request);
        Some(receiver)
    }

    /// Stores the tables and flushes. Repeats this if a drive failed meanwhile, which the tables
    /// must record.
    async fn store_tables(self: &Rc<Self>, sequence: Sequence, layers: &[LayerEntry]) -> Result<MapEntry> {
        loop {
            let (contents, version) = self.table_contents(sequence, layers)?;
            let root = self.tables.store(&self.log, &self.rows, &contents).await?;
            self.log.flush().await?;
            if self.rows.segments.borrow().version() == version {
                return Ok(root);
            }
        }
    }

    fn table_contents(&self, sequence: Sequence, layers: &[LayerEntry]) -> Result<(TableContents, u64)> {
        let segments = self.rows.segments.borrow();
        let mark = self.ledger.mark.borrow();
        let Some(mark) = mark.as_ref() else {
            return Err(Error::new(ErrorKind::Closed, "no checkpoint is in progress"));
        };
        let stored = segments.stored(mark);
        let root = CheckpointRoot {
            shard: self.identity.shard,
            sequence,
            segment_slots: narrow(stored.len(), "C5"),
            tables: format::TableCounts::default(),
            indexes: Vec::new(),
        };
        let contents = TableContents {
            root,
            geometry: self.geometry,
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
