//! Bounded cleaning for repair, and the debt of the cleaner.

use super::*;

fn pacer() -> GcPacer {
    let space = Space::new(1, 100);
    space.set_segments(100, 0, 10);
    space.set_usage(0, 5_000, 0);
    GcPacer::new(Arc::new(space), Rc::default())
}

/// Returns how many rounds of cleaning repair gets that finds space in between but makes no
/// progress.
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
fn cleaning_for_repair_is_bounded() {
    let pacer = pacer();
    assert_eq!(rounds(&pacer, 70), 15);
    // Progress.
    assert_eq!(rounds(&pacer, 69), 15);
    // No progress.
    assert_eq!(rounds(&pacer, 69), 0);
    assert_eq!(rounds(&pacer, 75), 0);
}

#[test]
fn cleaning_for_repair_restarts_after_deletions_or_a_reset() {
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

/// A chunk is moved when its first block is owed; the rest of it is paid for before the next one is
/// moved.
#[test]
fn credit_is_used_up_before_more_is_moved() {
    let pacer = pacer();
    // Half of the target is free: clients owe one block per block.
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
    // Blocks moved for an urgent request do not allow as many client writes for free.
    pacer.on_moved(100_000);
    pacer.on_user_write(3 * u64::from(CHUNK_BLOCKS), 0);
    assert!(pacer.debt.get() > 0.0);
}

#[test]
fn segments_are_cleaned_while_less_than_the_target_is_free() {
    let pacer = pacer();
    for (free, limit) in [(50, Some(LIVE_SHARE_MAX)), (10 + 25, Some(LIVE_SHARE_MAX)), (200, None)] {
        pacer.space.set_segments(1000, free, 10);
        assert_eq!(pacer.max_live_share(0), limit, "{free} segments are free");
    }
    pacer.space.set_segments(1000, 50, 10);
    pacer.start_helping();
    assert_eq!(pacer.max_live_share(0), Some(LIVE_SHARE_URGENT));
}
