//! Limits and status of repair.

use super::*;

#[test]
fn the_limit_is_divided_by_the_working_shards() {
    let limits = RepairLimits { paused: false, bytes_per_second: 2 << 20 };
    let repair = BackgroundLimiter::new(limits, 2);
    assert_eq!((repair.limits(), repair.bytes_within(Duration::from_secs(3))), (limits, 6 << 20));
    repair.set_working(true);
    repair.set_working(true);
    assert_eq!(repair.bytes_within(Duration::from_secs(3)), 3 << 20);
    repair.set(RepairLimits::default());
    assert_eq!(repair.bytes_within(Duration::from_secs(3)), u64::MAX);
}

#[test]
fn the_status_is_that_of_the_worst_shard() {
    let mut sum = RepairStatus::default();
    let one = RepairStatus { state: RepairState::Running, bytes_left: 10, bytes_per_second: 2, ..sum };
    sum.add(&one);
    assert_eq!((sum.state, sum.seconds_left()), (RepairState::Running, Some(5)));
    sum.add(&RepairStatus { state: RepairState::NeedsSpace, ..one });
    assert_eq!((sum.state, sum.bytes_left, sum.seconds_left()), (RepairState::NeedsSpace, 20, None));
}
