//! Cleaning for repair: as long as that helps it.

use super::*;

fn pacer() -> GcPacer {
    let space = Space::new(1, 100);
    space.set_segments(100, 0, 10);
    space.set_usage(0, 5_000, 0);
    GcPacer::new(Arc::new(space))
}

/// How often repair is cleaned for that finds space in between, and as much to do as before.
fn rounds(pacer: &GcPacer, left: u64) -> usize {
    let mut rounds = 0;
    while rounds < 1000 {
        pacer.repair_needs_space(left);
        if !pacer.is_cleaning_for_repair() {
            break;
        }
        pacer.repair_got_space();
        assert!(!pacer.is_cleaning_for_repair());
        rounds += 1;
    }
    rounds
}

#[test]
fn repair_is_not_cleaned_for_without_end() {
    let pacer = pacer();
    assert_eq!(rounds(&pacer, 70), 15);
    // It has come further than ever.
    assert_eq!(rounds(&pacer, 69), 15);
    // That was there before.
    assert_eq!(rounds(&pacer, 69), 0);
    assert_eq!(rounds(&pacer, 75), 0);
}

#[test]
fn repair_is_cleaned_for_again_when_much_was_deleted_or_it_begins_anew() {
    let pacer = pacer();
    rounds(&pacer, 70);
    pacer.repair_needs_space(70);
    pacer.space.set_usage(0, 4_950, 0);
    assert_eq!(rounds(&pacer, 70), 0);
    pacer.space.set_usage(0, 4_890, 0);
    assert_eq!(rounds(&pacer, 70), 15);
    pacer.reset_repair_state();
    assert_eq!(rounds(&pacer, 90), 15);
}

/// A chunk is moved for the first block of it that is owed; the rest of it is paid for before the next one.
#[test]
fn what_was_moved_ahead_is_paid_for_first() {
    let pacer = pacer();
    // Half of what is wanted is free: users owe what they write.
    pacer.space.set_segments(1000, 10 + 25, 10);
    assert!(pacer.max_live_share(0).is_some());
    pacer.set_victim_share(0.5);
    pacer.on_user_write(1, 0);
    assert!(pacer.debt.get() > 0.0);
    pacer.on_moved(63);
    pacer.on_user_write(62, 0);
    assert!(pacer.debt.get() <= 0.0);
    pacer.on_user_write(1, 0);
    assert!(pacer.debt.get() > 0.0 && pacer.may_write());
    // What was moved for others, who waited for space, is no leave to write as much for nothing.
    pacer.on_moved(100_000);
    pacer.on_user_write(3 * u64::from(CHUNK_BLOCKS), 0);
    assert!(pacer.debt.get() > 0.0);
}
