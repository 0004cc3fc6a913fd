//! Cleaning for repair: as long as that helps it.

use super::*;

fn pace() -> Pace {
    let space = Space::new(1, 100);
    space.set_segments(100, 0, 10);
    space.set_usage(0, 5_000, 0);
    Pace::new(Arc::new(space))
}

/// How often repair is cleaned for that finds space in between, and as much to do as before.
fn rounds(pace: &Pace, left: u64) -> usize {
    let mut rounds = 0;
    while rounds < 1000 {
        pace.repair_found_none(left);
        if !pace.cleans_for_repair() {
            break;
        }
        pace.repair_found_some();
        assert!(!pace.cleans_for_repair());
        rounds += 1;
    }
    rounds
}

#[test]
fn repair_is_not_cleaned_for_without_end() {
    let pace = pace();
    assert_eq!(rounds(&pace, 70), 15);
    // It has come further than ever.
    assert_eq!(rounds(&pace, 69), 15);
    // That was there before.
    assert_eq!(rounds(&pace, 69), 0);
    assert_eq!(rounds(&pace, 75), 0);
}

#[test]
fn repair_is_cleaned_for_again_when_much_was_deleted_or_it_begins_anew() {
    let pace = pace();
    rounds(&pace, 70);
    pace.repair_found_none(70);
    pace.space.set_usage(0, 4_950, 0);
    assert_eq!(rounds(&pace, 70), 0);
    pace.space.set_usage(0, 4_890, 0);
    assert_eq!(rounds(&pace, 70), 15);
    pace.repair_served();
    assert_eq!(rounds(&pace, 90), 15);
}

/// A chunk is moved for the first block of it that is owed; the rest of it is paid for before the next one.
#[test]
fn what_was_moved_ahead_is_paid_for_first() {
    let pace = pace();
    // Half of what is wanted is free: users owe what they write.
    pace.space.set_segments(1000, 10 + 25, 10);
    assert!(pace.worth(0).is_some());
    pace.cleans(0.5);
    pace.user_wrote(1, 0);
    assert!(pace.debt.get() > 0.0);
    pace.moved(63);
    pace.user_wrote(62, 0);
    assert!(pace.debt.get() <= 0.0);
    pace.user_wrote(1, 0);
    assert!(pace.debt.get() > 0.0 && pace.may_write());
    // What was moved for others, who waited for space, is no leave to write as much for nothing.
    pace.moved(100_000);
    pace.user_wrote(3 * u64::from(CHUNK_BLOCKS), 0);
    assert!(pace.debt.get() > 0.0);
}
