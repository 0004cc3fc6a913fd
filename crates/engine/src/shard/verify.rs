//! The verifier's look at one shard, read-only: every pointer, every live block, every row.
//!
//! Checks (numbers of docs/invariants.md in the findings): every entry points into a segment that exists, no cell has
//! two owners, live counts are the number of owners (S1), every owned block has its CRC, every written row is a codeword.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use codec::crc32c;
use format::limits::BLOCK;
use format::{Address, Column, DriveIndex, LayerId, MapEntry, Row, SegmentId, Slot, VolumeRecord};
use reactor::Buffer;
use smallvec::SmallVec;

use super::replay::replay_record;
use super::start::{Candidate, Dismantled};
use super::walk::walk_map;
use crate::check::{Finding, FindingKind};
use crate::error::Result;
use crate::ledger::Ledger;
use crate::rows::{Piece, Rows, Run};

/// Rows that are verified in one go.
const ROWS_AT_ONCE: u32 = 64;

/// What was found in a shard.
#[derive(Debug, Default)]
pub(crate) struct ShardFindings {
    pub(crate) findings: Vec<Finding>,
    /// Data blocks of each layer.
    pub(crate) layers: BTreeMap<LayerId, u64>,
    /// Map nodes and table blocks.
    pub(crate) meta_blocks: u64,
    /// Rows verified.
    pub(crate) rows: u64,
    /// Segments in use.
    pub(crate) segments: u64,
    /// Those of them in which nothing lives.
    pub(crate) empty_segments: u64,
    /// Records behind the checkpoint.
    pub(crate) records: u64,
    /// Volume records, of shard 0.
    pub(crate) volumes: Vec<VolumeRecord>,
}

/// What is known of the cells before they are read.
struct Known<'a> {
    owners: &'a Owners,
    incomplete: &'a BTreeSet<Address>,
}

/// Who owns a cell.
type Owners = BTreeMap<Address, (u32, Owner)>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    Block(LayerId, u64),
    Node(LayerId),
    Table,
}

/// Verifies a shard that was examined read-only.
///
/// # Errors
/// When the map cannot be read at all; what can be passed over is a finding instead.
pub(crate) async fn verify_shard(candidate: &Rc<Candidate>) -> Result<ShardFindings> {
    let mut found = ShardFindings::default();
    let Some(parts) = candidate.dismantle() else { return Ok(found) };
    for record in &parts.records {
        replay_record(&parts.ledger, &parts.rows, record).await?;
    }
    found.records = parts.records.len() as u64;
    let owners = collect_owners(&parts, &mut found).await?;
    check_counts(&parts.rows, &owners, &mut found);
    let ids: Vec<SegmentId> = parts.rows.segments.borrow().ids().collect();
    for id in ids {
        let known = Known { owners: &owners, incomplete: &parts.incomplete };
        verify_segment(&parts.rows, id, &known, &mut found).await;
    }
    Ok(found)
}

/// Walks every tree and table; every pointer found is an owner.
async fn collect_owners(parts: &Dismantled, found: &mut ShardFindings) -> Result<Owners> {
    let mut owners = Owners::new();
    let layers = parts.ledger.map.borrow().layer_ids();
    for layer in layers {
        let blocks = collect_layer(&parts.ledger, &parts.rows, layer, &mut owners, found).await?;
        let stored = parts.ledger.map.borrow().stored(layer);
        if stored != blocks {
            let message = format!("layer {layer} is said to store {stored} blocks and stores {blocks}");
            found.findings.push(Finding::new(FindingKind::Inconsistent, None, message));
        }
        found.layers.insert(layer, blocks);
    }
    let nodes = parts.ledger.map.borrow().stored_nodes();
    for (layer, entry) in nodes {
        own(&mut owners, entry, Owner::Node(layer), found);
        found.meta_blocks += 1;
    }
    for entry in parts.tables.pointers() {
        if entry.address().is_some() {
            own(&mut owners, entry, Owner::Table, found);
            found.meta_blocks += 1;
        }
    }
    Ok(owners)
}

async fn collect_layer(
    ledger: &Ledger,
    rows: &Rows,
    layer: LayerId,
    owners: &mut Owners,
    found: &mut ShardFindings,
) -> Result<u64> {
    let end = format::limits::LAYER_BLOCKS_MAX;
    let (mut next, mut blocks) = (0, 0);
    while let Some(leaf) = walk_map(ledger, rows, |map| map.next_leaf(layer, next, end)).await? {
        let count = format::NODE_ENTRIES as u64 - leaf % format::NODE_ENTRIES as u64;
        let mut entries = SmallVec::new();
        let length = usize::try_from(count).unwrap_or(usize::MAX);
        walk_map(ledger, rows, |map| map.lookup(layer, leaf, length, &mut entries)).await?;
        for (block, entry) in (leaf..).zip(entries.iter()) {
            if entry.address().is_some() {
                own(owners, *entry, Owner::Block(layer, block), found);
                blocks += 1;
                if layer == LayerId::SYSTEM {
                    read_volume(rows, *entry, block, found).await;
                }
            }
        }
        next = leaf + count;
    }
    Ok(blocks)
}

async fn read_volume(rows: &Rows, entry: MapEntry, block: u64, found: &mut ShardFindings) {
    let Slot::Block { address, crc } = entry.slot() else { return };
    let buffer = Buffer::new(BLOCK);
    if rows.read_run(Run { address, count: 1 }, &[crc], &buffer.span()).await.is_err() {
        return;
    }
    match VolumeRecord::decode(buffer.as_slice()) {
        Ok(record) => found.volumes.push(record),
        Err(error) => {
            let message = format!("catalogue record {block}: {error}");
            found.findings.push(Finding::new(FindingKind::Inconsistent, None, message));
        }
    }
}

fn own(owners: &mut Owners, entry: MapEntry, owner: Owner, found: &mut ShardFindings) {
    let Slot::Block { address, crc } = entry.slot() else { return };
    if let Some((_, other)) = owners.insert(address, (crc, owner)) {
        let message = format!("S1: {address} belongs to {owner:?} and to {other:?}");
        found.findings.push(Finding::new(FindingKind::Inconsistent, None, message));
    }
}

/// Compares the live counts with the owners (S1).
fn check_counts(rows: &Rows, owners: &Owners, found: &mut ShardFindings) {
    let segments = rows.segments.borrow();
    let mut counts: BTreeMap<SegmentId, u32> = BTreeMap::new();
    for (address, (_, owner)) in owners {
        *counts.entry(address.segment()).or_default() += 1;
        let record = segments.contains(address.segment()).then(|| segments.record(address.segment()));
        if record.is_none_or(|record| {
            address.row().get() >= record.rows || address.column().get() >= record.scheme.data()
        }) {
            let message = format!("S1: {address} is referred to by {owner:?} and does not exist");
            found.findings.push(Finding::new(FindingKind::Inconsistent, None, message));
        }
    }
    for id in segments.ids() {
        let (said, is) = (segments.live(id), counts.get(&id).copied().unwrap_or(0));
        found.segments += 1;
        found.empty_segments += u64::from(is == 0);
        if said != is {
            let message = format!("S1: segment {id} is said to hold {said} live blocks and holds {is}");
            found.findings.push(Finding::new(FindingKind::Inconsistent, None, message));
        }
    }
}

/// Reads all of a segment that was written and verifies it, row by row.
async fn verify_segment(rows: &Rows, id: SegmentId, known: &Known<'_>, found: &mut ShardFindings) {
    let record = rows.segments.borrow().record(id);
    let mut row = 0;
    while row < record.rows {
        let count = ROWS_AT_ONCE.min(record.rows - row);
        let piece = rows.read_piece(id, Row::new(row), count).await;
        for index in 0..count {
            verify_row(rows, &piece, index, known, found);
        }
        found.rows += u64::from(count);
        row += count;
    }
}

fn verify_row(rows: &Rows, piece: &Piece, index: u32, known: &Known<'_>, found: &mut ShardFindings) {
    let span = &piece.span;
    let scheme = rows.segments.borrow().scheme(span.id);
    let row = span.row.plus(index);
    let cell = |column: u8| {
        // A column may miss only some of the rows that were read.
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
        let index = index as usize;
        let back =
            rows.rebuild_cell(scheme, Column::new(column), &span.cells, index, block.as_mut_slice(), accept);
        let fate = match (back, incomplete) {
            (true, _) => Fate::Back,
            (false, true) => Fate::Undecided,
            (false, false) => Fate::Lost,
        };
        report_block(rows, address, drive, *owner, fate, found);
    }
    for column in piece.unreadable.iter().filter(|(_, at)| *at == index).map(|(column, _)| *column) {
        let address = Address::new(span.id, Column::new(column), row);
        if !known.owners.contains_key(&address) {
            let drive = rows.segments.borrow().cell(address).map(|cell| cell.drive);
            let message = format!("{address} cannot be read; nothing lives there, or it is parity");
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
            // With a dead cell in the row, which has no CRC to go by, any cell may be the wrong one.
            let all_owned = (0..scheme.data())
                .all(|column| known.owners.contains_key(&Address::new(span.id, Column::new(column), row)));
            let drive = rows.segments.borrow().cell(address).map(|cell| cell.drive).filter(|_| all_owned);
            let message = format!("{address}: the parity does not fit the row's data");
            found.findings.push(Finding::new(FindingKind::Damaged, drive, message));
        }
    }
}

/// What becomes of a block whose own cell is not what it should be.
#[derive(Clone, Copy)]
enum Fate {
    /// The other columns give it back.
    Back,
    /// They would have, once its row was complete: nobody was promised it, and the next opening may drop its record.
    Undecided,
    Lost,
}

/// Reports a block that is not what its owner expects. One on a drive that is not in use is no damage.
fn report_block(
    rows: &Rows,
    address: Address,
    drive: Option<DriveIndex>,
    owner: Owner,
    fate: Fate,
    found: &mut ShardFindings,
) {
    let in_use = drive.is_some_and(|drive| rows.drives.is_online(drive));
    let finding = match (fate, in_use) {
        (Fate::Back, false) => return,
        (Fate::Back, true) => {
            let message = format!("{address} ({owner:?}) is damaged; the other columns give it back");
            Finding::new(FindingKind::Damaged, drive, message)
        }
        (Fate::Undecided, _) => {
            let message = format!(
                "{address} ({owner:?}) is damaged; it was never flushed, and the next opening decides on it"
            );
            Finding::new(FindingKind::Damaged, drive, message)
        }
        (Fate::Lost, _) => {
            let message = format!("{address} ({owner:?}) is lost: its row does not give it back");
            Finding::new(FindingKind::Lost, drive, message)
        }
    };
    found.findings.push(finding);
}
