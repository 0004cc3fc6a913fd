//! Detection of drives that lack the newest rows that were durable on them.
//!
//! A drive can show the newest superblock and lack later writes: a copy of the drive was put in its
//! place, or it never persisted writes that it had acknowledged as flushed. Each read of it would
//! be reconstructed from the other columns, while the pool relies on the drive. Must not know: the
//! consequences for such a drive.

use std::collections::{BTreeMap, BTreeSet};

use codec::is_zero;
use format::{Address, Column, DriveIndex, SegmentId, Sequence, ShardRecord};

use super::headers::ScannedRecord;
use super::row_repairs::row_repairs;
use crate::row_reader::RowReader;

/// Number of newest durable records that are checked in each segment.
const RECORDS_CHECKED: usize = 4;
/// Minimum number of checked cells of a drive, all of them wrong, for the drive to count as behind:
/// fewer count as damage of these cells.
const CELLS_MIN: u32 = 4;

/// Counts of the checked cells of one drive.
#[derive(Clone, Copy, Default)]
struct Tally {
    seen: u32,
    wrong: u32,
}

/// The comparison of the newest durable records with the drives.
#[derive(Debug, Default)]
pub(super) struct NewestRows {
    /// Drives on which every checked cell is wrong, cells of zeros apart: an unwritten cell looks
    /// the same.
    pub(super) behind: BTreeSet<DriveIndex>,
    /// Columns on other drives that must be written again.
    pub(super) damaged: BTreeSet<(SegmentId, Column)>,
}

/// The cells of the checked records.
#[derive(Default)]
struct CheckedCells {
    tallies: BTreeMap<DriveIndex, Tally>,
    wrong: BTreeSet<(SegmentId, Column)>,
}

/// Compares the newest durable records of each segment with the drives. `found` is sorted by
/// sequence.
///
/// A drive with fewer than [`CELLS_MIN`] checked cells, all of them wrong, may be behind as well:
/// all of its columns in these segments count as damaged then.
pub(super) async fn compare_newest(
    rows: &RowReader,
    found: &[ScannedRecord],
    shard: &ShardRecord,
    durable: Sequence,
) -> NewestRows {
    let mut checked = CheckedCells::default();
    for (id, ..) in &shard.recent {
        let in_segment = found.iter().rev().filter(|record| record.header.location.segment == *id);
        let newest =
            in_segment.filter(|record| record.header.location.sequence <= durable).take(RECORDS_CHECKED);
        for record in newest {
            check_cells(rows, record, &mut checked).await;
        }
    }
    let all_wrong = checked.tallies.iter().filter(|(_, tally)| tally.seen > 0 && tally.wrong == tally.seen);
    let (behind, suspected): (Vec<_>, Vec<_>) = all_wrong.partition(|(_, tally)| tally.seen >= CELLS_MIN);
    let drives = |part: Vec<(&DriveIndex, _)>| part.into_iter().map(|(drive, _)| *drive).collect();
    let (behind, suspected): (BTreeSet<_>, BTreeSet<_>) = (drives(behind), drives(suspected));
    let mut damaged = checked.wrong;
    for (id, _, segment) in &shard.recent {
        for (column, place) in (0..).map(Column::new).zip(&segment.columns) {
            match place.zone {
                Some((drive, _)) if suspected.contains(&drive) => _ = damaged.insert((*id, column)),
                Some((drive, _)) if behind.contains(&drive) => _ = damaged.remove(&(*id, column)),
                _ => {}
            }
        }
    }
    NewestRows { behind, damaged }
}

/// Checks the cells of a record.
async fn check_cells(rows: &RowReader, record: &ScannedRecord, checked: &mut CheckedCells) {
    let place = &record.header.location;
    let piece = rows.read_partial(place.segment, place.row, record.layout.rows).await;
    for index in 0..record.layout.rows {
        let row = place.row.plus(index);
        let cells = piece.row(index, |_| true);
        // The expected contents of a row that cannot be computed are unknown.
        let Some(repairs) = row_repairs(rows, record, &cells, row) else { continue };
        for (column, cell) in &cells.cells {
            let address = Address::new(place.segment, Column::new(*column), row);
            let Some(on) = rows.segments.borrow().cell(address) else { continue };
            let repair = repairs.iter().find(|(repaired, _)| repaired.get() == *column);
            if repair.is_some() {
                checked.wrong.insert((place.segment, address.column()));
            }
            if is_zero(repair.map_or(cell.as_slice(), |(_, right)| right.as_slice())) {
                continue;
            }
            let tally = checked.tallies.entry(on.drive).or_default();
            tally.seen += 1;
            tally.wrong += u32::from(repair.is_some());
        }
    }
}
