//! Counting of zones with errors, and intervals between reports.

use super::*;

const NOON: u64 = 1_700_000_000;

fn zone(number: u32) -> (Option<ZoneIndex>, bool) {
    (Some(ZoneIndex::new(number)), false)
}

#[test]
fn a_zone_with_repeated_errors_counts_once() {
    let (mut log, mut errors) = (DriveErrorLog::default(), DriveErrors::default());
    for second in 0..1000 {
        log.count(&mut errors, zone(7), Some(2), NOON + second);
    }
    assert_eq!((errors.unreadable, errors.zones, errors.last), (1000, 1, NOON + 999));
    assert!(!is_failing(&errors, Some(2)));
    assert!(log.count(&mut errors, (Some(ZoneIndex::new(8)), true), Some(2), NOON));
    assert!(is_failing(&errors, Some(2)) && !is_failing(&errors, None));
    assert_eq!((errors.unreadable, errors.wrong), (1000, 1));
}

#[test]
fn windows_do_not_add_up_but_a_failing_drive_stays_failing() {
    let (mut log, mut errors) = (DriveErrorLog::default(), DriveErrors::default());
    for day in 0..100 {
        log.count(&mut errors, zone(day), Some(2), NOON + u64::from(day) * WINDOW);
        assert_eq!(errors.zones, 1, "day {day}");
    }
    log.count(&mut errors, zone(500), Some(2), NOON + 99 * WINDOW);
    assert!(is_failing(&errors, Some(2)));
    log.count(&mut errors, zone(501), Some(2), NOON + 200 * WINDOW);
    assert_eq!(errors.zones, 3);
}

#[test]
fn cleared_errors_do_not_count_the_same_zones_again() {
    let (mut log, mut errors) = (DriveErrorLog::default(), DriveErrors::default());
    (0..5).for_each(|number| _ = log.count(&mut errors, zone(number), Some(3), NOON));
    log.clear(&mut errors, NOON + 1);
    assert_eq!((errors.zones, errors.unreadable), (0, 5));
    assert!(!log.count(&mut errors, zone(2), Some(3), NOON + 2));
    assert!(log.count(&mut errors, zone(9), Some(3), NOON + 2));
    assert_eq!(errors.zones, 1);
}

#[test]
fn errors_are_reported_at_once_and_then_hourly() {
    let (mut log, mut errors) = (DriveErrorLog::default(), DriveErrors::default());
    assert_eq!(log.take_unreported(&errors, NOON), None);
    log.count(&mut errors, zone(1), None, NOON);
    assert_eq!(log.take_unreported(&errors, NOON), Some(1));
    (0..10).for_each(|_| _ = log.count(&mut errors, zone(1), None, NOON + 5));
    assert_eq!(log.take_unreported(&errors, NOON + 5), None);
    assert_eq!(log.take_unreported(&errors, NOON + REPORT_EVERY), Some(10));
    assert_eq!(log.take_unreported(&errors, NOON + 9 * REPORT_EVERY), None, "no new errors");
    let mut after = DriveErrorLog::of(&errors);
    assert_eq!(after.take_unreported(&errors, NOON + 9 * REPORT_EVERY), None, "reported before the restart");
}

#[test]
fn small_drives_have_lower_limits() {
    assert_eq!(zone_error_limit(32, 2048), Some(32));
    assert_eq!(zone_error_limit(32, 40), Some(10));
    assert_eq!(zone_error_limit(32, 2), Some(1));
    assert_eq!(zone_error_limit(0, 2048), None);
}
