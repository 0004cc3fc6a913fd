//! Drives with a few and with many read errors: healing, error counts, and the drain of a failing
//! drive.

use std::time::Duration;

use engine::{EventKind, Pool, RepairState};
use format::DriveState;
use reactor::{Buffer, Reactor};

use crate::disk::Disk;
use crate::repair_tests::{BLOCK, compare, fill, machine, state, wait_for_repair, with_pool};
use crate::run::{Setup, check_findings};

/// Returns the pages of segments. The superblocks take the first 4 MiB.
fn pages(disk: &Disk) -> Vec<u64> {
    disk.pages().into_iter().filter(|page| *page >= 1024).collect()
}

fn setup(scheme: &str, drives: usize, retire_after: u32) -> Setup {
    let mut setup = Setup::small(scheme, drives);
    setup.tuning.retire_after = retire_after;
    setup
}

async fn settle_events() {
    Reactor::current().sleep(Duration::from_millis(50)).await;
}

async fn kinds(pool: &Pool) -> Vec<EventKind> {
    pool.events(0, 1000).await.unwrap().into_iter().map(|(_, event)| event.kind).collect()
}

/// A few unreadable places: reads succeed, the blocks move elsewhere, the drive stays, and the
/// errors are counted, once for each zone.
#[test]
fn a_drive_with_few_read_errors_stays() {
    let machine = machine(&setup("2+1", 5, 8), 1);
    with_pool(&machine, async |pool| fill(pool, "v", 700, 9).await);
    let bad = &machine.disks[1];
    // Some rows of three zones. In a single segment they might hold parity only.
    pages(bad)
        .into_iter()
        .filter(|page| (1024 + 64..1024 + 160).contains(page))
        .for_each(|page| bad.mark_unreadable(page));
    with_pool(&machine, async |pool| {
        for _ in 0..5 {
            compare(pool, "v", 9).await;
        }
        settle_events().await;
        let drive = &pool.status().await.unwrap().drives[1];
        assert!(drive.errors.unreadable >= 10 && drive.errors.wrong == 0, "{:?}", drive.errors);
        assert!((1..=3).contains(&drive.errors.zones), "{:?}", drive.errors);
        assert_eq!((drive.state, drive.failing), (DriveState::Online, false));
        let events = kinds(pool).await.into_iter().filter(|kind| *kind == EventKind::DriveReadErrors).count();
        assert_eq!(events, 1, "one event, because simulated wall time hardly passes");
        // The blocks that were read have moved, so the bad pages are no longer read.
        let before = drive.errors.unreadable;
        compare(pool, "v", 9).await;
        settle_events().await;
        assert_eq!(pool.status().await.unwrap().drives[1].errors.unreadable, before);
    });
    // The counts persist in the pool.
    with_pool(&machine, async |pool| {
        let drive = &pool.status().await.unwrap().drives[1];
        assert!(drive.errors.unreadable >= 10 && drive.errors.zones >= 1, "{:?}", drive.errors);
    });
}

/// A drive with errors everywhere is drained during reads, without data loss and without a command.
#[test]
fn a_drive_with_many_read_errors_is_drained() {
    for garbles in [false, true] {
        let machine = machine(&setup("2+2", 6, 4), 2);
        with_pool(&machine, async |pool| fill(pool, "v", 1500, 9).await);
        let bad = &machine.disks[2];
        for page in pages(bad) {
            if garbles {
                assert!(bad.flip_bit(page, 77));
            } else {
                bad.mark_unreadable(page);
            }
        }
        with_pool(&machine, async |pool| {
            compare(pool, "v", 9).await;
            settle_events().await;
            let status = wait_for_repair(pool).await;
            let drive = &status.drives[2];
            assert_eq!((drive.state, status.repair.state), (DriveState::Removed, RepairState::Complete));
            assert_eq!(drive.errors.wrong > 0, garbles);
            assert_eq!(drive.errors.unreadable > 0, !garbles);
            let kinds = kinds(pool).await;
            for kind in [
                EventKind::DriveReadErrors,
                EventKind::DriveFailing,
                EventKind::DriveDraining,
                EventKind::DriveRemoved,
            ] {
                assert_eq!(kinds.iter().filter(|event| **event == kind).count(), 1, "{kind:?} in {kinds:?}");
            }
            pool.fail_drive(0).await.unwrap();
            pool.fail_drive(5).await.unwrap();
            compare(pool, "v", 9).await;
        });
        check_findings(&machine.check().unwrap(), &[]).unwrap();
    }
}

/// Without a free drive the bad drive stays and is reported as failing, also after a restart. An
/// added drive replaces it without a command.
#[test]
fn a_failing_drive_stays_until_it_can_be_replaced() {
    let machine = machine(&Setup { spares: vec![20 << 20], ..setup("2+1", 3, 2) }, 3);
    with_pool(&machine, async |pool| fill(pool, "v", 700, 9).await);
    let bad = &machine.disks[0];
    pages(bad).into_iter().for_each(|page| bad.mark_unreadable(page));
    with_pool(&machine, async |pool| {
        compare(pool, "v", 9).await;
        settle_events().await;
        let status = wait_for_repair(pool).await;
        assert_eq!((state(&status, 0), status.drives[0].failing), (DriveState::Online, true));
        let failing = kinds(pool).await.into_iter().filter(|kind| *kind == EventKind::DriveFailing).count();
        assert_eq!(failing, 1);
    });
    with_pool(&machine, async |pool| {
        assert!(pool.status().await.unwrap().drives[0].failing);
        machine.add_drive(pool, 3).await.unwrap();
        settle_events().await;
        let status = wait_for_repair(pool).await;
        assert_eq!((state(&status, 0), state(&status, 3)), (DriveState::Removed, DriveState::Online));
        pool.fail_drive(1).await.unwrap();
        compare(pool, "v", 9).await;
    });
}

/// A failing drive that had to stay is drained when a drive is added, without another error.
#[test]
fn an_added_drive_replaces_a_failing_drive() {
    let machine = machine(&Setup { spares: vec![20 << 20], ..setup("2+1", 3, 2) }, 7);
    with_pool(&machine, async |pool| fill(pool, "v", 700, 9).await);
    let bad = &machine.disks[0];
    pages(bad).into_iter().for_each(|page| bad.mark_unreadable(page));
    with_pool(&machine, async |pool| {
        compare(pool, "v", 9).await;
        settle_events().await;
        assert!(wait_for_repair(pool).await.drives[0].failing);
        pool.set_repair_limits(engine::RepairLimits { paused: true, bytes_per_second: 0 }).await.unwrap();
        machine.add_drive(pool, 3).await.unwrap();
        Reactor::current().sleep(Duration::from_secs(1)).await;
        assert_eq!(state(&pool.status().await.unwrap(), 0), DriveState::Draining);
    });
}

/// Keeping a drive clears its error history.
#[test]
fn a_kept_drive_is_not_drained_for_old_errors() {
    let machine = machine(&setup("2+1", 5, 2), 4);
    with_pool(&machine, async |pool| fill(pool, "v", 1500, 9).await);
    let bad = &machine.disks[0];
    pages(bad).into_iter().for_each(|page| bad.mark_unreadable(page));
    with_pool(&machine, async |pool| {
        pool.set_repair_limits(engine::RepairLimits { paused: true, bytes_per_second: 0 }).await.unwrap();
        compare(pool, "v", 9).await;
        settle_events().await;
        assert_eq!(state(&wait_for_repair(pool).await, 0), DriveState::Draining);
        pool.cancel_remove_drive(0).await.unwrap();
        // The bad pages that were not healed are read again.
        compare(pool, "v", 9).await;
        settle_events().await;
        let drive = &pool.status().await.unwrap().drives[0];
        assert_eq!((drive.state, drive.failing), (DriveState::Online, false));
        assert!(drive.errors.unreadable > 0);
    });
}

/// While another drive is lost, a drive with errors is still needed. It is drained once redundancy
/// is complete.
#[test]
fn no_failing_drive_is_drained_while_another_is_lost() {
    let machine = machine(&setup("2+2", 6, 2), 5);
    with_pool(&machine, async |pool| fill(pool, "v", 700, 9).await);
    with_pool(&machine, async |pool| {
        pool.set_repair_limits(engine::RepairLimits { paused: true, bytes_per_second: 0 }).await.unwrap();
        pool.fail_drive(4).await.unwrap();
        let bad = &machine.disks[1];
        pages(bad).into_iter().for_each(|page| bad.mark_unreadable(page));
        compare(pool, "v", 9).await;
        settle_events().await;
        let status = pool.status().await.unwrap();
        assert_eq!((state(&status, 1), status.drives[1].failing), (DriveState::Online, true));
        pool.set_repair_limits(engine::RepairLimits::default()).await.unwrap();
        wait_for_repair(pool).await;
        settle_events().await;
        let status = wait_for_repair(pool).await;
        assert_eq!((state(&status, 1), state(&status, 4)), (DriveState::Removed, DriveState::Removed));
        compare(pool, "v", 9).await;
    });
    check_findings(&machine.check().unwrap(), &[]).unwrap();
}

/// Error counts persist when the process is killed soon after the errors.
#[test]
fn error_counts_survive_a_kill() {
    let machine = machine(&setup("2+1", 3, 8), 6);
    with_pool(&machine, async |pool| fill(pool, "v", 300, 9).await);
    let bad = &machine.disks[1];
    pages(bad).into_iter().for_each(|page| bad.mark_unreadable(page));
    let this = machine.clone();
    let ended = machine.boot(async move || {
        let (pool, _) = this.open().await.unwrap();
        let volume = pool.open_volume("v").await.unwrap().attach();
        volume.read(0, &Buffer::new(64 * usize::try_from(BLOCK).unwrap()).span()).await.unwrap();
        settle_events().await;
        let errors = pool.status().await.unwrap().drives[1].errors;
        assert!(errors.zones > 0);
    });
    assert_eq!(ended, crate::run::BootEnd::Completed(()));
    machine.kill_process();
    with_pool(&machine, async |pool| {
        assert!(pool.status().await.unwrap().drives[1].errors.zones > 0);
    });
}
