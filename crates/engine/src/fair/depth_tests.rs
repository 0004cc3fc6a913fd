//! What a depth takes for normal, and what it does then.

use super::*;

const MILLISECOND: u64 = 1_000_000;

/// So many operations of one block that took so long, one after the other.
fn take(depth: &Depth, operations: u64, nanos: u64, from: u64) {
    let wants = Wants { enough: f32::INFINITY, ..Wants::default() };
    for number in 0..operations {
        depth.took_beside_others(0, nanos, wants, from + number * nanos);
    }
}

#[test]
fn what_others_began_after_is_not_by_itself() {
    let [reads, writes] = Depth::pair([1, 1], 200);
    let first = reads.begins(1).unwrap();
    assert!(reads.was_last(first));
    assert_eq!(writes.begins(1), None);
    assert!(!reads.was_last(first));
    reads.ends(1);
    assert_eq!(reads.begins(1), None, "a write is under way");
    writes.ends(1);
    reads.ends(1);
    let last = writes.begins(1).unwrap();
    assert!(writes.was_last(last) && reads.was_last(last));
}

#[test]
fn a_depth_bears_what_it_is_told_to() {
    for (slowdown, least, most) in [(200, 4.0, 4.0), (400, 100.0, MOST), (0, MOST, MOST)] {
        let [depth, _] = Depth::pair([4, 4], slowdown);
        depth.took_by_itself(0, 100_000);
        take(&depth, 4096, 310_000, MILLISECOND);
        assert!((least..=most).contains(&depth.units()), "{slowdown} %: {}", depth.units());
    }
}

#[test]
fn what_was_never_by_itself_takes_no_longer_than_the_shortest() {
    let [depth, _] = Depth::pair([4, 4], 200);
    take(&depth, 1, 100_000, MILLISECOND);
    take(&depth, 4096, 310_000, 2 * MILLISECOND);
    assert!(depth.units() <= 4.0, "{}", depth.units());
    assert_eq!(depth.by_itself(1).to_bits(), 100_000_f32.to_bits());
    depth.took_by_itself(0, 200_000);
    assert_eq!(depth.by_itself(1).to_bits(), 200_000_f32.to_bits(), "that is known now");
}

#[test]
fn what_takes_long_elsewhere_counts_once_and_not_for_ever() {
    let [here, there] = Depth::pair([4, 4], 200);
    here.took_by_itself(0, 100_000);
    there.took_by_itself(0, 100_000);
    let from = 10 * MILLISECOND;
    take(&there, u64::from(FOLLOW_EVERY), 300_000, from - u64::from(FOLLOW_EVERY) * 300_000);
    let before = here.units();
    take(&here, u64::from(FOLLOW_EVERY), 100_000, from);
    let once = here.units();
    assert!(once < before, "{once} of {before}");
    take(&here, u64::from(FOLLOW_EVERY), 100_000, from + 4 * MILLISECOND);
    assert_eq!(here.units().to_bits(), once.to_bits(), "nothing new");
    take(&here, u64::from(FOLLOW_EVERY), 100_000, from + 2 * FRESH);
    assert!(here.units() > once);
}

#[test]
fn few_operations_are_heard_after_a_while() {
    let [depth, _] = Depth::pair([4, 4], 200);
    depth.took_by_itself(0, MILLISECOND);
    let before = depth.units();
    take(&depth, u64::from(FOLLOW_FEW), 3 * MILLISECOND, 20 * MILLISECOND);
    assert!(depth.units() < before, "{} of {before}", depth.units());
}
