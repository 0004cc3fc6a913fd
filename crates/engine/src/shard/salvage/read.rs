//! Reads blocks through a chain of layers: returns the readable ones, and an error for each other
//! one.

use std::collections::BTreeSet;

use format::limits::BLOCK;
use format::{Address, Column, LayerBlock, MapEntry, Mapping};
use reactor::{Buffer, Span};

use super::{LayerChain, Purpose, ResolvedEntry, SalvageShard, rest_of_leaf};
use crate::error::{Error, ErrorKind, ErrorLocation};
use crate::invariant::{narrow, part, to_index};
use crate::map::{EntryRun, MissingNode};
use crate::row_reader::BlockRun;

/// Maximum number of attempts to read a block: a failing drive may return it at a later attempt.
const READ_ATTEMPTS_MAX: u32 = 3;

/// A run of unreadable blocks.
#[derive(Clone, Debug)]
pub(crate) struct LostRun {
    /// The first block.
    pub(crate) block: u64,
    /// Their number.
    pub(crate) blocks: u64,
    /// The cause for the first block, with its location.
    pub(crate) error: Error,
}

/// A run of blocks in the same state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StateRun {
    /// Their number.
    pub(crate) blocks: u64,
    pub(crate) state: BlockState,
    /// Newer data may have been written, or the blocks deleted.
    pub(crate) stale: bool,
}

/// The state of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BlockState {
    /// The block reads as zeros.
    Hole,
    /// The block holds data.
    Data,
    /// The block cannot be read.
    Lost,
}

/// The method to determine whether a block can be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Probe {
    /// Checks the presence of drives. A damaged block counts as readable.
    Drives,
    /// Reads the block.
    Read,
    /// A block is readable if it is not in one of these cells.
    Known(BTreeSet<Address>),
}

impl SalvageShard {
    /// Reads blocks from `block` on into `into`. Unreadable blocks are zeroed and returned. Blocks
    /// that may be stale are read only with `accept_stale`.
    pub(crate) async fn read(
        &self,
        chain: &LayerChain,
        block: u64,
        into: &Span,
        accept_stale: bool,
    ) -> Vec<LostRun> {
        let count = (into.len() / BLOCK) as u64;
        let mut lost = Vec::new();
        let mut at = 0;
        while at < count {
            let part = rest_of_leaf(block + at).min(count - at);
            let bytes = to_index(at) * BLOCK..to_index(at + part) * BLOCK;
            self.read_leaf(chain, block + at, &into.slice(bytes), accept_stale, &mut lost).await;
            at += part;
        }
        lost
    }

    /// Reads blocks of one leaf.
    async fn read_leaf(
        &self,
        chain: &LayerChain,
        block: u64,
        into: &Span,
        accept_stale: bool,
        lost: &mut Vec<LostRun>,
    ) {
        let shown = self.entries(chain, block, into.len() / BLOCK).await;
        let mut at = 0;
        while let Some(first) = shown.get(at) {
            let run = run_of(part(&shown, at..shown.len(), "R1"));
            let target = into.slice(at * BLOCK..(at + run) * BLOCK);
            let place = block + at as u64;
            match first.entry.mapping() {
                Mapping::Absent | Mapping::Zero => target.zero(),
                Mapping::Unknown => {
                    target.zero();
                    note(lost, place, run as u64, self.unknown_error(chain, place));
                }
                Mapping::Block { .. } if first.stale && !accept_stale => {
                    target.zero();
                    note(lost, place, run as u64, self.unknown_error(chain, place));
                }
                Mapping::Block { address, .. } => {
                    let of = part(&shown, at..at + run, "R1");
                    self.read_run(chain, place, address, of, &target, lost).await;
                }
            }
            at += run;
        }
    }

    /// Reads blocks in consecutive rows; one by one if the whole run cannot be read.
    async fn read_run(
        &self,
        chain: &LayerChain,
        block: u64,
        address: Address,
        shown: &[ResolvedEntry],
        into: &Span,
        lost: &mut Vec<LostRun>,
    ) {
        let crcs: Vec<u32> = shown.iter().map(|shown| crc_of(shown.entry)).collect();
        let whole = BlockRun { address, count: narrow(shown.len(), "R1") };
        if self.read_cells(whole, &crcs, into).await.is_ok() {
            return;
        }
        for (at, (crc, shown)) in crcs.iter().zip(shown).enumerate() {
            let down = narrow(at, "R1");
            let one = BlockRun { address: address.plus_rows(down), count: 1 };
            let target = into.slice(at * BLOCK..(at + 1) * BLOCK);
            if let Err(error) = self.read_cells(one, &[*crc], &target).await {
                target.zero();
                let place = block + at as u64;
                let layer = shown.layer.unwrap_or_else(|| chain.top());
                note(lost, place, 1, error.at_block(layer, LayerBlock::new(place)));
            }
        }
    }

    /// Reads and verifies cells.
    pub(super) async fn read_cells(
        &self,
        run: BlockRun,
        crcs: &[u32],
        into: &Span,
    ) -> crate::error::Result<()> {
        let id = run.address.segment();
        let place = ErrorLocation { address: Some(run.address), ..ErrorLocation::default() };
        if !self.rows.segments.borrow().contains(id) {
            return Err(Error::corrupt("the block is in a segment whose zones are unknown", place, None));
        }
        if run.address.column().get() >= self.rows.segments.borrow().scheme(id).data() {
            return Err(Error::corrupt("the block is not in a data column of its segment", place, None));
        }
        let _pin = self.rows.pin(id);
        let mut tries = 1;
        loop {
            let read = self.rows.read_run(run, crcs, into).await;
            self.handle_gone_drives();
            if read.is_ok() || tries == READ_ATTEMPTS_MAX {
                if read.is_err() && self.is_torn(run) {
                    self.lost_torn_row.set(true);
                }
                return read.map(|_| ());
            }
            tries += 1;
        }
    }

    /// Returns true if a crash left a row of the run incomplete.
    fn is_torn(&self, run: BlockRun) -> bool {
        let rows = run.address.row().get()..run.address.row().get() + run.count;
        let is_in =
            |cell: &Address| cell.segment() == run.address.segment() && rows.contains(&cell.row().get());
        self.incomplete.iter().any(is_in)
    }

    /// Returns true if a row that a crash left incomplete could not be read.
    pub(crate) fn has_lost_torn_row(&self) -> bool {
        self.lost_torn_row.get()
    }

    /// Takes gone drives out of use, so that no later read waits for them. The verifier tries every
    /// block.
    pub(super) fn handle_gone_drives(&self) {
        let gone = std::mem::take(&mut *self.rows.gone_drives.borrow_mut());
        for (drive, error) in gone.into_iter().filter(|_| self.purpose == Purpose::Read) {
            tracing::warn!(drive = %drive.index, %error, "drive gone");
            self.rows.drives.take_offline(drive.index);
        }
    }

    /// Returns the state of blocks from `block` on, below `end`: of those of one leaf, or of more
    /// if all are alike.
    pub(crate) async fn states(
        &self,
        chain: &LayerChain,
        block: u64,
        end: u64,
        probe: &Probe,
    ) -> Vec<StateRun> {
        if let EntryRun::Same { until, entry } = self.entry_run(chain, block).await {
            let state = if entry.is_unknown() { BlockState::Lost } else { BlockState::Hole };
            return vec![StateRun { blocks: until.min(end) - block, state, stale: false }];
        }
        let count = rest_of_leaf(block).min(end - block);
        let shown = self.entries(chain, block, to_index(count)).await;
        let mut lost = Vec::new();
        if *probe == Probe::Read {
            let buffer = Buffer::new(to_index(count) * BLOCK);
            lost = self.read(chain, block, &buffer.span(), true).await;
        }
        let is_lost = |at: u64, address: Address| match probe {
            Probe::Drives => !self.has_enough_drives(address),
            Probe::Read => lost.iter().any(|run| (run.block..run.block + run.blocks).contains(&at)),
            Probe::Known(cells) => {
                cells.contains(&address) || !self.rows.segments.borrow().contains(address.segment())
            }
        };
        let mut states: Vec<StateRun> = Vec::new();
        for (at, shown) in (block..).zip(shown) {
            let state = match shown.entry.mapping() {
                Mapping::Absent | Mapping::Zero => BlockState::Hole,
                Mapping::Unknown => BlockState::Lost,
                Mapping::Block { address, .. } if is_lost(at, address) => BlockState::Lost,
                Mapping::Block { .. } => BlockState::Data,
            };
            append(&mut states, state, shown.stale && state != BlockState::Lost);
        }
        states
    }

    /// Returns true if enough columns of a block's row are on drives that are present.
    fn has_enough_drives(&self, address: Address) -> bool {
        let segments = self.rows.segments.borrow();
        let id = address.segment();
        if !segments.contains(id) {
            return false;
        }
        let scheme = segments.scheme(id);
        let is_there = |column: u8| {
            let cell = segments.cell_at(id, Column::new(column), address.row());
            cell.is_some_and(|cell| self.rows.drives.is_online(cell.drive))
        };
        let own = address.column().get();
        if own >= scheme.data() {
            return false;
        }
        let others = (0..scheme.width()).filter(|column| *column != own && is_there(*column)).count();
        is_there(own) || others >= usize::from(scheme.data())
    }

    /// Returns the error for a block with an unknown entry.
    fn unknown_error(&self, chain: &LayerChain, block: u64) -> Error {
        let nodes = self.nodes.borrow();
        for layer in &chain.layers {
            let covering = (0..).map_while(|level| {
                let node = MissingNode::covering(*layer, block, level);
                (level < LEVELS).then_some(node)
            });
            for node in covering {
                if let Some(lost) = nodes.get(&node) {
                    let place = ErrorLocation {
                        address: lost.address(),
                        block: Some((*layer, LayerBlock::new(block))),
                        ..ErrorLocation::default()
                    };
                    return Error::corrupt("the map node that refers to a block cannot be read", place, None);
                }
            }
        }
        let layer = chain.top();
        let message = "the tables that refer to a block cannot be read";
        Error::new(ErrorKind::Corrupt, message).at_block(layer, LayerBlock::new(block))
    }
}

/// Number of levels of the largest map.
pub(super) const LEVELS: u8 = 5;

fn crc_of(entry: MapEntry) -> u32 {
    match entry.mapping() {
        Mapping::Block { crc, .. } => crc,
        Mapping::Absent | Mapping::Zero | Mapping::Unknown => 0,
    }
}

/// Returns the number of leading blocks that are in consecutive rows, or that are all not stored.
fn run_of(shown: &[ResolvedEntry]) -> usize {
    let Some(first) = shown.first() else { return 0 };
    let is_next = |(down, shown): &(u32, &ResolvedEntry)| match (first.entry.address(), shown.entry.address())
    {
        (Some(first_address), Some(address)) => {
            address == first_address.plus_rows(*down) && shown.stale == first.stale
        }
        (None, None) => shown.entry == first.entry,
        _ => false,
    };
    (0..).zip(shown).take_while(is_next).count()
}

fn note(lost: &mut Vec<LostRun>, block: u64, blocks: u64, error: Error) {
    match lost.last_mut() {
        Some(last) if last.block + last.blocks == block => last.blocks += blocks,
        _ => lost.push(LostRun { block, blocks, error }),
    }
}

fn append(states: &mut Vec<StateRun>, state: BlockState, stale: bool) {
    match states.last_mut() {
        Some(last) if last.state == state && last.stale == stale => last.blocks += 1,
        _ => states.push(StateRun { blocks: 1, state, stale }),
    }
}
