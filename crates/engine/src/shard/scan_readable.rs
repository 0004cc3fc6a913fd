//! Finds the records behind a checkpoint in a partly unreadable log.
//!
//! For a log that can be read to its end, the result is that of an opening. Otherwise the scan
//! continues behind the missing part and reports the missing records.

use format::{Address, Row, SegmentId, SegmentRecord, Sequence, ShardRecord};

use super::drives_behind;
use super::headers::{HeaderReader, ScannedRecord};
use super::lost_part::{LostPart, LostPartKind};
use super::scan::{Completion, LogScan, complete, cut_segments};
use crate::log::Identity;
use crate::row_reader::RowReader;

/// The records of one segment.
#[derive(Default)]
struct SegmentScan {
    records: Vec<ScannedRecord>,
    /// The newest record that headers behind these records list as durable.
    durable: Sequence,
    /// Unreadable parts. Records may be missing.
    lost: Vec<LostPart>,
}

/// Finds the log behind a shard's checkpoint, whose table blocks are at `tables`, without writing
/// anything. Appends its unreadable parts to `lost`; none if the pool was closed cleanly (`clean`),
/// since nothing is replayed then.
pub(super) async fn examine_readable(
    rows: &RowReader,
    identity: &Identity,
    shard: &ShardRecord,
    clean: bool,
    tables: &[Address],
    lost: &mut Vec<LostPart>,
) -> LogScan {
    let mut found = Vec::new();
    let mut durable = Sequence::default();
    let mut missing = Vec::new();
    for (id, from, record) in &shard.recent {
        let scanned = scan(rows, identity, *id, *from, record).await;
        found.extend(scanned.records);
        durable = durable.max(scanned.durable);
        missing.extend(scanned.lost);
    }
    found.sort_by_key(|record| record.header.location.sequence);
    let durable = found.iter().map(|record| record.header.location.durable).fold(durable, Ord::max);
    let all = found.len();
    let behind = drives_behind::compare_newest(rows, &found, shard, durable).await.behind;
    // All records of a cleanly closed log were durable: gaps between them are damage.
    let has_gaps = clean || !missing.is_empty();
    let (mut records, mut completed) = (Vec::new(), Vec::new());
    let mut last = shard.checkpointed;
    let mut older = 0;
    for record in found {
        let sequence = record.header.location.sequence;
        if sequence <= last {
            older += usize::from(sequence <= shard.checkpointed);
            continue;
        }
        if sequence != last.next() {
            // After a power failure alone, the log ends here: later records were never acknowledged
            // as durable.
            if !has_gaps && durable <= last {
                break;
            }
            let before = Sequence::new(sequence.get() - 1);
            missing.push(LostPart::new(LostPartKind::Records(last.next(), before), None, None));
        }
        if sequence > durable && !clean {
            match complete(rows, &record, true, &mut Vec::new()).await {
                Completion::Completed(cells) => completed.extend(cells),
                // It may have been durable. Some of its blocks may be readable.
                Completion::Unreadable(_) => {}
                // It was never acknowledged as durable, because a durable record can be completed.
                // The next opening drops it.
                Completion::Incomplete => break,
            }
        }
        last = sequence;
        records.push(record);
    }
    if last < durable {
        missing.push(LostPart::new(LostPartKind::Records(last.next(), durable), None, None));
        last = durable;
    }
    if !clean {
        lost.extend(missing);
    }
    let dropped = all - older - records.len();
    cut_segments(rows, shard, &records, tables);
    LogScan { records, last, dropped, completed, failed: Vec::new(), behind }
}

async fn scan(
    rows: &RowReader,
    identity: &Identity,
    id: SegmentId,
    from: Row,
    record: &SegmentRecord,
) -> SegmentScan {
    let mut reader = HeaderReader::starting_at(rows, identity, id, record, from);
    let (mut scanned, mut looked_behind) = (SegmentScan::default(), false);
    loop {
        let next = reader.next().await;
        if let Ok(Some(found)) = next {
            scanned.records.push(found);
            continue;
        }
        let Some(row) = reader.row() else { return scanned };
        if let Err(error) = next {
            scanned.lost.push(LostPart::new(LostPartKind::Header(id, row), None, Some(error)));
        } else if !reader.is_header_readable().await {
            scanned.lost.push(LostPart::new(LostPartKind::LogEnd(id, row), None, None));
        }
        if !std::mem::replace(&mut looked_behind, true) {
            scanned.durable = reader.durable_after().await;
        }
        if !reader.skip_to_next().await {
            return scanned;
        }
    }
}
