//! Recovery, first half: finds the end of the log and completes its last rows, before anything new
//! is written.
//!
//! Reads the headers of every segment that may hold records newer than the checkpoint, sorts them
//! and takes them up to the first gap. Records that a later header lists as durable are taken
//! unchanged. Each later record is read whole, and cells that a power failure left unwritten are
//! rewritten from the others. A record that cannot be completed although enough of its cells can be
//! read was never acknowledged as durable: the log ends before it.

use std::collections::BTreeSet;

use format::{Address, Column, DriveIndex, Row, SegmentId, SegmentRecord, Sequence, ShardRecord};
use reactor::{Buffer, IoResult, Span};

use super::drives_behind;
use super::headers::{HeaderReader, ScannedRecord};
use super::row_repairs::row_repairs;
use crate::error::{Error, ErrorLocation, Result};
use crate::log::Identity;
use crate::row_reader::RowReader;
use crate::segments::CellLocation;

/// The result of the first half of recovery.
pub(crate) struct LogScan {
    /// The records to replay, in order.
    pub(crate) records: Vec<ScannedRecord>,
    /// The last record of the shard's history.
    pub(crate) last: Sequence,
    /// Number of records after it that were begun but never acknowledged as durable.
    pub(crate) dropped: usize,
    /// Cells that a crash had left unwritten and that were completed, or would be if it were not
    /// read-only.
    pub(crate) completed: Vec<Address>,
    /// Drives that failed these writes and are out of use.
    pub(crate) failed: Vec<DriveIndex>,
    /// Drives that lack the newest durable rows of the log.
    pub(crate) behind: BTreeSet<DriveIndex>,
}

/// Finds and completes the log behind `shard`'s checkpoint. The segments that it lists are
/// registered in `rows`.
///
/// # Errors
/// `Corrupt` if a record that was durable, or may have been, cannot be read; I/O errors of more
/// drives than the scheme tolerates.
pub(crate) async fn examine(rows: &RowReader, identity: &Identity, shard: &ShardRecord) -> Result<LogScan> {
    let mut found = Vec::new();
    let mut durable = Sequence::default();
    for (id, from, record) in &shard.recent {
        let behind = scan_segment(rows, identity, *id, *from, record, &mut found).await?;
        durable = durable.max(behind);
    }
    found.sort_by_key(|record| record.header.location.sequence);
    let durable = found.iter().map(|record| record.header.location.durable).fold(durable, Ord::max);
    let all = found.len();
    let newest = drives_behind::compare_newest(rows, &found, shard, durable).await;
    let mut records: Vec<ScannedRecord> = Vec::new();
    let mut last = shard.checkpointed;
    let mut completed = Vec::new();
    let mut failed = Vec::new();
    let mut older = 0;
    for record in found {
        let sequence = record.header.location.sequence;
        if sequence <= shard.checkpointed {
            older += 1;
            continue;
        }
        if sequence != last.next() {
            break;
        }
        if sequence > durable {
            match complete(rows, &record, false, &mut failed).await {
                Completion::Completed(cells) => completed.extend(cells),
                Completion::Incomplete => break,
                Completion::Unreadable(row) => {
                    return Err(unreadable(identity, record.header.location.segment, row));
                }
            }
        }
        last = sequence;
        records.push(record);
    }
    if last < durable {
        let message = format!(
            "shard {}: record {} was durable and cannot be read; records up to {durable} are lost with it",
            identity.shard,
            last.next()
        );
        return Err(Error::corrupt(message, ErrorLocation::default(), None));
    }
    let dropped = all - older - records.len();
    cut_segments(rows, shard, &records, &[]);
    for (segment, column) in &newest.damaged {
        tracing::warn!(shard = %identity.shard, %segment, %column, "column lacks durable rows: it will be rewritten");
        rows.segments.borrow_mut().mark_damaged(*segment, *column);
    }
    Ok(LogScan { records, last, dropped, completed, failed, behind: newest.behind })
}

/// Truncates every listed segment after the last record that was taken from it, and after the last
/// of `known`, blocks that are in use whether or not their record was taken.
pub(super) fn cut_segments(
    rows: &RowReader,
    shard: &ShardRecord,
    records: &[ScannedRecord],
    known: &[Address],
) {
    let mut segments = rows.segments.borrow_mut();
    for (id, from, _) in &shard.recent {
        let taken = records.iter().filter(|record| record.header.location.segment == *id);
        let known = known.iter().filter(|address| address.segment() == *id);
        let ends = taken.map(|record| record.layout.end()).chain(known.map(|address| address.row().plus(1)));
        let end = ends.max().unwrap_or(*from).max(*from);
        segments.truncate(*id, *from, end, |drive| rows.drives.is_online(drive));
    }
}

/// Collects the headers of a segment from row `from` on, up to the first row without one. Returns
/// the newest record that headers behind that row list as durable.
///
/// # Errors
/// `Corrupt` if it cannot be determined whether that row holds a header.
async fn scan_segment(
    rows: &RowReader,
    identity: &Identity,
    id: SegmentId,
    from: Row,
    record: &SegmentRecord,
    found: &mut Vec<ScannedRecord>,
) -> Result<Sequence> {
    let mut reader = HeaderReader::starting_at(rows, identity, id, record, from);
    while let Some(record) = reader.next().await? {
        found.push(record);
    }
    if let Some(row) = reader.row()
        && !reader.is_header_readable().await
    {
        return Err(unreadable(identity, id, row));
    }
    Ok(reader.durable_after().await)
}

fn unreadable(identity: &Identity, id: SegmentId, row: Row) -> Error {
    let message = format!(
        "shard {}: row {row} of segment {id} cannot be read, and may belong to a record that was durable",
        identity.shard
    );
    let address = Some(Address::new(id, Column::new(0), row));
    Error::corrupt(message, ErrorLocation { address, ..ErrorLocation::default() }, None)
}

/// The outcome of completing a record.
pub(super) enum Completion {
    /// These cells were wrong and are rewritten.
    Completed(Vec<Address>),
    /// Cells that can be read are wrong, and there are too many: a crash left the record
    /// incomplete.
    Incomplete,
    /// Fewer cells of this row can be read than the scheme needs, regardless of their contents: the
    /// record may have been complete.
    Unreadable(Row),
}

/// Verifies a whole record and rewrites its wrong cells. A drive that fails its write is taken out
/// of use, as it would be in service. With `read_only`, nothing is written.
pub(super) async fn complete(
    rows: &RowReader,
    record: &ScannedRecord,
    read_only: bool,
    failed: &mut Vec<DriveIndex>,
) -> Completion {
    let place = &record.header.location;
    let piece = rows.read_partial(place.segment, place.row, record.layout.rows).await;
    let mut wrong: Vec<(Column, Row, Buffer)> = Vec::new();
    for index in 0..record.layout.rows {
        let (row, cells) = (place.row.plus(index), piece.row(index, |_| true));
        match row_repairs(rows, record, &cells, row) {
            Some(cells) => wrong.extend(cells.into_iter().map(|(column, cell)| (column, row, cell))),
            None if cells.cells.len() < usize::from(record.scheme.data()) => {
                return Completion::Unreadable(row);
            }
            None => return Completion::Incomplete,
        }
    }
    let mut completed = Vec::new();
    for (column, row, cell) in wrong {
        let address = Address::new(place.segment, column, row);
        let place = rows.segments.borrow().cell(address).filter(|cell| rows.drives.is_online(cell.drive));
        let Some(place) = place else { continue };
        if !read_only && let Err(error) = write_cell(rows, place, &cell.span()).await {
            tracing::error!(drive = %place.drive, %error, "drive failed: it could not write the last rows of the log");
            rows.drives.take_offline(place.drive);
            failed.push(place.drive);
            continue;
        }
        completed.push(address);
    }
    Completion::Completed(completed)
}

/// Writes a cell to its drive, if that is in use.
async fn write_cell(rows: &RowReader, place: CellLocation, cell: &Span) -> IoResult {
    match rows.drives.write(place.drive, place.offset, std::slice::from_ref(cell)) {
        Some(io) => io.await,
        None => Ok(0),
    }
}
