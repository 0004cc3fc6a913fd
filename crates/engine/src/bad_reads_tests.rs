//! Counting of zones with errors, and intervals between reports.

use super::*;

const NOON: u64 = 1_700_000_000;

fn zone(number: u32) -> (Option<ZoneIndex>, bool) {
    (Some(ZoneIndex::new(number)), false)
}

#[test]
fn a_bad_place_that_is_read_a_thousand_times_counts_once() {
    let (mut known, mut errors) = (DriveErrorLog::default(), DriveErrors::default());
    for second in 0..1000 {
        known.count(&mut errors, zone(7), Some(2), NOON + second);
    }
    assert_eq!((errors.unreadable, errors.zones, errors.last), (1000, 1, NOON + 999));
    assert!(!is_failing(&errors, Some(2)));
    assert!(known.count(&mut errors, (Some(ZoneIndex::new(8)), true), Some(2), NOON));
    assert!(is_failing(&errors, Some(2)) && !is_failing(&errors, None));
    assert_eq!((errors.unreadable, errors.wrong), (1000, 1));
}

#[test]
fn errors_of_other_days_do_not_add_up_but_a_failed_drive_stays_so() {
    let (mut known, mut errors) = (DriveErrorLog::default(), DriveErrors::default());
    for day in 0..100 {
        known.count(&mut errors, zone(day), Some(2), NOON + u64::from(day) * WINDOW);
        assert_eq!(errors.zones, 1, "day {day}");
    }
    known.count(&mut errors, zone(500), Some(2), NOON + 99 * WINDOW);
    assert!(is_failing(&errors, Some(2)));
    known.count(&mut errors, zone(501), Some(2), NOON + 200 * WINDOW);
    assert_eq!(errors.zones, 3);
}

#[test]
fn a_forgiven_drive_is_counted_anew_but_not_for_the_same_zones() {
    let (mut known, mut errors) = (DriveErrorLog::default(), DriveErrors::default());
    (0..5).for_each(|number| _ = known.count(&mut errors, zone(number), Some(3), NOON));
    known.clear(&mut errors, NOON + 1);
    assert_eq!((errors.zones, errors.unreadable), (0, 5));
    assert!(!known.count(&mut errors, zone(2), Some(3), NOON + 2));
    assert!(known.count(&mut errors, zone(9), Some(3), NOON + 2));
    assert_eq!(errors.zones, 1);
}

#[test]
fn errors_are_said_at_once_and_then_by_the_hour() {
    let (mut known, mut errors) = (DriveErrorLog::default(), DriveErrors::default());
    assert_eq!(known.take_unreported(&errors, NOON), None);
    known.count(&mut errors, zone(1), None, NOON);
    assert_eq!(known.take_unreported(&errors, NOON), Some(1));
    (0..10).for_each(|_| _ = known.count(&mut errors, zone(1), None, NOON + 5));
    assert_eq!(known.take_unreported(&errors, NOON + 5), None);
    assert_eq!(known.take_unreported(&errors, NOON + REPORT_EVERY), Some(10));
    assert_eq!(known.take_unreported(&errors, NOON + 9 * REPORT_EVERY), None, "there is nothing new");
    let mut after = DriveErrorLog::of(&errors);
    assert_eq!(
        after.take_unreported(&errors, NOON + 9 * REPORT_EVERY),
        None,
        "that was said before the restart"
    );
}

#[test]
fn small_drives_bear_less() {
    assert_eq!(zone_error_limit(32, 2048), Some(32));
    assert_eq!(zone_error_limit(32, 40), Some(10));
    assert_eq!(zone_error_limit(32, 2), Some(1));
    assert_eq!(zone_error_limit(0, 2048), None);
}
