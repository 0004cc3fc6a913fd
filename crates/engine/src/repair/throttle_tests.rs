//! The speed of work in the background: limits are kept, users come first, and it has its share.

use super::*;
use crate::repair::RepairLimits;

const MIB: u64 = 1 << 20;

fn at(milliseconds: u64) -> Instant {
    Instant::from_nanos(milliseconds * 1_000_000)
}

/// Users do something in a shard from `from` to `to`.
#[allow(clippy::mem_forget)]
fn used(repair: &BackgroundLimiter, shard: usize, from: Instant, to: Instant) {
    let operation = repair.users.begin_at(shard, from).unwrap();
    operation.end_at(to);
    // It ends once, at a moment of ours.
    std::mem::forget(operation);
}

#[test]
fn without_limits_and_users_pieces_go_on_side_by_side() {
    let (repair, throttle) = (BackgroundLimiter::new(RepairLimits::default(), 1), Throttle::default());
    throttle.begin(&repair, at(0));
    for piece in 0..100 {
        let begun = at(10 * piece);
        let turns = [throttle.enter(&repair, begun), throttle.enter(&repair, begun)];
        assert_eq!(throttle.wait(&repair, begun), Wait::Nothing);
        for turn in turns {
            assert_eq!(turn.chunk_bytes(1 << 20), 1 << 20);
            turn.finish_at(MIB / 2, at(10 * (piece + 1)));
        }
        assert_eq!(throttle.wait(&repair, at(10 * (piece + 1))), Wait::Nothing);
    }
    assert!((98..=100).contains(&(throttle.rate() / MIB)), "{}", throttle.rate());
}

#[test]
fn beside_users_there_is_one_small_piece_at_a_time_for_a_quarter_of_the_time() {
    let (repair, throttle) = (BackgroundLimiter::new(RepairLimits::default(), 2), Throttle::default());
    throttle.begin(&repair, at(0));
    // Whatever shard they use: the drives are the same.
    used(&repair, 1, at(1), at(2));
    assert_eq!(throttle.wait(&repair, at(2)), Wait::Nothing);
    let turn = throttle.enter(&repair, at(2));
    assert_eq!((turn.chunk_bytes(1 << 20), turn.chunk_bytes(4096)), (64 << 10, 4096));
    assert_eq!(throttle.wait(&repair, at(3)), Wait::Another);
    turn.finish_at(MIB, at(12));
    assert_eq!(throttle.wait(&repair, at(12)), Wait::Until(at(42)));
    assert_eq!(throttle.wait(&repair, at(42)), Wait::Nothing, "users have had their time");
    assert_eq!(throttle.wait(&repair, at(600)), Wait::Nothing, "they have gone");
    let turn = throttle.enter(&repair, at(600));
    assert_eq!((turn.chunk_bytes(1 << 20), throttle.wait(&repair, at(600))), (1 << 20, Wait::Nothing));
    used(&repair, 0, at(700), at(701));
    turn.finish_at(MIB, at(3600));
    assert_eq!(throttle.wait(&repair, at(3600)), Wait::Until(at(4100)), "no rest is longer");
}

#[test]
fn shards_that_are_at_it_together_share_a_quarter_of_the_time() {
    let repair = BackgroundLimiter::new(RepairLimits::default(), 2);
    let throttles = [Throttle::default(), Throttle::default()];
    for throttle in &throttles {
        repair.set_working(true);
        throttle.begin(&repair, at(0));
    }
    used(&repair, 0, at(0), at(1));
    for throttle in &throttles {
        throttle.enter(&repair, at(1)).finish_at(MIB, at(11));
        assert_eq!(throttle.wait(&repair, at(11)), Wait::Until(at(81)));
    }
}

#[test]
fn a_limit_is_kept_by_all_shards_together_and_may_be_lifted() {
    let limits = RepairLimits { paused: false, bytes_per_second: 2 * MIB };
    let (repair, throttle) = (BackgroundLimiter::new(limits, 2), Throttle::default());
    repair.set_working(true);
    repair.set_working(true);
    throttle.begin(&repair, at(0));
    let mut now = at(0);
    for piece in 1..=10 {
        throttle.enter(&repair, now).finish_at(MIB, now + Duration::from_millis(1));
        while let Wait::Until(until) = throttle.wait(&repair, now) {
            assert!(until > now && until <= now + REST_MAX);
            now = until;
        }
        assert_eq!(now, at(1000 * piece), "a half of the limit is this shard's");
    }
    throttle.enter(&repair, now).finish_at(100 * MIB, now);
    assert_ne!(throttle.wait(&repair, now), Wait::Nothing);
    repair.set(RepairLimits::default());
    assert_eq!(throttle.wait(&repair, now), Wait::Nothing);
}

#[test]
fn what_fails_is_over_too() {
    let (repair, throttle) = (BackgroundLimiter::new(RepairLimits::default(), 1), Throttle::default());
    throttle.begin(&repair, at(0));
    used(&repair, 0, at(0), at(1));
    let turn = throttle.enter(&repair, at(1));
    assert_eq!(throttle.wait(&repair, at(2)), Wait::Another);
    drop(turn);
    assert_ne!(throttle.wait(&repair, at(2)), Wait::Another);
}
