//! The speed of repair: limits are kept, users come first.

use super::*;

const MIB: u64 = 1 << 20;

fn at(milliseconds: u64) -> Instant {
    Instant::from_nanos(milliseconds * 1_000_000)
}

#[test]
fn without_limits_and_users_there_is_no_rest() {
    let (repair, throttle) = (Repair::default(), Throttle::default());
    throttle.begin(at(0));
    for piece in 0..100 {
        let now = at(10 * (piece + 1));
        assert_eq!(throttle.wrote(&repair, MIB, at(10 * piece), now), now);
        assert_eq!(throttle.waits(&repair, now), None);
    }
    assert_eq!(throttle.rate(), 100 * MIB);
}

#[test]
fn users_get_three_quarters_of_the_time() {
    let (repair, throttle) = (Repair::new(RepairLimits::default(), 2), Throttle::default());
    throttle.begin(at(0));
    // Whatever shard they use: the drives are the same.
    repair.note_use(1);
    assert_eq!(throttle.wrote(&repair, MIB, at(0), at(10)), at(40));
    assert_eq!(throttle.wrote(&repair, MIB, at(40), at(50)), at(80), "they were there just now");
    assert_eq!(throttle.wrote(&repair, MIB, at(150), at(160)), at(160), "they have gone");
    repair.note_use(0);
    assert_eq!(throttle.wrote(&repair, MIB, at(1000), at(4000)), at(4500), "no rest is longer");
}

#[test]
fn a_limit_is_kept_by_all_shards_together_and_may_be_lifted() {
    let limits = RepairLimits { paused: false, bytes_per_second: 2 * MIB };
    let (repair, throttle) = (Repair::new(limits, 2), Throttle::default());
    repair.set_working(true);
    repair.set_working(true);
    assert_eq!(repair.bytes_within(Duration::from_secs(3)), 3 * MIB);
    throttle.begin(at(0));
    let mut now = at(0);
    for piece in 1..=10 {
        let begun = now;
        now = throttle.wrote(&repair, MIB, begun, begun + Duration::from_millis(1));
        while let Some(until) = throttle.waits(&repair, now) {
            assert!(until > now && until <= now + REST_MAX);
            now = until;
        }
        assert_eq!(now, at(1000 * piece), "a half of the limit is this shard's");
    }
    throttle.wrote(&repair, 100 * MIB, now, now);
    assert!(throttle.waits(&repair, now).is_some());
    repair.set(RepairLimits::default());
    assert_eq!(throttle.waits(&repair, now), None);
}

#[test]
fn a_pool_is_as_well_as_its_worst_shard() {
    let mut sum = RepairStatus::default();
    let one = RepairStatus { state: RepairState::Working, bytes_left: 10, bytes_per_second: 2, ..sum };
    sum.add(&one);
    assert_eq!((sum.state, sum.seconds_left()), (RepairState::Working, Some(5)));
    sum.add(&RepairStatus { state: RepairState::NeedsSpace, ..one });
    assert_eq!((sum.state, sum.bytes_left, sum.seconds_left()), (RepairState::NeedsSpace, 20, None));
}
