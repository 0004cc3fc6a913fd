//! Scheduled scrubs, triggered by the simulated wall clock.

use engine::{Pool, RepairLimits, ScrubStatus};

use crate::repair_tests::{fill, machine, with_pool};
use crate::run::{BootEnd, Setup};

const DAY: u64 = 86_400;

async fn status(pool: &Pool) -> ScrubStatus {
    pool.status().await.unwrap().scrub
}

/// Returns true if a scheduled scrub starts now; waits for its end.
async fn starts_if_due(pool: &Pool) -> bool {
    let before = status(pool).await.last;
    let started = pool.start_scrub_if_due().await.unwrap();
    pool.scrub_settled().await.unwrap();
    let after = status(pool).await;
    assert!(!after.running && (after.last.began > before.began) == started, "{after:?}");
    started
}

/// The interval counts from the pool's creation, and then from the start of the last scrub,
/// regardless of closes and kills.
#[test]
fn a_scrub_starts_when_its_interval_has_passed() {
    let machine = machine(&Setup::small("2+1", 4), 1);
    let (made, clock) = (machine.events.wall_clock()(), machine.events.wall_clock());
    let in_days = |days: u64| machine.events.skip_seconds(made + days * DAY + 60 - clock());
    with_pool(&machine, async |pool| {
        fill(pool, "v", 200, 1).await;
        assert_eq!(status(pool).await.every, 30 * DAY, "the default interval");
        assert!(!starts_if_due(pool).await);
        in_days(29);
        assert!(!starts_if_due(pool).await);
    });
    in_days(30);
    let this = machine.clone();
    let ended = machine.boot(async move || {
        let (pool, _) = this.open().await.unwrap();
        assert!(starts_if_due(&pool).await);
        assert!(!starts_if_due(&pool).await, "started again immediately");
    });
    assert_eq!(ended, BootEnd::Completed(()));
    machine.kill_process();
    in_days(59);
    with_pool(&machine, async |pool| {
        assert!(!starts_if_due(pool).await);
        in_days(60);
        assert!(starts_if_due(pool).await);
        // A manual scrub counts as well.
        in_days(80);
        assert!(pool.start_scrub().await.unwrap());
        pool.scrub_settled().await.unwrap();
        in_days(109);
        assert!(!starts_if_due(pool).await);
        in_days(110);
        assert!(starts_if_due(pool).await);
    });
}

#[test]
fn a_new_interval_applies_immediately_and_may_be_zero() {
    let machine = machine(&Setup::small("2+1", 4), 2);
    with_pool(&machine, async |pool| {
        fill(pool, "v", 200, 1).await;
        machine.events.skip_seconds(10 * DAY);
        assert!(!starts_if_due(pool).await);
        pool.set_scrub_every(10 * DAY).await.unwrap();
        assert!(starts_if_due(pool).await);
        machine.events.skip_seconds(20 * DAY);
        pool.set_scrub_every(40 * DAY).await.unwrap();
        assert!(!starts_if_due(pool).await);
        pool.set_scrub_every(0).await.unwrap();
    });
    machine.events.skip_seconds(4000 * DAY);
    with_pool(&machine, async |pool| {
        assert_eq!(status(pool).await.every, 0);
        assert!(!starts_if_due(pool).await, "started without a schedule");
        pool.set_scrub_every(40 * DAY).await.unwrap();
        assert!(starts_if_due(pool).await);
    });
}

/// A running scrub is not started again, regardless of the length of a pause. A cancelled scrub is
/// not restarted before the next interval.
#[test]
fn a_paused_scrub_continues_and_a_cancelled_one_waits_for_its_interval() {
    let machine = machine(&Setup::small("2+1", 4), 3);
    let paused = RepairLimits { paused: true, bytes_per_second: 0 };
    let began = with_pool(&machine, async |pool| {
        fill(pool, "v", 200, 1).await;
        pool.set_scrub_limits(paused).await.unwrap();
        machine.events.skip_seconds(30 * DAY);
        assert!(pool.start_scrub_if_due().await.unwrap());
        let began = status(pool).await.current.began;
        machine.events.skip_seconds(90 * DAY);
        assert!(!pool.start_scrub_if_due().await.unwrap());
        assert_eq!(status(pool).await.current.began, began);
        began
    });
    with_pool(&machine, async |pool| {
        pool.set_scrub_limits(paused).await.unwrap();
        assert!(!pool.start_scrub_if_due().await.unwrap());
        pool.set_scrub_limits(RepairLimits::default()).await.unwrap();
        pool.scrub_settled().await.unwrap();
        let after = status(pool).await;
        assert!(!after.running && after.last.began == began && after.last.ended > began, "{after:?}");
        // The scrub took longer than the interval.
        pool.set_scrub_limits(paused).await.unwrap();
        assert!(pool.start_scrub_if_due().await.unwrap());
        assert!(pool.cancel_scrub().await.unwrap());
        assert!(!pool.start_scrub_if_due().await.unwrap());
        let called_off = status(pool).await;
        assert_eq!((called_off.running, called_off.last), (false, after.last));
    });
    with_pool(&machine, async |pool| {
        machine.events.skip_seconds(29 * DAY);
        assert!(!starts_if_due(pool).await);
        machine.events.skip_seconds(DAY);
        assert!(starts_if_due(pool).await);
    });
}

/// If the wall clock was years ahead at the start of a scrub, the next scrub is not delayed by
/// years.
#[test]
fn a_wrong_wall_clock_does_not_suppress_scrubs() {
    let machine = machine(&Setup::small("2+1", 4), 4);
    with_pool(&machine, async |pool| {
        fill(pool, "v", 200, 1).await;
        machine.events.skip_seconds(9000 * DAY);
        assert!(starts_if_due(pool).await);
        machine.events.turn_back_seconds(9000 * DAY);
        assert!(pool.start_scrub_if_due().await.unwrap());
        pool.scrub_settled().await.unwrap();
        assert!(!starts_if_due(pool).await);
        machine.events.skip_seconds(30 * DAY);
        assert!(starts_if_due(pool).await);
    });
}
