//! Headers that are authentic and cannot be decoded: they exist, and do not end the log.

use std::hash::Hasher;
use std::rc::Rc;

use format::{
    DriveIndex, Incarnation, Item, LayerBlock, LayerId, PoolId, PoolKey, SegmentClass, SegmentColumn,
    SegmentState, ShardIndex, UnmapMode, ZoneIndex,
};
use reactor::{Clock, Memory, ParkDriver, Reactor, SystemClock};
use siphasher::sip128::{Hasher128, SipHasher24};

use super::*;
use crate::drives::Drives;
use crate::error::ErrorKind;
use crate::geometry::Geometry;
use crate::segments::Segments;

const KEY: PoolKey = PoolKey([9; 16]);
const POOL: PoolId = PoolId([5; 16]);
/// Bytes of the header's front, in which the items begin.
const ITEMS_AT: usize = 96;

fn identity() -> Identity {
    Identity { pool: POOL, key: KEY, shard: ShardIndex::new(0) }
}

/// Rows of a segment.
const ROWS: u32 = 16;

fn geometry(rows: u32) -> Geometry {
    let zone_bytes = u64::from(rows) * BLOCK as u64;
    Geometry { scheme: "1+1".parse().unwrap(), table_width: 2, zone_bytes, data_start: 4 << 20 }
}

/// A mirrored segment in the first zones of two drives.
fn segment(rows: u32) -> SegmentRecord {
    SegmentRecord {
        incarnation: Incarnation::new(3),
        scheme: geometry(rows).scheme,
        class: SegmentClass::Mirror,
        state: SegmentState::Sealed,
        rows,
        columns: (0..2)
            .map(|drive| SegmentColumn::whole(DriveIndex::new(drive), ZoneIndex::new(0)))
            .collect(),
    }
}

/// Returns the header of record 7 at row 0 of `segment`.
fn header(segment: u32) -> Vec<u8> {
    header_at(segment, 0)
}

/// Returns the header of record 7 + `row` at this row of `segment`.
fn header_at(segment: u32, row: u32) -> Vec<u8> {
    let location = RecordLocation {
        pool: POOL,
        shard: ShardIndex::new(0),
        segment: SegmentId::new(segment),
        incarnation: Incarnation::new(3),
        row: Row::new(row),
        sequence: Sequence::new(7 + u64::from(row)),
        durable: Sequence::new(6),
    };
    let item =
        Item::Unmap { layer: LayerId::new(16), block: LayerBlock::new(0), count: 4, mode: UnmapMode::Zero };
    let mut bytes = vec![0; BLOCK];
    Header::encode(&location, &[item], &[], &KEY, &mut bytes);
    bytes
}

/// Changes the kind of the first item to one that no release writes. Only the writer of a pool can
/// do that: the MAC is computed again.
fn with_unknown_item(mut header: Vec<u8>) -> Vec<u8> {
    header[ITEMS_AT] = 99;
    let used = u32::from_le_bytes(header[84..88].try_into().unwrap()) as usize;
    header[12..28].fill(0);
    let mut hasher = SipHasher24::new_with_key(&KEY.0);
    hasher.write(&header[..used]);
    header[12..28].copy_from_slice(&hasher.finish128().as_bytes());
    header
}

/// Reads up to `count` records of a segment with these columns. The drives end with the segment.
fn records(columns: [Vec<u8>; 2], rows: u32, count: usize) -> Result<Vec<Sequence>> {
    let clock: Rc<dyn Clock> = Rc::new(SystemClock::new());
    let reactor = Reactor::new(ParkDriver::new(clock.clone()), clock);
    let read = reactor.run(async {
        let memory = columns.map(|content| {
            let memory = Memory::new((4 << 20) + rows as usize * BLOCK).unwrap();
            assert!(memory.copy_from(4 << 20, &content));
            memory
        });
        let drives = memory.iter().map(|memory| Some(memory.open() as Rc<dyn reactor::Drive>)).collect();
        let rows_reader = RowReader::new(Drives::new(drives), Segments::new(geometry(rows)));
        rows_reader.segments.borrow_mut().restore(SegmentId::new(1), segment(rows), None);
        let (identity, record) = (identity(), segment(rows));
        let mut headers = HeaderReader::new(&rows_reader, &identity, SegmentId::new(1), &record);
        let mut found = Vec::new();
        while found.len() < count
            && let Some(next) = headers.next().await?
        {
            found.push(next.header.location.sequence);
        }
        Ok(found)
    });
    reactor.shut_down();
    read
}

/// Reads the first record of a segment whose columns begin with these blocks.
fn first_record(columns: [Vec<u8>; 2]) -> Result<Option<Sequence>> {
    Ok(records(columns, ROWS, 1)?.first().copied())
}

/// Headers are read in portions of [`READ_AHEAD`] rows, the last of which ends with the segment.
#[test]
fn the_headers_of_all_rows_are_read() {
    for rows in [READ_AHEAD - 1, READ_AHEAD, READ_AHEAD + 1, 3 * READ_AHEAD + 7] {
        let content: Vec<u8> = (0..rows).flat_map(|row| header_at(1, row)).collect();
        let expected: Vec<Sequence> = (0..rows).map(|row| Sequence::new(7 + u64::from(row))).collect();
        let zeros = vec![0; content.len()];
        for columns in
            [[content.clone(), content.clone()], [content.clone(), zeros.clone()], [zeros, content]]
        {
            assert_eq!(records(columns, rows, usize::MAX).unwrap(), expected, "{rows} rows");
        }
    }
}

#[test]
fn a_header_is_read_from_either_column() {
    let (header, zeros) = (header(1), vec![0; BLOCK]);
    for columns in [[header.clone(), header.clone()], [header.clone(), zeros.clone()], [zeros, header]] {
        assert_eq!(first_record(columns).unwrap(), Some(Sequence::new(7)));
    }
}

#[test]
fn an_authentic_header_that_cannot_be_decoded_is_an_error() {
    let (header, zeros) = (with_unknown_item(header(1)), vec![0; BLOCK]);
    for columns in [[header.clone(), header.clone()], [header.clone(), zeros.clone()], [zeros, header]] {
        let error = first_record(columns).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        assert!(error.to_string().contains("record 7 is authentic"), "{error}");
    }
}

#[test]
fn bytes_that_no_writer_of_the_segment_stored_end_the_log() {
    let elsewhere = with_unknown_item(header(2));
    let mut damaged = with_unknown_item(header(1));
    damaged[ITEMS_AT] = 98;
    for block in [elsewhere, damaged, vec![0; BLOCK]] {
        assert_eq!(first_record([block.clone(), block]).unwrap(), None);
    }
}
