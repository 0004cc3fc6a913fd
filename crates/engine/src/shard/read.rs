//! Reading blocks: look up, coalesce, read each drive once, verify.

use std::rc::Rc;

use format::limits::BLOCK;
use format::{LayerBlock, LayerId, MapEntry, Mapping, VolumeId};
use reactor::Span;
use smallvec::SmallVec;

use super::Shard;
use crate::drives::DriveEpoch;
use crate::error::Result;
use crate::in_flight::InFlight;
use crate::invariant::part;
use crate::map::Map;
use crate::row_reader::{BlockRun, CachedCells, ReadOutcome, SegmentPin};

/// A run of blocks of a request that are consecutive in a column.
struct PlannedRead<'a> {
    run: BlockRun,
    /// Index of its first block in the request.
    at: usize,
    started: Option<(DriveEpoch, InFlight)>,
    done: bool,
    /// Pins the segment from before the read is started until the request is answered.
    pin: Option<SegmentPin<'a>>,
}

impl Shard {
    /// Reads the blocks of a volume from `block` on into `into`, which is whole blocks. Holes read
    /// as zeros.
    ///
    /// # Errors
    /// `Corrupt`, with the location, if a block cannot be reconstructed from its row; the contents
    /// of `into` are undefined then.
    pub(crate) async fn read(self: &Rc<Self>, volume: VolumeId, block: u64, into: &Span) -> Result<()> {
        let _permit = self.permit_to_read(volume, into.len() / BLOCK).await;
        let layer = self.layer_of(volume)?;
        self.read_layer(layer, block, into).await
    }

    /// Like [`Shard::read`], for the blocks that a layer and those below it show.
    pub(crate) async fn read_layer(self: &Rc<Self>, layer: LayerId, block: u64, into: &Span) -> Result<()> {
        let _use = self.track_client_op();
        if into.len() == BLOCK {
            return self.read_one(layer, block, into).await;
        }
        let count = into.len() / BLOCK;
        let mut entries = SmallVec::new();
        let look = |map: &mut Map| map.lookup_through(layer, block, count, &mut entries);
        if let Err(error) = self.walk_chain((layer, block, count), look).await {
            Box::pin(self.lost.note_read(self, layer, block..block + count as u64, &error)).await;
            return Err(error);
        }
        let mut pieces = plan(&entries, into);
        for index in 0..pieces.len() {
            let Some(piece) = pieces.get_mut(index) else { continue };
            piece.pin = Some(self.rows.pin(piece.run.address.segment()));
            let target = piece.target(into);
            piece.started = self.rows.start_read(piece.run.address, &[target]);
        }
        self.finish_runs(layer, block, &entries, &mut pieces, into).await
    }

    /// Prefetches the map entry of a block that will be read or written soon.
    pub(crate) fn prefetch_entry(&self, volume: VolumeId, block: u64) {
        let Ok(layer) = self.layer_of(volume) else { return };
        if let Some(entry) = self.ledger.map.borrow().peek(layer, block) {
            reactor::prefetch(std::ptr::from_ref(entry).cast(), size_of_val(entry));
        }
    }

    /// Reads one block, the most common request, without planning.
    ///
    /// # Errors
    /// As [`Shard::read`].
    pub(crate) async fn read_block(self: &Rc<Self>, volume: VolumeId, block: u64, into: &Span) -> Result<()> {
        let _use = self.track_client_op();
        let _permit = self.permit_to_read(volume, 1).await;
        let layer = self.layer_of(volume)?;
        self.read_one(layer, block, into).await
    }

    async fn read_one(self: &Rc<Self>, layer: LayerId, block: u64, into: &Span) -> Result<()> {
        let found = self.ledger.map.borrow_mut().lookup_one_through(layer, block);
        let (_, entry) = match found {
            Ok(found) => found,
            Err(_) => {
                let look = |map: &mut Map| map.lookup_one_through(layer, block);
                match Box::pin(self.walk_chain((layer, block, 1), look)).await {
                    Ok(found) => found,
                    Err(error) => {
                        Box::pin(self.lost.note_read(self, layer, block..block + 1, &error)).await;
                        return Err(error);
                    }
                }
            }
        };
        let Mapping::Block { address, crc } = entry.mapping() else {
            assert!(!entry.is_unknown(), "R1: no entry of a map in service is unknown");
            into.zero();
            return Ok(());
        };
        let read = {
            let _pin = self.rows.pin(address.segment());
            self.rows.read_run(BlockRun { address, count: 1 }, &[crc], into).await
        };
        self.handle_outcome(read, layer, block, &[entry]).await
    }

    async fn finish_runs(
        self: &Rc<Self>,
        layer: LayerId,
        block: u64,
        entries: &[MapEntry],
        pieces: &mut [PlannedRead<'_>],
        into: &Span,
    ) -> Result<()> {
        // Every transfer completes before the reader is answered, even after another one has failed
        // (D2).
        let mut outcome = Ok(());
        for piece in &mut *pieces {
            let Some((drive, io)) = piece.started.take() else { continue };
            let crcs = crcs_of(entries, piece);
            let read = self.rows.finish_read(piece.run, &crcs, &piece.target(into), drive, io).await;
            let suspects = part(entries, piece.at..piece.at + piece.run.count as usize, "R1");
            piece.done = read.is_ok();
            let noted = self.handle_outcome(read, layer, block + piece.at as u64, suspects).await;
            outcome = outcome.and(noted);
        }
        outcome?;
        // Blocks on failed drives are computed from the rest of their rows, most of which a long
        // read has in memory by now.
        for index in 0..pieces.len() {
            let Some(piece) = pieces.get(index).filter(|piece| !piece.done) else { continue };
            let have = held_columns(pieces, &piece.run, into);
            let crcs = crcs_of(entries, piece);
            let rebuilt = self.rows.rebuild_run(piece.run, &crcs, &piece.target(into), &have).await;
            let rebuilt = rebuilt.map(|()| ReadOutcome::Degraded);
            let at = block + piece.at as u64;
            let suspects = part(entries, piece.at..piece.at + piece.run.count as usize, "R1");
            self.handle_outcome(rebuilt, layer, at, suspects).await?;
        }
        Ok(())
    }

    /// Handles the side results of a read: queues reconstructed blocks for healing, reports drives
    /// that are gone.
    async fn handle_outcome(
        self: &Rc<Self>,
        read: Result<ReadOutcome>,
        layer: LayerId,
        block: u64,
        entries: &[MapEntry],
    ) -> Result<()> {
        if let Ok(ReadOutcome::Direct | ReadOutcome::Degraded) = read
            && self.rows.gone_drives.borrow().is_empty()
        {
            return Ok(());
        }
        Box::pin(self.report_gone_drives()).await;
        if let Ok(ReadOutcome::Repaired) = read {
            (block..).zip(entries).for_each(|(block, entry)| self.heal.queue(layer, block, *entry));
        }
        if let Err(error) = &read {
            Box::pin(self.lost.note_read(self, layer, block..block + entries.len() as u64, error)).await;
        }
        read.map(|_| ()).map_err(|error| error.at_block(layer, LayerBlock::new(block)))
    }
}

impl PlannedRead<'_> {
    /// Returns the part of the request's memory that the run fills.
    fn target(&self, into: &Span) -> Span {
        into.slice(self.at * BLOCK..(self.at + self.run.count as usize) * BLOCK)
    }
}

/// Splits a request into runs of consecutive rows in a column; zeroes blocks that are not stored.
fn plan<'a>(entries: &[MapEntry], into: &Span) -> SmallVec<[PlannedRead<'a>; 8]> {
    let mut pieces: SmallVec<[PlannedRead<'a>; 8]> = SmallVec::new();
    for (at, entry) in entries.iter().enumerate() {
        let Some(address) = entry.address() else {
            assert!(!entry.is_unknown(), "R1: no entry of a map in service is unknown");
            into.slice(at * BLOCK..(at + 1) * BLOCK).zero();
            continue;
        };
        match pieces.last_mut() {
            Some(last)
                if last.at + last.run.count as usize == at
                    && last.run.address.plus_rows(last.run.count) == address =>
            {
                last.run.count += 1;
            }
            _ => {
                let run = BlockRun { address, count: 1 };
                pieces.push(PlannedRead { run, at, started: None, done: false, pin: None });
            }
        }
    }
    pieces
}

fn crcs_of(entries: &[MapEntry], piece: &PlannedRead<'_>) -> SmallVec<[u32; 64]> {
    let run = part(entries, piece.at..piece.at + piece.run.count as usize, "R1").iter();
    run.map(|entry| match entry.mapping() {
        Mapping::Block { crc, .. } => crc,
        Mapping::Absent | Mapping::Zero | Mapping::Unknown => panic!("R1: a run holds stored blocks only"),
    })
    .collect()
}

/// Returns the cells of a run's rows that other runs of the request have read and verified.
/// Rebuilding a run need not read these again.
fn held_columns(pieces: &[PlannedRead<'_>], wanted: &BlockRun, into: &Span) -> SmallVec<[CachedCells; 8]> {
    let (id, row, count) = (wanted.address.segment(), wanted.address.row().get(), wanted.count);
    let mut held: SmallVec<[CachedCells; 8]> = SmallVec::new();
    for piece in pieces.iter().filter(|piece| piece.done && piece.run.address.segment() == id) {
        let first = piece.run.address.row().get();
        let column = piece.run.address.column().get();
        let (start, end) = (first.max(row), (first + piece.run.count).min(row + count));
        if start < end && column != wanted.address.column().get() {
            let bytes = (start - first) as usize * BLOCK..(end - first) as usize * BLOCK;
            held.push(CachedCells { column, from: start - row, cells: piece.target(into).slice(bytes) });
        }
    }
    held
}
