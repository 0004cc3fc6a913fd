//! Moves of the live blocks of one segment, for the cleaner and for compaction.
//!
//! For each segment, the mover reads the headers of its records, looks up in the map which of their
//! blocks are still live, and moves these with records that are replayed only where the map still
//! points at the old cell. Map nodes and table blocks are not moved; the next checkpoint stores
//! them again.
//!
//! Always true: a block is moved only after it was read and its checksum verified (R1); a
//! concurrent overwrite takes precedence. Must not know: the choice of segments.

use std::collections::VecDeque;

use format::limits::BLOCK;
use format::{Address, Item, LayerBlock, LayerId, MapEntry, Mapping, SegmentId};
use reactor::{Buffer, LocalReceiver, Reactor, Span, local_oneshot};
use smallvec::SmallVec;

use super::Shard;
use super::headers::{HeaderReader, ScannedRecord};
use crate::drives::DriveEpoch;
use crate::error::Result;
use crate::geometry::RecordLayout;
use crate::in_flight::InFlight;
use crate::invariant::narrow;
use crate::log::{Effect, Request, WriteClass};
use crate::map::MissingNode;
use crate::row_reader::BlockRun;
use crate::segments::CHUNK_BLOCKS;

/// Maximum number of consecutive blocks that are moved as one item.
const RUN_BLOCKS: usize = 16;
/// Maximum number of chunks being moved concurrently.
const CHUNKS_IN_FLIGHT: usize = 4;

/// Live blocks of one layer in consecutive rows of one column.
pub(super) struct LiveRun {
    pub(super) layer: LayerId,
    pub(super) block: u64,
    from: Address,
    pub(super) crcs: SmallVec<[u32; 4]>,
}

impl LiveRun {
    /// Keeps the first `count` blocks, and returns the others.
    fn split_off(&mut self, count: usize) -> Self {
        let crcs = self.crcs.drain(count..).collect();
        let rows = narrow(count, "R3");
        let from = Address::new(self.from.segment(), self.from.column(), self.from.row().plus(rows));
        Self { layer: self.layer, block: self.block + count as u64, from, crcs }
    }
}

/// Map nodes and table blocks (`None`) that may be live in a segment, with their addresses.
pub(super) type MetadataCells = Vec<(Option<MissingNode>, Address)>;

/// A read in progress; `None` for cells that are on no drive in use.
type Started = Option<(DriveEpoch, InFlight)>;

/// The replies to the moves of a chunk.
type Pending = Vec<LocalReceiver<Result<Vec<MapEntry>>>>;

/// Moves blocks within a shard.
#[derive(Clone, Copy)]
pub(super) struct BlockMover<'a> {
    shard: &'a Shard,
}

impl<'a> BlockMover<'a> {
    pub(super) fn new(shard: &'a Shard) -> Self {
        Self { shard }
    }

    /// Moves the live blocks of a segment, which is pinned.
    pub(super) async fn clean(&self, victim: SegmentId) -> Result<()> {
        let record = self.shard.rows.segments.borrow().record(victim);
        tracing::debug!(shard = %self.shard.identity.shard, segment = %victim, live = self.shard.rows.segments.borrow().live(victim), "cleaning");
        let mut headers = HeaderReader::new(&self.shard.rows, &self.shard.identity, victim, &record);
        let mut chunk: Vec<LiveRun> = Vec::new();
        let mut blocks = 0;
        let whole = self.chunk_blocks();
        let mut pending: VecDeque<Pending> = VecDeque::new();
        let mut nodes = MetadataCells::new();
        let mut outcome = Ok(());
        while outcome.is_ok() && self.shard.rows.segments.borrow().live(victim) > 0 {
            // Yields, because reads of memory drives complete immediately and client requests would
            // not run.
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
        // The segment stays pinned until its last move is applied.
        for chunk in pending {
            outcome = outcome.and(all_applied(chunk).await);
        }
        outcome?;
        // Storing these again takes checkpoint reserve, so it is done only if the segment was
        // emptied.
        let mut stored_again = false;
        for (node, place) in nodes {
            stored_again |= match node {
                Some(node) => self.rewrite_node(node, place).await?,
                None => self.shard.checkpointer.tables.rewrite(place),
            };
        }
        if stored_again {
            self.shard.cleaner.count_emptied();
        }
        Ok(())
    }

    /// Returns the number of blocks moved together: with their header they fill the rows of a
    /// record.
    pub(super) fn chunk_blocks(&self) -> usize {
        let row = u32::from(self.shard.geometry.scheme.data());
        (CHUNK_BLOCKS.next_multiple_of(row) - 1).max(1) as usize
    }

    /// Returns the live blocks of the segment's next record; `None` after the last.
    pub(super) async fn next_live(
        &self,
        headers: &mut HeaderReader<'_>,
        nodes: &mut MetadataCells,
    ) -> Result<Option<Vec<LiveRun>>> {
        match headers.next().await? {
            Some(found) => self.live_in_record(&found, nodes).await.map(Some),
            None => Ok(None),
        }
    }

    /// Returns the blocks of a record that are still live where it wrote them; collects its nodes
    /// and table blocks.
    async fn live_in_record(&self, found: &ScannedRecord, nodes: &mut MetadataCells) -> Result<Vec<LiveRun>> {
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

    /// Waits for debt or a request for space. Returns immediately during compaction, which delays
    /// the next checkpoint.
    async fn wait_for_debt(&self) -> Result<()> {
        if !self.shard.compaction.is_running() {
            self.shard.log.pacer.wait_for_debt_or_urgency(|| self.shard.has_ended()).await;
        }
        self.shard.check_stopping()
    }

    /// Makes the next checkpoint store a node again if it lives at `place`; returns whether it
    /// does.
    async fn rewrite_node(&self, node: MissingNode, place: Address) -> Result<bool> {
        self.wait_for_debt().await?;
        let lives = self.shard.walk(|map| map.rewrite_node(node, place)).await?;
        if lives {
            self.shard.log.on_cleaner_moved(1);
            // As late as possible: each checkpoint costs about a segment where segments are small.
            if self.shard.ledger.map.borrow().is_over_budget() {
                self.shard.checkpointer.wait_for_map(self.shard).await?;
            }
        }
        Ok(lives)
    }

    /// Collects those of `count` blocks from `block` on that are still at the record's blocks from
    /// `first` on.
    async fn live_blocks(
        &self,
        layer: LayerId,
        block: u64,
        segment: SegmentId,
        (first, count): (u32, u32),
        layout: &RecordLayout,
        all: &mut Vec<LiveRun>,
    ) -> Result<()> {
        // The layer may have been merged into others since, or be about to be.
        let merged_into = self.shard.ledger.map.borrow().merged_into(layer);
        for layer in merged_into {
            // A layer that is being dropped frees its blocks anyway.
            if !self.shard.dropping_layers.borrow().contains(&layer) {
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
        all: &mut Vec<LiveRun>,
    ) -> Result<()> {
        let mut entries = SmallVec::new();
        self.shard.walk(|map| map.lookup(layer, block, count as usize, &mut entries)).await?;
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
                        && last.from.plus_rows(narrow(last.crcs.len(), "R3")) == here
                        && last.crcs.len() < self.run_blocks() =>
                {
                    last.crcs.push(crc);
                }
                _ => all.push(LiveRun { layer, block, from: here, crcs: SmallVec::from_elem(crc, 1) }),
            }
        }
        Ok(())
    }

    /// Returns the maximum number of blocks moved as one item: few where segments are tiny.
    fn run_blocks(&self) -> usize {
        RUN_BLOCKS.min(self.shard.geometry.meta_blocks().div_ceil(4))
    }

    /// Reads and verifies blocks and queues them for their new place, once the cleaner owes work.
    async fn move_chunk(&self, chunk: Vec<LiveRun>, pending: &mut VecDeque<Pending>) -> Result<()> {
        if chunk.is_empty() {
            return Ok(());
        }
        self.wait_for_debt().await?;
        let blocks: usize = chunk.iter().map(|live| live.crcs.len()).sum();
        self.shard.log.on_cleaner_moved(blocks);
        let moved = self.read_live(chunk, blocks).await?;
        let mut queued = Pending::new();
        let result = self.queue_moves(moved, &mut queued).await;
        pending.push_back(queued);
        result?;
        if pending.len() >= CHUNKS_IN_FLIGHT
            && let Some(first) = pending.pop_front()
        {
            return all_applied(first).await;
        }
        Ok(())
    }

    /// Reads all of a chunk concurrently; unreadable blocks are left in place.
    async fn read_live(&self, chunk: Vec<LiveRun>, blocks: usize) -> Result<Vec<(LiveRun, Span)>> {
        let buffer = Buffer::new(blocks * BLOCK);
        let span = buffer.span();
        let mut at = 0;
        let mut started: Vec<(LiveRun, Span, Started)> = Vec::new();
        for live in chunk {
            let length = live.crcs.len() * BLOCK;
            let into = span.slice(at..at + length);
            at += length;
            let io = self.shard.rows.start_read(live.from, std::slice::from_ref(&into));
            started.push((live, into, io));
        }
        let mut read = Vec::with_capacity(started.len());
        for (live, into, io) in started {
            let run = BlockRun { address: live.from, count: narrow(live.crcs.len(), "R3") };
            let result = match io {
                Some((drive, io)) => {
                    self.shard.rows.finish_read(run, &live.crcs, &into, drive, io).await.map(|_| ())
                }
                None => self.shard.rows.rebuild_run(run, &live.crcs, &into, &[]).await,
            };
            match result {
                Ok(()) => read.push((live, into)),
                Err(error) => {
                    let blocks = live.block..live.block + live.crcs.len() as u64;
                    self.shard.lost.note_read(self.shard, live.layer, blocks, &error).await;
                    tracing::error!(layer = %live.layer, block = live.block, %error, "block not moved: it cannot be read");
                }
            }
        }
        self.shard.report_gone_drives().await;
        Ok(read)
    }

    /// Queues moves, one request each; together they fill the cold segment to its last row.
    async fn queue_moves(&self, moved: Vec<(LiveRun, Span)>, pending: &mut Pending) -> Result<()> {
        self.shard.make_room_in_map().await?;
        for (live, span) in moved {
            let pins = self.shard.prepare_unmap(live.layer, live.block, live.crcs.len() as u64).await?;
            // No wait between this check and queueing: the drop of a layer waits for queued
            // requests.
            if pins.is_empty() || self.shard.dropping_layers.borrow().contains(&live.layer) {
                self.shard.unpin(&pins);
                continue;
            }
            let count = narrow(live.crcs.len(), "R3");
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
            self.shard.log.enqueue(WriteClass::Cold, request);
        }
        Ok(())
    }
}

/// Waits for all moves of a chunk.
async fn all_applied(pending: Pending) -> Result<()> {
    let mut outcome = Ok(());
    for receiver in pending {
        if let Some(result) = receiver.await {
            outcome = outcome.and(result.map(|_| ()));
        }
    }
    outcome
}
