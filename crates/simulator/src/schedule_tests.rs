//! Scheduled scrubs, triggered by the simulated wall clock.

use engine::{Pool, RepairLimits, ScrubStatus};

use crate::repair_tests::{fill, machine, with_pool};
use crate::run::{Ended, Setup};

const DAY: u64 = 86_400;

async fn status(pool: &Pool) -> ScrubStatus {
    pool.status().await.unwrap().scrub
}

/// Returns true if a scheduled scrub starts now; waits for its end.
async fn begins(pool: &Pool) -> bool {
    let before = status(pool).await.last;
    let begins = pool.start_scrub_if_due().await.unwrap();
    pool.scrub_settled().await.unwrap();
    let after = status(pool).await;
    assert!(!after.running && (after.last.began > before.began) == begins, "{after:?}");
    begins
}

/// The interval counts from the pool's creation, and then from the start of the last scrub,
/// regardless of closes and kills.
#[test]
fn one_is_due_when_its_interval_is_over_and_not_before() {
    let machine = machine(&Setup::small("2+1", 4), 1);
    let (made, clock) = (machine.world.wall_clock()(), machine.world.wall_clock());
    let in_days = |days: u64| machine.world.pass(made + days * DAY + 60 - clock());
    with_pool(&machine, async |pool| {
        fill(pool, "v", 200, 1).await;
        assert_eq!(status(pool).await.every, 30 * DAY, "the default interval");
        assert!(!begins(pool).await);
        in_days(29);
        assert!(!begins(pool).await);
    });
    in_days(30);
    let this = machine.clone();
    let ended = machine.boot(async move || {
        let (pool, _) = this.open().await.unwrap();
        assert!(begins(&pool).await);
        assert!(!begins(&pool).await, "started again immediately");
    });
    assert_eq!(ended, Ended::Done(()));
    machine.kill();
    in_days(59);
    with_pool(&machine, async |pool| {
        assert!(!begins(pool).await);
        in_days(60);
        assert!(begins(pool).await);
        // A manual scrub counts as well.
        in_days(80);
        assert!(pool.start_scrub().await.unwrap());
        pool.scrub_settled().await.unwrap();
        in_days(109);
        assert!(!begins(pool).await);
        in_days(110);
        assert!(begins(pool).await);
    });
}

#[test]
fn another_interval_counts_at_once_and_never_is_one() {
    let machine = machine(&Setup::small("2+1", 4), 2);
    with_pool(&machine, async |pool| {
        fill(pool, "v", 200, 1).await;
        machine.world.pass(10 * DAY);
        assert!(!begins(pool).await);
        pool.set_scrub_every(10 * DAY).await.unwrap();
        assert!(begins(pool).await);
        machine.world.pass(20 * DAY);
        pool.set_scrub_every(40 * DAY).await.unwrap();
        assert!(!begins(pool).await);
        pool.set_scrub_every(0).await.unwrap();
    });
    machine.world.pass(4000 * DAY);
    with_pool(&machine, async |pool| {
        assert_eq!(status(pool).await.every, 0);
        assert!(!begins(pool).await, "started without a schedule");
        pool.set_scrub_every(40 * DAY).await.unwrap();
        assert!(begins(pool).await);
    });
}

/// A running scrub is not started again, regardless of the length of a pause. A cancelled scrub is
/// not restarted before the next interval.
#[test]
fn one_that_pauses_goes_on_and_one_that_was_called_off_waits_for_its_turn() {
    let machine = machine(&Setup::small("2+1", 4), 3);
    let paused = RepairLimits { paused: true, bytes_per_second: 0 };
    let began = with_pool(&machine, async |pool| {
        fill(pool, "v", 200, 1).await;
        pool.set_scrub_limits(paused).await.unwrap();
        machine.world.pass(30 * DAY);
        assert!(pool.start_scrub_if_due().await.unwrap());
        let began = status(pool).await.current.began;
        machine.world.pass(90 * DAY);
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
        machine.world.pass(29 * DAY);
        assert!(!begins(pool).await);
        machine.world.pass(DAY);
        assert!(begins(pool).await);
    });
}

/// If the wall clock was years ahead at the start of a scrub, the next scrub is not delayed by
/// years.
#[test]
fn a_clock_that_was_wrong_does_no_harm_for_long() {
    let machine = machine(&Setup::small("2+1", 4), 4);
    with_pool(&machine, async |pool| {
        fill(pool, "v", 200, 1).await;
        machine.world.pass(9000 * DAY);
        assert!(begins(pool).await);
        machine.world.set_back(9000 * DAY);
        assert!(pool.start_scrub_if_due().await.unwrap());
        pool.scrub_settled().await.unwrap();
        assert!(!begins(pool).await);
        machine.world.pass(30 * DAY);
        assert!(begins(pool).await);
    });
}
