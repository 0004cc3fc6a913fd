//! The cleaner: moves what still lives out of segments that are mostly garbage, so that their zones come back.
//!
//! For each segment: read the headers of its records, ask the map which of their blocks still live there, and move those
//! with records that replay only where the map still points at the old place. Map nodes and table blocks are not moved;
//! the next checkpoint stores them anew. The zones come back with the checkpoint after the last block has left.
//!
//! Always true: a block is moved only after it was read and its checksum verified (R1), and overwriting it meanwhile wins.

use std::collections::VecDeque;
use std::rc::Rc;

use format::limits::BLOCK;
use format::{Address, Item, LayerBlock, LayerId, MapEntry, Mapping, SegmentId};
use reactor::{Buffer, LocalReceiver, Reactor, Span, local_oneshot};
use smallvec::SmallVec;

use super::Shard;
use super::headers::{HeaderReader, ScannedRecord};
use crate::drives::DriveEpoch;
use crate::error::{ErrorKind, Result};
use crate::geometry::RecordLayout;
use crate::in_flight::InFlight;
use crate::log::{Effect, Request, WriteClass};
use crate::map::MissingNode;
use crate::row_reader::BlockRun;
use crate::segments::CHUNK_BLOCKS;

/// Blocks that lie together and are moved as one at most.
const RUN_BLOCKS: usize = 16;
/// Segments that cleaning gains, on balance, before a checkpoint is asked for that gives them back to whoever waits for space.
const GAIN_PER_CHECKPOINT: f32 = 0.5;
/// Chunks under way at once.
const CHUNKS_IN_FLIGHT: usize = 4;

/// Blocks of one layer that live one below the other in one column.
pub(super) struct Live {
    pub(super) layer: LayerId,
    pub(super) block: u64,
    from: Address,
    pub(super) crcs: SmallVec<[u32; 4]>,
}

impl Live {
    /// Keeps the first `count` blocks, and gives the others.
    fn split_off(&mut self, count: usize) -> Self {
        let crcs = self.crcs.drain(count..).collect();
        let rows = u32::try_from(count).unwrap_or(u32::MAX);
        let from = Address::new(self.from.segment(), self.from.column(), self.from.row().plus(rows));
        Self { layer: self.layer, block: self.block + count as u64, from, crcs }
    }
}

/// Nodes that may live in a segment, table blocks (`None`), and where they are.
pub(super) type Nodes = Vec<(Option<MissingNode>, Address)>;

/// A read under way; `None` for what is on no drive in use.
type Started = Option<(DriveEpoch, InFlight)>;

/// The moves of a chunk.
type Pending = Vec<LocalReceiver<Result<Vec<MapEntry>>>>;

impl Shard {
    /// Cleans while space is wanted, until the shard stops. One task a shard.
    pub(super) async fn run_cleaner(self: Rc<Self>) {
        loop {
            self.log.pacer.wait_for_work().await;
            loop {
                if self.must_stop_cleaning() {
                    return;
                }
                if !self.clean_next().await {
                    break;
                }
            }
        }
    }

    /// Cleans the segment that is most worth it. False if there is nothing to do, or nothing can be done now.
    async fn clean_next(self: &Rc<Self>) -> bool {
        if self.log.pacer.max_live_share(self.coming()).is_some() {
            // Until it is owed, segments become emptier by themselves, and another one may be worth more by then.
            self.log.pacer.wait_for_debt_or_urgency(|| self.must_stop_cleaning()).await;
            if self.must_stop_cleaning() {
                return true;
            }
        }
        if self.log.pacer.space.only_checkpoint_reserve_left() {
            return self.compact_or_rest().await;
        }
        let worth = self.log.pacer.max_live_share(self.coming());
        let Some((victim, share)) = worth.and_then(|worth| self.rows.segments.borrow().victim(worth)) else {
            return self.rests(self.coming() > 0);
        };
        self.log.pacer.set_victim_share(share);
        match self.clean_pinned(victim).await {
            Ok(()) if !self.count_gain(1.0 - share) => true,
            Ok(()) => {
                self.log.cleaning_ended(true);
                true
            }
            Err(error) if error.kind() == ErrorKind::NoSpace => {
                // What was moved so far may have emptied something; a checkpoint tells.
                self.log.on_cleaner_idle(0);
                let coming = self.rows.segments.borrow().freed_count() + self.emptied_by_checkpoint.get();
                self.log.cleaning_ended(coming > 0);
                false
            }
            Err(error) if error.kind() == ErrorKind::Closed => false,
            Err(error) => {
                tracing::warn!(shard = %self.identity.shard, segment = %victim, %error, "a segment was not cleaned");
                true
            }
        }
    }

    /// There is nothing to clean, or not now; whether a checkpoint would help whoever waits.
    pub(super) fn rests(&self, helps: bool) -> bool {
        self.log.on_cleaner_idle(self.rows.segments.borrow().freed_count());
        self.log.cleaning_ended(helps);
        false
    }

    pub(super) fn must_stop_cleaning(&self) -> bool {
        self.stopping.get() || self.log.failure().is_some()
    }

    /// Segments that the next checkpoint gives back.
    pub(super) fn coming(&self) -> usize {
        let mut segments = self.rows.segments.borrow_mut();
        segments.free_emptied();
        segments.freed_count() + self.emptied_by_checkpoint.get()
    }

    /// Counts what cleaning a segment has gained, as a share of one. True if it is worth a checkpoint by now, which takes its part of it.
    fn count_gain(&self, share: f32) -> bool {
        let gained = self.gained.get() + share;
        let is_enough = gained >= GAIN_PER_CHECKPOINT;
        self.gained.set(if is_enough { 0.0 } else { gained });
        is_enough
    }

    /// Moves what lives in a segment.
    pub(super) async fn clean_pinned(self: &Rc<Self>, victim: SegmentId) -> Result<()> {
        let cleaned = {
            let _pin = self.rows.pin(victim);
            self.clean(victim).await
        };
        let mut segments = self.rows.segments.borrow_mut();
        segments.cleaned(victim);
        segments.free_emptied();
        cleaned
    }

    /// Moves what lives in a segment, which is pinned.
    async fn clean(self: &Rc<Self>, victim: SegmentId) -> Result<()> {
        let record = self.rows.segments.borrow().record(victim);
        tracing::debug!(shard = %self.identity.shard, segment = %victim, live = self.rows.segments.borrow().live(victim), "cleaning");
        let mut headers = HeaderReader::new(&self.rows, &self.identity, victim, &record);
        let mut chunk: Vec<Live> = Vec::new();
        let mut blocks = 0;
        let whole = self.chunk_blocks();
        let mut pending: VecDeque<Pending> = VecDeque::new();
        let mut nodes = Nodes::new();
        let mut outcome = Ok(());
        while outcome.is_ok() && self.rows.segments.borrow().live(victim) > 0 {
            // Drives that answer at once give users no turn between records.
            Reactor::current().yield_now().await;
            let live = match self.next_live(&mut headers, &mut nodes).await {
                Ok(Some(live)) => live,
                Ok(None) => break,
                Err(error) => {
                    outcome = Err(error);
                    break;
                }
            };
            let mut left = VecDeque::from(live);
            while let Some(mut live) = left.pop_front() {
                if live.crcs.len() > whole - blocks {
                    left.push_front(live.split_off(whole - blocks));
                }
                blocks += live.crcs.len();
                chunk.push(live);
                if blocks == whole {
                    outcome = outcome.and(self.move_chunk(std::mem::take(&mut chunk), &mut pending).await);
                    blocks = 0;
                }
            }
        }
        if outcome.is_ok() {
            outcome = self.move_chunk(chunk, &mut pending).await;
        }
        // The segment stays pinned until its last move has landed.
        for chunk in pending {
            outcome = outcome.and(all_landed(chunk).await);
        }
        outcome?;
        // These take checkpoints' own space: only where the segment comes back for it.
        let mut stored_anew = false;
        for (node, place) in nodes {
            stored_anew |= match node {
                Some(node) => self.rewrite_node(node, place).await?,
                None => self.tables.rewrite(place),
            };
        }
        if stored_anew {
            self.emptied_by_checkpoint.set(self.emptied_by_checkpoint.get() + 1);
        }
        Ok(())
    }

    /// Blocks that are moved at once: with their header they fill the rows of a record.
    pub(super) fn chunk_blocks(&self) -> usize {
        let row = u32::from(self.geometry.scheme.data());
        (CHUNK_BLOCKS.next_multiple_of(row) - 1).max(1) as usize
    }

    /// What still lives of the segment's next record; `None` behind the last.
    pub(super) async fn next_live(
        &self,
        headers: &mut HeaderReader<'_>,
        nodes: &mut Nodes,
    ) -> Result<Option<Vec<Live>>> {
        match headers.next().await? {
            Some(found) => self.live_of(&found, nodes).await.map(Some),
            None => Ok(None),
        }
    }

    /// What of a record still lives where it was written; notes its nodes and table blocks (`None`), and where they are.
    async fn live_of(&self, found: &ScannedRecord, nodes: &mut Nodes) -> Result<Vec<Live>> {
        let mut all = Vec::new();
        let mut first = u32::from(found.header.header_blocks);
        let segment = found.header.location.segment;
        for item in &found.header.items {
            let count = item.payload();
            let place = |index| {
                let (column, row) = found.layout.place(first + index);
                Address::new(segment, column, row)
            };
            match *item {
                Item::Write { layer, block, .. } | Item::Move { layer, block, .. } => {
                    self.live_blocks(layer, block.get(), segment, (first, count), &found.layout, &mut all)
                        .await?;
                }
                Item::Node { layer, level, index } => {
                    nodes.push((Some(MissingNode { layer, level, index }), place(0)));
                }
                Item::Table { .. } => nodes.push((None, place(0))),
                Item::Unmap { .. } | Item::DropLayer { .. } | Item::Merge { .. } => {}
            }
            first += count;
        }
        Ok(all)
    }

    /// Waits until the cleaner wait_for_debt_or_urgency something, or somebody waits for it. Not while compacting, which holds up the next checkpoint.
    async fn wait_for_debt(&self) -> Result<()> {
        if !self.compaction.is_running() {
            self.log.pacer.wait_for_debt_or_urgency(|| self.must_stop_cleaning()).await;
        }
        self.check_stopping()
    }

    /// Has the next checkpoint store a node anew, if it lives at `place`; says so.
    async fn rewrite_node(&self, node: MissingNode, place: Address) -> Result<bool> {
        self.wait_for_debt().await?;
        let lives = self.walk(|map| map.rewrite_node(node, place)).await?;
        if lives {
            self.log.on_cleaner_moved(1);
            // Not before it must be: each checkpoint costs about a segment where segments are small.
            if self.ledger.map.borrow().is_over_budget() {
                self.wait_for_map().await?;
            }
        }
        Ok(lives)
    }

    /// Those of `count` blocks from `block` on that still lie where the record's blocks from `first` on were written.
    async fn live_blocks(
        &self,
        layer: LayerId,
        block: u64,
        segment: SegmentId,
        (first, count): (u32, u32),
        layout: &RecordLayout,
        all: &mut Vec<Live>,
    ) -> Result<()> {
        // The layer may have been merged into others since, or be about to.
        let merged_into = self.ledger.map.borrow().merged_into(layer);
        for layer in merged_into {
            // What is being dropped goes by itself.
            if !self.dying.borrow().contains(&layer) {
                self.live_in_layer(layer, block, segment, (first, count), layout, all).await?;
            }
        }
        Ok(())
    }

    async fn live_in_layer(
        &self,
        layer: LayerId,
        block: u64,
        segment: SegmentId,
        (first, count): (u32, u32),
        layout: &RecordLayout,
        all: &mut Vec<Live>,
    ) -> Result<()> {
        let mut entries = SmallVec::new();
        self.walk(|map| map.lookup(layer, block, count as usize, &mut entries)).await?;
        for ((block, index), entry) in (block..).zip(first..).zip(&entries) {
            let (column, row) = layout.place(index);
            let here = Address::new(segment, column, row);
            let Mapping::Block { address, crc } = entry.mapping() else { continue };
            if address != here {
                continue;
            }
            match all.last_mut() {
                Some(last)
                    if last.layer == layer
                        && last.block + last.crcs.len() as u64 == block
                        && last.from.plus_rows(u32::try_from(last.crcs.len()).unwrap_or(u32::MAX))
                            == here
                        && last.crcs.len() < self.run_blocks() =>
                {
                    last.crcs.push(crc);
                }
                _ => all.push(Live { layer, block, from: here, crcs: SmallVec::from_elem(crc, 1) }),
            }
        }
        Ok(())
    }

    /// Blocks that are moved as one at most: few where segments are tiny.
    fn run_blocks(&self) -> usize {
        RUN_BLOCKS.min(self.geometry.meta_blocks().div_ceil(4))
    }

    /// Reads blocks, verifies them and queues them for their new place, when the cleaner has its turn.
    async fn move_chunk(self: &Rc<Self>, chunk: Vec<Live>, pending: &mut VecDeque<Pending>) -> Result<()> {
        if chunk.is_empty() {
            return Ok(());
        }
        self.wait_for_debt().await?;
        let blocks: usize = chunk.iter().map(|live| live.crcs.len()).sum();
        self.log.on_cleaner_moved(blocks);
        let moved = self.read_live(chunk, blocks).await?;
        let mut queued = Pending::new();
        let result = self.queue_moves(moved, &mut queued).await;
        pending.push_back(queued);
        result?;
        if pending.len() >= CHUNKS_IN_FLIGHT
            && let Some(first) = pending.pop_front()
        {
            return all_landed(first).await;
        }
        Ok(())
    }

    /// Reads all of a chunk at once; what cannot be read is left where it is.
    async fn read_live(&self, chunk: Vec<Live>, blocks: usize) -> Result<Vec<(Live, Span)>> {
        let buffer = Buffer::new(blocks * BLOCK);
        let span = buffer.span();
        let mut at = 0;
        let mut started: Vec<(Live, Span, Started)> = Vec::new();
        for live in chunk {
            let length = live.crcs.len() * BLOCK;
            let into = span.slice(at..at + length);
            at += length;
            let io = self.rows.start_read(live.from, std::slice::from_ref(&into));
            started.push((live, into, io));
        }
        let mut read = Vec::with_capacity(started.len());
        for (live, into, io) in started {
            let run =
                BlockRun { address: live.from, count: u32::try_from(live.crcs.len()).unwrap_or(u32::MAX) };
            let result = match io {
                Some((drive, io)) => {
                    self.rows.finish_read(run, &live.crcs, &into, drive, io).await.map(|_| ())
                }
                None => self.rows.rebuild_run(run, &live.crcs, &into, &[]).await,
            };
            match result {
                Ok(()) => read.push((live, into)),
                Err(error) => {
                    let blocks = live.block..live.block + live.crcs.len() as u64;
                    self.note_lost_read(live.layer, blocks, &error).await;
                    tracing::error!(layer = %live.layer, block = live.block, %error, "a block cannot be moved");
                }
            }
        }
        self.report_gone_drives().await;
        Ok(read)
    }

    /// Queues moves, one request each: together they fill the cold segment to its last row.
    async fn queue_moves(&self, moved: Vec<(Live, Span)>, pending: &mut Pending) -> Result<()> {
        self.make_room_in_map().await?;
        for (live, span) in moved {
            let pins = self.prepare_unmap(live.layer, live.block, live.crcs.len() as u64).await?;
            // Nothing is waited for between this look and queueing: whoever drops a layer waits for what is queued.
            if pins.is_empty() || self.dying.borrow().contains(&live.layer) {
                self.unpin(&pins);
                continue;
            }
            let count = u16::try_from(live.crcs.len()).unwrap_or(u16::MAX);
            let block = LayerBlock::new(live.block);
            let (sender, receiver) = local_oneshot();
            pending.push(receiver);
            let request = Request {
                items: SmallVec::from_elem(
                    Item::Move { layer: live.layer, block, count, from: live.from },
                    1,
                ),
                data: SmallVec::from_elem(span, 1),
                effect: Effect::Leaves(pins),
                reply: Some(sender),
            };
            self.log.enqueue(WriteClass::Cold, request);
        }
        Ok(())
    }
}

/// Waits for all of a chunk's moves.
async fn all_landed(pending: Pending) -> Result<()> {
    let mut outcome = Ok(());
    for one in pending {
        if let Some(result) = one.await {
            outcome = outcome.and(result.map(|_| ()));
        }
    }
    outcome
}
