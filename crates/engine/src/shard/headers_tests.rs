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

fn geometry() -> Geometry {
    Geometry { scheme: "1+1".parse().unwrap(), table_width: 2, zone_bytes: 64 << 10, data_start: 4 << 20 }
}

/// A mirrored segment in the first zones of two drives.
fn segment() -> SegmentRecord {
    SegmentRecord {
        incarnation: Incarnation::new(3),
        scheme: geometry().scheme,
        class: SegmentClass::Mirror,
        state: SegmentState::Sealed,
        rows: 16,
        columns: (0..2)
            .map(|drive| SegmentColumn::whole(DriveIndex::new(drive), ZoneIndex::new(0)))
            .collect(),
    }
}

/// Returns the header of a record at row 0 of `segment`.
fn header(segment: u32) -> Vec<u8> {
    let location = RecordLocation {
        pool: POOL,
        shard: ShardIndex::new(0),
        segment: SegmentId::new(segment),
        incarnation: Incarnation::new(3),
        row: Row::new(0),
        sequence: Sequence::new(7),
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

/// Reads the first record of a segment whose columns begin with these blocks.
fn first_record(columns: [Vec<u8>; 2]) -> Result<Option<Sequence>> {
    let clock: Rc<dyn Clock> = Rc::new(SystemClock::new());
    let reactor = Reactor::new(ParkDriver::new(clock.clone()), clock);
    let read = reactor.run(async {
        let memory = columns.map(|block| {
            let memory = Memory::new(8 << 20).unwrap();
            assert!(memory.copy_from(4 << 20, &block));
            memory
        });
        let drives = memory.iter().map(|memory| Some(memory.open() as Rc<dyn reactor::Drive>)).collect();
        let rows = RowReader::new(Drives::new(drives), Segments::new(geometry()));
        rows.segments.borrow_mut().restore(SegmentId::new(1), segment(), None);
        let (identity, record) = (identity(), segment());
        let mut headers = HeaderReader::new(&rows, &identity, SegmentId::new(1), &record);
        headers.next().await.map(|found| found.map(|found| found.header.location.sequence))
    });
    reactor.shut_down();
    read
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
