//! Surveys of a volume: its readable, stale and lost ranges, in order.

use std::collections::VecDeque;
use std::rc::Rc;

use format::limits::BLOCK;
use reactor::Reactor;

use super::catalogue::SalvageableVolume;
use crate::invariant::to_index;
use crate::shard::{BlockState, Probe, SalvageShard, StateRun};

/// The smallest window in blocks, 1 GiB. Windows of one volume are surveyed concurrently.
const WINDOW_MIN: u64 = 1 << 18;
/// The most windows of a volume.
const WINDOWS_MAX: u64 = 1 << 12;
/// Number of windows that are surveyed concurrently.
const WINDOWS: usize = 16;
/// The largest volume whose lost ranges are exact, in blocks, 1 TiB.
const EXACT_BLOCKS: u64 = 1 << 28;
/// The shortest lost run of a shard that is reported as one range in a larger volume, in blocks,
/// 16 MiB.
const LONG_BLOCKS: u64 = 1 << 12;

/// A range of bytes of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ByteRange {
    /// The first byte.
    pub offset: u64,
    /// The length in bytes.
    pub length: u64,
}

/// The readable and the lost bytes of a volume or snapshot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VolumeSurvey {
    /// Bytes of up-to-date data that can be read.
    pub readable: u64,
    /// Bytes of readable data that may be older than the newest write, or deleted since. They are
    /// read only if stale data is accepted.
    pub stale: u64,
    /// Bytes in ranges that cannot be read. Parts of them may have been holes.
    pub lost: u64,
    /// The ranges that cannot be read, in order. In a volume above 1 TiB a long range may include
    /// holes of other shards.
    pub lost_ranges: Vec<ByteRange>,
    /// The ranges that may be stale, in order, including holes.
    pub stale_ranges: Vec<ByteRange>,
}

/// A cursor over the runs of blocks of a volume.
pub(crate) struct RunCursor<'a> {
    shards: &'a [Rc<SalvageShard>],
    volume: &'a SalvageableVolume,
    probes: &'a [Probe],
    next: u64,
    end: u64,
    /// Runs fetched from each shard and not consumed yet.
    fetched: Vec<FetchedRuns>,
}

#[derive(Default)]
struct FetchedRuns {
    block: u64,
    runs: VecDeque<StateRun>,
}

impl<'a> RunCursor<'a> {
    /// A cursor over blocks `first..end`. `probes` holds the method of finding unreadable blocks,
    /// for each shard.
    pub(crate) fn new(
        shards: &'a [Rc<SalvageShard>],
        volume: &'a SalvageableVolume,
        probes: &'a [Probe],
        first: u64,
        end: u64,
    ) -> Self {
        let fetched = shards.iter().map(|_| FetchedRuns::default()).collect();
        Self { shards, volume, probes, next: first, end, fetched }
    }

    /// Returns the next run of blocks in the same state, and its first block. Adjacent runs may
    /// have the same state.
    pub(crate) async fn next(&mut self) -> Option<(u64, StateRun)> {
        if self.next >= self.end {
            return None;
        }
        let first = self.next;
        let slices = self.volume.slices;
        let (shard, local) = slices.locate(first);
        let run = self.run_at(shard, local).await?;
        let slice_end = slices.end_of_slice(first).min(self.end);
        let (whole, blocks) = (run.blocks, run.blocks.min(slice_end - first));
        self.next = first + blocks;
        let run = StateRun { blocks, ..run };
        let is_skippable = |run: &StateRun| match run.state {
            BlockState::Hole => !run.stale,
            BlockState::Lost => self.volume.blocks() > EXACT_BLOCKS && run.blocks >= LONG_BLOCKS,
            BlockState::Data => false,
        };
        let whole = StateRun { blocks: whole, ..run };
        if !is_skippable(&whole) || self.next < slice_end {
            return Some((first, run));
        }
        // A hole up to the end of the slice is extended over the holes of the other shards, in one
        // step. So is a long lost run; holes of other shards in it count as lost, to limit the
        // number of ranges.
        let mut state = run.state;
        let mut until = self.end;
        for shard in slices.holders() {
            let bound = slices.local_bound(shard, self.next);
            if bound >= slices.local_bound(shard, self.end) {
                continue;
            }
            let run = self.run_at(shard, bound).await?;
            let skipped = if is_skippable(&run) { run.blocks } else { 0 };
            if skipped > 0 && run.state == BlockState::Lost {
                state = BlockState::Lost;
            }
            until = until.min(slices.volume_block(shard, bound + skipped).unwrap_or(self.end));
        }
        self.next = self.next.max(until);
        Some((first, StateRun { blocks: self.next - first, state, ..run }))
    }

    /// Returns the run that begins at a block of a shard. The blocks must increase from call to
    /// call.
    async fn run_at(&mut self, shard: usize, local: u64) -> Option<StateRun> {
        let end = self.volume.slices.local_bound(shard, self.end).max(local + 1);
        let (source, probe) = (self.shards.get(shard)?, self.probes.get(shard)?);
        let fetched = self.fetched.get_mut(shard)?;
        while let Some(run) = fetched.runs.front_mut()
            && fetched.block < local
        {
            let skipped = run.blocks.min(local - fetched.block);
            fetched.block += skipped;
            run.blocks -= skipped;
            if run.blocks == 0 {
                fetched.runs.pop_front();
            }
        }
        if fetched.runs.is_empty() {
            fetched.block = local;
            fetched.runs = source.states(&self.volume.chain, local, end, probe).await.into();
        }
        fetched.runs.front().copied()
    }
}

impl VolumeSurvey {
    fn add(&mut self, volume: &SalvageableVolume, first: u64, run: StateRun) {
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

    fn merge(&mut self, other: Self) {
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

/// Surveys a whole volume. `progress` is called with the number of bytes surveyed since the last
/// call.
pub(crate) async fn survey(
    shards: &Rc<[Rc<SalvageShard>]>,
    volume: &Rc<SalvageableVolume>,
    probes: &Rc<[Probe]>,
    mut progress: impl FnMut(u64),
) -> VolumeSurvey {
    let mut survey = VolumeSurvey::default();
    let blocks = volume.blocks();
    let length = WINDOW_MIN.max(blocks.div_ceil(WINDOWS_MAX));
    let window = |first: u64| {
        let (shards, volume, probes) = (shards.clone(), volume.clone(), probes.clone());
        Reactor::current().spawn(async move {
            let mut part = VolumeSurvey::default();
            let mut runs = RunCursor::new(&shards, &volume, &probes, first, (first + length).min(blocks));
            while let Some((first, run)) = runs.next().await {
                part.add(&volume, first, run);
            }
            part
        })
    };
    let mut firsts = (0..blocks).step_by(to_index(length));
    let mut running = VecDeque::new();
    loop {
        while running.len() < WINDOWS
            && let Some(first) = firsts.next()
        {
            running.push_back((first, window(first)));
        }
        let Some((first, task)) = running.pop_front() else { return survey };
        survey.merge(task.await);
        progress((length.min(blocks - first)) * BLOCK as u64);
    }
}
