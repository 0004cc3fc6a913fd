//! Finds the ranges of a volume that can be read, from its beginning to its end.

use std::collections::VecDeque;
use std::rc::Rc;

use format::limits::BLOCK;
use reactor::Reactor;

use super::catalogue::KnownVolume;
use crate::shard::{BlockState, Probe, SalvageShard, StateRun};

/// Blocks of a window at least, 1 GiB: windows of one volume are surveyed concurrently.
const WINDOW_MIN: u64 = 1 << 18;
/// Windows of a volume at most.
const WINDOWS_MAX: u64 = 1 << 12;
/// Windows that are surveyed concurrently.
const WINDOWS: usize = 16;
/// Blocks of the largest volume whose lost ranges are told exactly, 1 TiB.
const EXACT_BLOCKS: u64 = 1 << 28;
/// Blocks of a shard from which an unreadable stretch of a larger volume is told as one range, 16 MiB.
const LONG_BLOCKS: u64 = 1 << 12;

/// A range of bytes of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ByteRange {
    /// Its first byte.
    pub offset: u64,
    /// Its length in bytes.
    pub length: u64,
}

/// The readable and the lost bytes of a volume or snapshot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VolumeSurvey {
    /// Data that can be read and is the newest.
    pub readable: u64,
    /// Data that can be read and may be older than the newest write, or deleted since. It is read only if that was accepted.
    pub stale: u64,
    /// The length of the ranges that cannot be read. Parts of them may have been holes.
    pub lost: u64,
    /// The ranges that cannot be read, in order. Of a volume above 1 TiB, a long range may include what another shard holds: holes.
    pub lost_ranges: Vec<ByteRange>,
    /// The ranges that may be stale, in order; holes included.
    pub stale_ranges: Vec<ByteRange>,
}

/// A walk over the blocks of a volume, from some block on.
pub(crate) struct Walk<'a> {
    shards: &'a [Rc<SalvageShard>],
    volume: &'a KnownVolume,
    looks: &'a [Probe],
    next: u64,
    end: u64,
    /// The states of blocks that each shard has told.
    ahead: Vec<Ahead>,
}

#[derive(Default)]
struct Ahead {
    at: u64,
    runs: VecDeque<StateRun>,
}

impl<'a> Walk<'a> {
    /// A walk over blocks `first..end`. `looks` has the way to find unreadable blocks for each shard.
    pub(crate) fn new(
        shards: &'a [Rc<SalvageShard>],
        volume: &'a KnownVolume,
        looks: &'a [Probe],
        first: u64,
        end: u64,
    ) -> Self {
        let ahead = shards.iter().map(|_| Ahead::default()).collect();
        Self { shards, volume, looks, next: first, end, ahead }
    }

    /// The next run of blocks in the same state, and its first block. Neighbouring runs may have the same state.
    pub(crate) async fn next(&mut self) -> Option<(u64, StateRun)> {
        if self.next >= self.end {
            return None;
        }
        let first = self.next;
        let slices = self.volume.slices;
        let (shard, local) = slices.place(first);
        let run = self.run_at(shard, local).await?;
        let slice_end = slices.end_of_slice(first).min(self.end);
        let (whole, blocks) = (run.blocks, run.blocks.min(slice_end - first));
        self.next = first + blocks;
        let run = StateRun { blocks, ..run };
        let passes = |run: &StateRun| match run.state {
            BlockState::Hole => !run.stale,
            BlockState::Lost => self.volume.blocks() > EXACT_BLOCKS && run.blocks >= LONG_BLOCKS,
            BlockState::Data => false,
        };
        let whole = StateRun { blocks: whole, ..run };
        if !passes(&whole) || self.next < slice_end {
            return Some((first, run));
        }
        // A hole up to the end of the slice: those of the other shards are passed as well, however long. So is a long stretch of which
        // nothing is known; holes of other shards in it count as lost, since it would have as many ranges as slices.
        let mut state = run.state;
        let mut until = self.end;
        for shard in slices.holders() {
            let bound = slices.local_bound(shard, self.next);
            if bound >= slices.local_bound(shard, self.end) {
                continue;
            }
            let run = self.run_at(shard, bound).await?;
            let passed = if passes(&run) { run.blocks } else { 0 };
            if passed > 0 && run.state == BlockState::Lost {
                state = BlockState::Lost;
            }
            until = until.min(slices.global_block(shard, bound + passed).unwrap_or(self.end));
        }
        self.next = self.next.max(until);
        Some((first, StateRun { blocks: self.next - first, state, ..run }))
    }

    /// The run that begins at a block of a shard. The blocks must rise from call to call.
    async fn run_at(&mut self, shard: usize, local: u64) -> Option<StateRun> {
        let end = self.volume.slices.local_bound(shard, self.end).max(local + 1);
        let (of, look) = (self.shards.get(shard)?, self.looks.get(shard)?);
        let ahead = self.ahead.get_mut(shard)?;
        while let Some(run) = ahead.runs.front_mut()
            && ahead.at < local
        {
            let passed = run.blocks.min(local - ahead.at);
            ahead.at += passed;
            run.blocks -= passed;
            if run.blocks == 0 {
                ahead.runs.pop_front();
            }
        }
        if ahead.runs.is_empty() {
            ahead.at = local;
            ahead.runs = of.states(&self.volume.chain, local, end, look).await.into();
        }
        ahead.runs.front().copied()
    }
}

impl VolumeSurvey {
    fn add(&mut self, volume: &KnownVolume, first: u64, run: StateRun) {
        let offset = first * BLOCK as u64;
        let end = (offset + run.blocks * BLOCK as u64).min(volume.record.size);
        let range = ByteRange { offset, length: end.saturating_sub(offset) };
        let stale = run.stale || volume.stale;
        if run.state == BlockState::Lost {
            self.lost += range.length;
            append(&mut self.lost_ranges, range);
            return;
        }
        if stale {
            append(&mut self.stale_ranges, range);
        }
        match (run.state, stale) {
            (BlockState::Data, true) => self.stale += range.length,
            (BlockState::Data, false) => self.readable += range.length,
            _ => {}
        }
    }

    fn join(&mut self, other: Self) {
        self.readable += other.readable;
        self.stale += other.stale;
        self.lost += other.lost;
        other.lost_ranges.into_iter().for_each(|range| append(&mut self.lost_ranges, range));
        other.stale_ranges.into_iter().for_each(|range| append(&mut self.stale_ranges, range));
    }
}

fn append(ranges: &mut Vec<ByteRange>, range: ByteRange) {
    match ranges.last_mut() {
        _ if range.length == 0 => {}
        Some(last) if last.offset + last.length == range.offset => last.length += range.length,
        _ => ranges.push(range),
    }
}

/// Surveys a whole volume. `passed` is called with the number of bytes that were looked at since the last call.
pub(crate) async fn survey(
    shards: &Rc<[Rc<SalvageShard>]>,
    volume: &Rc<KnownVolume>,
    looks: &Rc<[Probe]>,
    mut passed: impl FnMut(u64),
) -> VolumeSurvey {
    let mut found = VolumeSurvey::default();
    let blocks = volume.blocks();
    let length = WINDOW_MIN.max(blocks.div_ceil(WINDOWS_MAX));
    let window = |first: u64| {
        let (shards, volume, looks) = (shards.clone(), volume.clone(), looks.clone());
        Reactor::current().spawn(async move {
            let mut found = VolumeSurvey::default();
            let mut walk = Walk::new(&shards, &volume, &looks, first, (first + length).min(blocks));
            while let Some((first, run)) = walk.next().await {
                found.add(&volume, first, run);
            }
            found
        })
    };
    let mut firsts = (0..blocks).step_by(usize::try_from(length).unwrap_or(usize::MAX));
    let mut running = VecDeque::new();
    loop {
        while running.len() < WINDOWS
            && let Some(first) = firsts.next()
        {
            running.push_back((first, window(first)));
        }
        let Some((first, task)) = running.pop_front() else { return found };
        found.join(task.await);
        passed((length.min(blocks - first)) * BLOCK as u64);
    }
}
