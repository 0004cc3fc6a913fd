//! Verifies one shard, read-only: every pointer, every live block, every row.
//!
//! Checks (findings name the numbers of docs/invariants.md): every entry points into an existing
//! segment, no cell has two owners, live counts are the number of owners (S1), every owned block
//! has its CRC, every written row is a codeword.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::rc::Rc;

use codec::crc32c;
use format::limits::BLOCK;
use format::{Address, Column, DriveIndex, LayerId, MapEntry, Mapping, Row, SegmentId};
use reactor::Buffer;

use super::salvage::{Purpose, SalvageShard, rest_of_leaf};
use super::start::Candidate;
use crate::finding::{Finding, FindingKind};
use crate::invariant::to_index;
use crate::map::EntryRun;
use crate::row_reader::{PartialRows, RowReader};

/// Number of rows that are verified at once.
const ROWS_PER_READ: u32 = 64;

/// The findings of a shard.
#[derive(Debug, Default)]
pub(crate) struct ShardFindings {
    pub(crate) findings: Vec<Finding>,
    /// The lost blocks of layers, by cause.
    pub(crate) lost: Vec<LostCells>,
    /// The unreadable cells that are referred to.
    pub(crate) lost_cells: BTreeSet<Address>,
    /// Number of data blocks of each layer.
    pub(crate) layers: BTreeMap<LayerId, u64>,
    /// Number of map nodes and table blocks.
    pub(crate) meta_blocks: u64,
    /// Number of verified rows.
    pub(crate) rows: u64,
    /// Number of segments in use.
    pub(crate) segments: u64,
    /// Number of segments in use without live blocks.
    pub(crate) empty_segments: u64,
    /// Number of records behind the checkpoint.
    pub(crate) records: u64,
}

/// Blocks of a segment's column that cannot be reconstructed from their rows.
#[derive(Debug)]
pub(crate) struct LostCells {
    /// The finding that reports them.
    pub(crate) finding: Finding,
    /// Runs of blocks of layers.
    pub(crate) blocks: Vec<(LayerId, Range<u64>)>,
}

/// Facts about the cells that are known before they are read.
struct VerifyContext<'a> {
    owners: &'a Owners,
    incomplete: &'a BTreeSet<Address>,
    /// Blocks that were reported as unreadable before.
    reported: BTreeSet<Address>,
}

/// The owner and the CRC of each referenced cell.
type Owners = BTreeMap<Address, (u32, Owner)>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    Block(LayerId, u64),
    Node(LayerId),
    Table,
}

/// Verifies the readable part of a shard that was examined read-only; also returns the shard for
/// salvage. `None` if the candidate was taken apart before.
pub(crate) async fn verify_shard(candidate: &Rc<Candidate>) -> Option<(ShardFindings, SalvageShard)> {
    let mut found = ShardFindings::default();
    let shard = SalvageShard::of(candidate, Purpose::Verify).await?;
    found.records = shard.records();
    let owners = collect_owners(&shard, &mut found).await;
    check_counts(&shard, &owners, &mut found);
    let reported = shard.lost().iter().filter_map(|lost| lost.address()).collect();
    let known = VerifyContext { owners: &owners, incomplete: &shard.incomplete, reported };
    let ids: Vec<SegmentId> = shard.rows.segments.borrow().ids().collect();
    for id in ids {
        verify_segment(&shard.rows, id, &known, &mut found).await;
    }
    Some((found, shard))
}

/// Walks every tree and table; every pointer found makes its referrer an owner.
async fn collect_owners(shard: &SalvageShard, found: &mut ShardFindings) -> Owners {
    let mut owners = Owners::new();
    let layers = shard.ledger.map.borrow().layer_ids();
    for layer in layers {
        let blocks = collect_layer(shard, layer, &mut owners, found).await;
        let stored = shard.ledger.map.borrow().stored(layer);
        if stored != blocks && shard.is_counted() {
            let message = format!("layer {layer} stores {blocks} blocks, but its record counts {stored}");
            found.findings.push(Finding::new(FindingKind::Inconsistent, None, message));
        }
        found.layers.insert(layer, blocks);
    }
    let nodes = shard.ledger.map.borrow().stored_nodes();
    for (node, entry) in nodes {
        add_owner(&mut owners, entry, Owner::Node(node.layer), found);
        found.meta_blocks += 1;
    }
    for (layer, entry) in shard.lost_nodes() {
        add_owner(&mut owners, entry, Owner::Node(layer), found);
    }
    for entry in shard.tables.pointers() {
        if entry.address().is_some() {
            add_owner(&mut owners, entry, Owner::Table, found);
            found.meta_blocks += 1;
        }
    }
    owners
}

async fn collect_layer(
    shard: &SalvageShard,
    layer: LayerId,
    owners: &mut Owners,
    found: &mut ShardFindings,
) -> u64 {
    let (mut next, mut blocks) = (0, 0);
    while next < format::limits::LAYER_BLOCKS_MAX {
        let leaf = match shard.layer_entry_run(layer, next).await {
            EntryRun::Leaf => next,
            EntryRun::Same { until, .. } => {
                next = until;
                continue;
            }
        };
        let count = rest_of_leaf(leaf);
        let length = to_index(count);
        let entries = shard.entries_of(layer, leaf, length).await;
        for (block, entry) in (leaf..).zip(entries.iter()) {
            if entry.address().is_some() {
                add_owner(owners, *entry, Owner::Block(layer, block), found);
                blocks += 1;
            }
        }
        next = leaf + count;
    }
    blocks
}

fn add_owner(owners: &mut Owners, entry: MapEntry, owner: Owner, found: &mut ShardFindings) {
    let Mapping::Block { address, crc } = entry.mapping() else { return };
    if let Some((_, other)) = owners.insert(address, (crc, owner)) {
        let message = format!("S1: {address} belongs to {owner:?} and to {other:?}");
        found.findings.push(Finding::new(FindingKind::Inconsistent, None, message));
    }
}

/// Compares the live counts with the owners (S1).
fn check_counts(shard: &SalvageShard, owners: &Owners, found: &mut ShardFindings) {
    let segments = shard.rows.segments.borrow();
    let mut counts: BTreeMap<SegmentId, u32> = BTreeMap::new();
    let mut unplaced: BTreeMap<SegmentId, Vec<(Address, Owner)>> = BTreeMap::new();
    for (address, (_, owner)) in owners {
        let id = address.segment();
        *counts.entry(id).or_default() += 1;
        let record = segments.contains(id).then(|| segments.record(id));
        let exists = record.is_some_and(|record| {
            address.row().get() < record.rows && address.column().get() < record.scheme.data()
        });
        if exists {
            continue;
        }
        found.lost_cells.insert(*address);
        // A map without its newest part may refer to segments that are gone.
        if shard.is_counted() {
            let message = format!("S1: {address} is referred to by {owner:?} and does not exist");
            found.findings.push(Finding::new(FindingKind::Inconsistent, None, message));
        } else {
            unplaced.entry(id).or_default().push((*address, *owner));
        }
    }
    for (id, cells) in unplaced {
        let message =
            format!("{} blocks in segment {id} are lost: the zones of the segment are unknown", cells.len());
        let finding = Finding::new(FindingKind::Lost, None, message);
        found.lost.push(LostCells { finding, blocks: blocks_of(cells.iter()) });
    }
    for id in segments.ids() {
        let (counted, actual) = (segments.live(id), counts.get(&id).map_or(0, |count| *count));
        found.segments += 1;
        found.empty_segments += u64::from(actual == 0);
        if counted != actual && shard.is_counted() {
            let message =
                format!("S1: segment {id} holds {actual} live blocks, but its live count is {counted}");
            found.findings.push(Finding::new(FindingKind::Inconsistent, None, message));
        }
    }
}

/// Returns the blocks of layers that own cells, in runs.
fn blocks_of<'a>(cells: impl Iterator<Item = &'a (Address, Owner)>) -> Vec<(LayerId, Range<u64>)> {
    let mut blocks: Vec<(LayerId, u64)> = cells
        .filter_map(|(_, owner)| match owner {
            Owner::Block(layer, block) => Some((*layer, *block)),
            Owner::Node(_) | Owner::Table => None,
        })
        .collect();
    blocks.sort_unstable();
    let mut runs: Vec<(LayerId, Range<u64>)> = Vec::new();
    for (layer, block) in blocks {
        match runs.last_mut() {
            Some((of, run)) if *of == layer && run.end == block => run.end += 1,
            _ => runs.push((layer, block..block + 1)),
        }
    }
    runs
}

/// Reads the written part of a segment and verifies it, row by row.
async fn verify_segment(
    rows: &RowReader,
    id: SegmentId,
    known: &VerifyContext<'_>,
    found: &mut ShardFindings,
) {
    let record = rows.segments.borrow().record(id);
    let mut row = 0;
    let mut lost = Vec::new();
    while row < record.rows {
        let count = ROWS_PER_READ.min(record.rows - row);
        let piece = rows.read_partial(id, Row::new(row), count).await;
        for index in 0..count {
            verify_row(rows, &piece, index, known, found, &mut lost);
        }
        found.rows += u64::from(count);
        row += count;
    }
    lost.sort_unstable_by_key(|(address, _)| *address);
    for cells in lost.chunk_by(|(one, _), (next, _)| one.column() == next.column()) {
        found.lost.extend(lost_in_column(rows, cells));
    }
}

/// Returns the finding that blocks of a segment's column are lost.
fn lost_in_column(rows: &RowReader, cells: &[(Address, Owner)]) -> Option<LostCells> {
    let (address, owner) = cells.first()?;
    let drive = rows.segments.borrow().cell(*address).map(|cell| cell.drive);
    let message = match cells.len() - 1 {
        0 => format!("{address} ({owner:?}) is lost: it cannot be reconstructed from its row"),
        more => format!(
            "{address} ({owner:?}) and {more} more below it are lost: they cannot be reconstructed from their rows"
        ),
    };
    Some(LostCells {
        finding: Finding::new(FindingKind::Lost, drive, message),
        blocks: blocks_of(cells.iter()),
    })
}

fn verify_row(
    rows: &RowReader,
    piece: &PartialRows,
    index: u32,
    known: &VerifyContext<'_>,
    found: &mut ShardFindings,
    lost: &mut Vec<(Address, Owner)>,
) {
    let span = &piece.span;
    let scheme = rows.segments.borrow().scheme(span.id);
    let row = span.row.plus(index);
    let cell = |column: u8| {
        // A column may be missing in some of the rows only.
        rows.segments.borrow().cell(Address::new(span.id, Column::new(column), row))?;
        piece.cell(column, index)
    };
    let mut wrong = false;
    let incomplete = (0..scheme.width())
        .any(|column| known.incomplete.contains(&Address::new(span.id, Column::new(column), row)));
    for column in 0..scheme.data() {
        let address = Address::new(span.id, Column::new(column), row);
        let Some((crc, owner)) = known.owners.get(&address) else { continue };
        let drive = rows.segments.borrow().cell(address).map(|cell| cell.drive);
        if known.incomplete.contains(&address) || cell(column).is_some_and(|bytes| crc32c(bytes) == *crc) {
            continue;
        }
        wrong = true;
        let mut block = Buffer::new(BLOCK);
        let accept = |bytes: &[u8]| crc32c(bytes) == *crc;
        let there = piece.row(index, |column| cell(column).is_some());
        let recoverable =
            rows.rebuild_cell(scheme, Column::new(column), &there.cells, 0, block.as_mut_slice(), accept);
        if !recoverable {
            found.lost_cells.insert(address);
        }
        match (recoverable, incomplete) {
            (true, _) => report_block(rows, address, drive, *owner, BlockVerdict::Recoverable, found),
            (false, true) => report_block(rows, address, drive, *owner, BlockVerdict::Undecided, found),
            (false, false) if known.reported.contains(&address) => {}
            (false, false) => lost.push((address, *owner)),
        }
    }
    for column in piece.unreadable.iter().filter(|(_, at)| *at == index).map(|(column, _)| *column) {
        let address = Address::new(span.id, Column::new(column), row);
        if !known.owners.contains_key(&address) {
            let drive = rows.segments.borrow().cell(address).map(|cell| cell.drive);
            let message = format!("{address} cannot be read; it holds parity or no live block");
            found.findings.push(Finding::new(FindingKind::Damaged, drive, message));
        }
    }
    let all: Option<Vec<&[u8]>> = (0..scheme.width()).map(cell).collect();
    if wrong || incomplete || scheme.parity() == 0 {
        return;
    }
    let Some(all) = all else { return };
    let (data, parity) = all.split_at(usize::from(scheme.data()));
    let mut right: Vec<Buffer> = parity.iter().map(|_| Buffer::new(BLOCK)).collect();
    let mut outputs: Vec<&mut [u8]> = right.iter_mut().map(Buffer::as_mut_slice).collect();
    rows.code(scheme).encode(data, &mut outputs);
    for (column, (stored, right)) in (scheme.data()..).zip(parity.iter().zip(&right)) {
        if *stored != right.as_slice() {
            let address = Address::new(span.id, Column::new(column), row);
            // With a dead cell in the row, which has no CRC to check, any cell may be the wrong
            // one.
            let all_owned = (0..scheme.data())
                .all(|column| known.owners.contains_key(&Address::new(span.id, Column::new(column), row)));
            let drive = rows.segments.borrow().cell(address).map(|cell| cell.drive).filter(|_| all_owned);
            let message = format!("{address}: the parity does not fit the row's data");
            found.findings.push(Finding::new(FindingKind::Damaged, drive, message));
        }
    }
}

/// The outcome for a block with a damaged cell.
#[derive(Clone, Copy)]
enum BlockVerdict {
    /// It can be reconstructed from the other columns.
    Recoverable,
    /// Its row is incomplete: the record was never acknowledged as durable, and the next opening
    /// may drop it.
    Undecided,
}

/// Reports a block that differs from its owner's CRC. A block on a drive that is not in use is no
/// damage.
fn report_block(
    rows: &RowReader,
    address: Address,
    drive: Option<DriveIndex>,
    owner: Owner,
    fate: BlockVerdict,
    found: &mut ShardFindings,
) {
    let in_use = drive.is_some_and(|drive| rows.drives.is_online(drive));
    let finding = match (fate, in_use) {
        (BlockVerdict::Recoverable, false) => return,
        (BlockVerdict::Recoverable, true) => {
            let message =
                format!("{address} ({owner:?}) is damaged; it can be reconstructed from the other columns");
            Finding::new(FindingKind::Damaged, drive, message)
        }
        (BlockVerdict::Undecided, _) => {
            let message = format!(
                "{address} ({owner:?}) is damaged; it was never flushed, and the next opening keeps or drops it"
            );
            Finding::new(FindingKind::Damaged, drive, message)
        }
    };
    found.findings.push(finding);
}
