//! Detection of missing columns, and release of zones after a move.

use format::{Row, SegmentClass, SegmentRecord, SegmentState};

use super::*;
use crate::geometry::Geometry;
use crate::segments::AllocPriority;

fn drive(index: u16) -> DriveIndex {
    DriveIndex::new(index)
}

fn zone(index: u32) -> ZoneIndex {
    ZoneIndex::new(index)
}

/// One failed drive; all others are active.
fn lost(index: u16) -> impl Fn(DriveIndex) -> DriveUse {
    move |on| if on == drive(index) { DriveUse::Failed } else { DriveUse::Active }
}

/// A segment with scheme 2+1 on drives 0, 1 and 2, with eight rows.
fn segments() -> (Segments, SegmentId) {
    let scheme: Scheme = "2+1".parse().unwrap();
    let geometry = Geometry { scheme, table_width: 3, zone_bytes: 64 << 10, data_start: 4 << 20 };
    let mut segments = Segments::new(geometry);
    let record = SegmentRecord {
        incarnation: Incarnation::new(1),
        scheme,
        class: SegmentClass::Hot,
        state: SegmentState::Open,
        rows: 0,
        columns: (0..3).map(|index| SegmentColumn::whole(drive(index), zone(7))).collect(),
    };
    let id = segments.vacant();
    segments.open(id, record, AllocPriority::User);
    segments.append(id, 8);
    segments.add_reference(format::Address::new(id, Column::new(0), Row::new(1)));
    segments.record_applied(id, Row::new(8));
    (segments, id)
}

fn seal_and_flush(segments: &mut Segments, id: SegmentId) {
    segments.seal(id);
    let mark = segments.flush_mark();
    segments.flushed(&mark);
}

#[test]
fn columns_on_failed_drives_are_missing() {
    let (mut segments, id) = segments();
    assert_eq!(segments.incomplete(|_| DriveUse::Active), []);
    let without_1 = lost(1);
    let open = segments.incomplete_one(id, &without_1).unwrap();
    assert!(!open.stable);
    seal_and_flush(&mut segments, id);
    let sealed = segments.incomplete_one(id, &without_1).unwrap();
    assert_eq!(sealed.missing.as_slice(), [Column::new(1)]);
    assert_eq!(sealed.avoid(Column::new(1)).collect::<Vec<_>>(), [drive(0), drive(2)]);
    assert!(sealed.stable && sealed.blocks() == 8 && sealed.losses_left() == 0);
}

/// Otherwise a cleaner whose checkpoints fail cleans the same segments for as long as they do.
#[test]
fn a_cleaned_segment_is_cleaned_again_only_after_a_stored_checkpoint() {
    let (mut segments, id) = segments();
    seal_and_flush(&mut segments, id);
    assert!(segments.is_cleanable(id));
    // The cleaner moves nothing: the live block is a map node, which the next checkpoint moves.
    let running = segments.begin_checkpoint();
    segments.cleaned(id);
    segments.end_checkpoint(&running);
    assert!(!segments.is_cleanable(id), "the stored checkpoint began before");
    for _ in 0..3 {
        let _failed = segments.begin_checkpoint();
        assert!(!segments.is_cleanable(id));
    }
    let stored = segments.begin_checkpoint();
    segments.end_checkpoint(&stored);
    assert!(segments.is_cleanable(id));
}

#[test]
fn columns_on_draining_drives_must_move() {
    let (mut segments, id) = segments();
    seal_and_flush(&mut segments, id);
    let drive_use = |on: DriveIndex| match on.index() {
        0 => DriveUse::Failed,
        1 => DriveUse::Draining,
        _ => DriveUse::Active,
    };
    let segment = segments.incomplete_one(id, drive_use).unwrap();
    assert_eq!(segment.missing.as_slice(), [Column::new(0)]);
    assert_eq!(segment.draining.as_slice(), [Column::new(1)]);
    assert_eq!(segment.avoid(Column::new(1)).collect::<Vec<_>>(), [drive(0), drive(2)]);
    assert!(segment.blocks() == 16 && segment.losses_left() == 0);
}

#[test]
fn a_segment_opened_during_a_drive_loss_has_no_rows_there() {
    let (mut segments, id) = segments();
    segments.mark_unwritten(id, |on| on != drive(2));
    let record = segments.record(id);
    let missing: Vec<_> = record.columns.iter().map(|column| column.missing_from.get()).collect();
    assert_eq!(missing, [16_384, 16_384, 0]);
}

/// On a lost drive, only rows flushed before the loss count as present, even after it returns.
#[test]
fn unflushed_rows_on_a_lost_drive_are_missing() {
    let (mut segments, id) = segments();
    let mark = segments.flush_mark();
    segments.flushed(&mark);
    segments.append(id, 4);
    segments.record_applied(id, Row::new(12));
    segments.drive_lost(drive(1));
    let present = |column, row| segments.cell_at(id, Column::new(column), Row::new(row)).is_some();
    assert!(present(1, 7) && !present(1, 8));
    assert!(present(0, 8) && present(2, 8));
}

/// A column of an open segment that lacks only future rows is missing.
#[test]
fn a_column_without_future_rows_of_an_open_segment_is_missing() {
    let (mut segments, id) = segments();
    let mark = segments.flush_mark();
    segments.flushed(&mark);
    segments.drive_lost(drive(1));
    let back = segments.incomplete_one(id, |_| DriveUse::Active).unwrap();
    assert_eq!(back.missing.as_slice(), [Column::new(1)]);
    segments.seal(id);
    assert_eq!(segments.incomplete_one(id, |_| DriveUse::Active), None);
}

#[test]
fn a_vacated_zone_waits_for_a_checkpoint_and_for_readers() {
    let (mut segments, id) = segments();
    seal_and_flush(&mut segments, id);
    let before = segments.begin_checkpoint();
    segments.pin(id);
    segments.pin(id);
    segments.move_column(id, Column::new(1), (drive(4), zone(2)));
    let cell = segments.cell_at(id, Column::new(1), Row::new(0)).unwrap();
    assert_eq!((cell.drive, cell.offset), (drive(4), (4 << 20) + 2 * (64 << 10)));
    segments.unpin(id);
    assert_eq!(segments.release_vacated(&before), [], "this checkpoint started before the move");
    let after = segments.begin_checkpoint();
    assert_eq!(segments.release_vacated(&after), [], "one reader is left");
    segments.unpin(id);
    assert_eq!(segments.release_vacated(&before), []);
    assert_eq!(segments.release_vacated(&after), [(drive(1), zone(7))]);
    assert_eq!(segments.release_vacated(&after), []);
    assert_eq!(segments.incomplete(lost(1)), []);
}

#[test]
fn a_vacated_zone_without_readers_waits_for_a_checkpoint_only() {
    let (mut segments, id) = segments();
    seal_and_flush(&mut segments, id);
    segments.move_column(id, Column::new(1), (drive(4), zone(2)));
    let after = segments.begin_checkpoint();
    assert_eq!(segments.release_vacated(&after), [(drive(1), zone(7))]);
}

#[test]
#[should_panic(expected = "Z1")]
fn two_columns_never_share_a_drive() {
    let (mut segments, id) = segments();
    seal_and_flush(&mut segments, id);
    segments.move_column(id, Column::new(1), (drive(2), zone(9)));
}

#[test]
fn free_segments_need_no_columns() {
    let (mut segments, id) = segments();
    seal_and_flush(&mut segments, id);
    let incarnation = segments.record(id).incarnation;
    assert!(segments.needs_columns(id, incarnation));
    let without_1 = lost(1);
    let missing = |incarnation| segments.recheck_incomplete(id, incarnation, &without_1).is_some();
    assert!(missing(incarnation) && !missing(Incarnation::new(2)));
    assert!(!segments.needs_columns(id, Incarnation::new(2)));
    segments.drop_reference(format::Address::new(id, Column::new(0), Row::new(1)));
    assert_eq!(segments.free_emptied(), 1);
    assert!(!segments.needs_columns(id, incarnation));
    assert_eq!(segments.incomplete(lost(1)), []);
    assert_eq!(segments.recheck_incomplete(id, incarnation, lost(1)), None);
}
