//! The choice of victims.

use format::{
    Address, Column, DriveIndex, Incarnation, Row, Scheme, SegmentClass, SegmentColumn, SegmentRecord,
    SegmentState, ZoneIndex,
};

use super::super::death_rate::DeathRate;
use super::*;
use crate::geometry::Geometry;
use crate::segments::AllocPriority;

const ROWS: u32 = 256;

fn segments() -> Segments {
    let scheme: Scheme = "2+1".parse().unwrap();
    Segments::new(Geometry { scheme, table_width: 3, zone_bytes: 1 << 20, data_start: 4 << 20 })
}

/// Adds a sealed segment with `live` live blocks.
fn add(segments: &mut Segments, live: u32) -> SegmentId {
    let id = segments.vacant();
    let columns = (0..3).map(|drive| SegmentColumn::whole(DriveIndex::new(drive), ZoneIndex::new(id.get())));
    let record = SegmentRecord {
        incarnation: Incarnation::new(id.get().into()),
        scheme: segments.geometry.scheme,
        class: SegmentClass::Hot,
        state: SegmentState::Open,
        rows: 0,
        columns: columns.collect(),
    };
    segments.open(id, record, AllocPriority::User);
    segments.append(id, ROWS);
    (0..live).for_each(|block| segments.add_reference(address(id, block)));
    segments.record_applied(id, Row::new(ROWS));
    segments.seal(id);
    id
}

fn address(id: SegmentId, block: u32) -> Address {
    Address::new(id, Column::new((block / ROWS).try_into().unwrap()), Row::new(block % ROWS))
}

/// Lets `blocks` blocks of a segment die.
fn die(segments: &mut Segments, id: SegmentId, blocks: u32) {
    (0..blocks).for_each(|block| segments.drop_reference(address(id, block)));
}

fn victim(segments: &mut Segments) -> SegmentId {
    segments.victim(0.97).unwrap().0
}

#[test]
fn the_emptiest_of_equally_old_segments_is_the_victim() {
    let mut segments = segments();
    add(&mut segments, 300);
    let emptiest = add(&mut segments, 200);
    add(&mut segments, 250);
    assert_eq!(victim(&mut segments), emptiest);
    assert!(segments.victim(0.3).is_none(), "the limit of the live share holds");
}

#[test]
fn a_segment_whose_blocks_still_die_is_left_alone() {
    let mut segments = segments();
    let (cold, hot) = (add(&mut segments, 300), add(&mut segments, 480));
    for _ in 0..10 {
        die(&mut segments, hot, 24);
        victim(&mut segments);
    }
    assert!(segments.live(hot) < segments.live(cold));
    assert_eq!(victim(&mut segments), cold);
    // It is the victim when little of it is left.
    die(&mut segments, hot, 200);
    assert_eq!(victim(&mut segments), hot);
}

#[test]
fn moved_blocks_stay_cold() {
    let mut segments = segments();
    let (cold, hot) = (add(&mut segments, 300), add(&mut segments, 400));
    for _ in 0..20 {
        die(&mut segments, hot, 18);
        victim(&mut segments);
    }
    let moved = add(&mut segments, 300);
    let new = add(&mut segments, 280);
    // Blocks are moved to open segments.
    segments.get_mut(moved).deaths = DeathRate::default();
    segments.inherit_death_rate(cold, moved);
    assert!(segments.observe_deaths(moved) < segments.observe_deaths(new) / 2.0);
    die(&mut segments, cold, 300);
    die(&mut segments, hot, 40);
    assert_eq!(victim(&mut segments), moved);
}
