//! Detection of drives that lack the newest rows that were durable on them.
//!
//! A drive can show the newest superblock and lack later writes: a copy of the drive was put in its
//! place, or it never persisted writes that it had acknowledged as flushed. Each read of it would
//! be reconstructed from the other columns, while the pool relies on the drive. Must not know: the
//! consequences for such a drive.

use std::collections::{BTreeMap, BTreeSet};

use codec::is_zero;
use format::limits::BLOCK;
use format::{Address, Column, DriveIndex, Sequence, ShardRecord};

use super::headers::ScannedRecord;
use super::row_repairs::row_repairs;
use crate::row_reader::{RowReader, RowSpan};

/// Number of newest durable records that are checked in each segment.
const RECORDS_CHECKED: usize = 4;
/// Minimum number of checked cells of a drive, all of them wrong, for the drive to count as behind:
/// fewer are damage of these cells.
const CELLS_MIN: u32 = 4;

/// Counts of the checked cells of one drive.
#[derive(Clone, Copy, Default)]
struct Tally {
    seen: u32,
    wrong: u32,
}

/// Returns the drives whose every checked cell of the newest durable records differs from the data
/// written there. Cells of zeros do not count: an unwritten cell looks the same. `found` is sorted
/// by sequence.
pub(super) async fn drives_behind(
    rows: &RowReader,
    found: &[ScannedRecord],
    shard: &ShardRecord,
    durable: Sequence,
) -> BTreeSet<DriveIndex> {
    let mut tallies: BTreeMap<DriveIndex, Tally> = BTreeMap::new();
    for (id, ..) in &shard.recent {
        let in_segment = found.iter().rev().filter(|record| record.header.location.segment == *id);
        let newest =
            in_segment.filter(|record| record.header.location.sequence <= durable).take(RECORDS_CHECKED);
        for record in newest {
            tally(rows, record, &mut tallies).await;
        }
    }
    let is_behind = |tally: &Tally| tally.seen >= CELLS_MIN && tally.wrong == tally.seen;
    tallies.into_iter().filter(|(_, tally)| is_behind(tally)).map(|(drive, _)| drive).collect()
}

/// Counts the cells of a record by drive.
async fn tally(rows: &RowReader, record: &ScannedRecord, tallies: &mut BTreeMap<DriveIndex, Tally>) {
    let width: Vec<u8> = (0..record.scheme.width()).collect();
    let place = &record.header.location;
    let mut span =
        RowSpan { id: place.segment, row: place.row, count: record.layout.rows, cells: Vec::new() };
    rows.read_columns(&mut span, &width).await;
    for index in 0..record.layout.rows {
        let row = place.row.plus(index);
        // The expected contents of a row that cannot be computed are unknown.
        let Some(repairs) = row_repairs(rows, record, &span, row) else { continue };
        for (column, cells) in &span.cells {
            let at = index as usize * BLOCK;
            let Some(cell) = cells.as_slice().get(at..at + BLOCK) else { continue };
            let repair = repairs.iter().find(|(repaired, _)| repaired.get() == *column);
            if is_zero(repair.map_or(cell, |(_, right)| right.as_slice())) {
                continue;
            }
            let address = Address::new(place.segment, Column::new(*column), row);
            let Some(cell) = rows.segments.borrow().cell(address) else { continue };
            let tally = tallies.entry(cell.drive).or_default();
            tally.seen += 1;
            tally.wrong += u32::from(repair.is_some());
        }
    }
}
