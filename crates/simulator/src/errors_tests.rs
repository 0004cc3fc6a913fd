//! Drives that err at some places, and at many: what is healed, counted, kept, and when a drive is emptied for it.

use std::time::Duration;

use engine::{EventKind, Pool, RepairState};
use format::DriveState;
use reactor::{Buffer, Reactor};

use crate::disk::Disk;
use crate::repair_tests::{BLOCK, compare, fill, machine, settled, state, with_pool};
use crate::run::{Setup, judge};

/// The pages that hold segments: the superblocks lie in the first four MiB.
fn pages(disk: &Disk) -> Vec<u64> {
    disk.pages().into_iter().filter(|page| *page >= 1024).collect()
}

fn setup(scheme: &str, drives: usize, retire_after: u32) -> Setup {
    let mut setup = Setup::small(scheme, drives);
    setup.tuning.retire_after = retire_after;
    setup
}

async fn rest() {
    Reactor::current().sleep(Duration::from_millis(50)).await;
}

async fn kinds(pool: &Pool) -> Vec<EventKind> {
    pool.events(0, 1000).await.unwrap().into_iter().map(|(_, event)| event.kind).collect()
}

/// A few bad places: all is read, the blocks move elsewhere, the drive stays, and everything is counted once for each zone.
#[test]
fn a_drive_with_some_bad_places_stays() {
    let machine = machine(&setup("2+1", 5, 8), 1);
    with_pool(&machine, async |pool| fill(pool, "v", 700, 9).await);
    let bad = &machine.disks[1];
    // Some rows of three zones: of a segment, they may lie in parity only.
    pages(bad)
        .into_iter()
        .filter(|page| (1024 + 64..1024 + 160).contains(page))
        .for_each(|page| bad.spoil(page));
    with_pool(&machine, async |pool| {
        for _ in 0..5 {
            compare(pool, "v", 9).await;
        }
        rest().await;
        let drive = &pool.status().await.unwrap().drives[1];
        assert!(drive.errors.unreadable >= 10 && drive.errors.wrong == 0, "{:?}", drive.errors);
        assert!((1..=3).contains(&drive.errors.zones), "{:?}", drive.errors);
        assert_eq!((drive.state, drive.failing), (DriveState::Online, false));
        let said = kinds(pool).await.into_iter().filter(|kind| *kind == EventKind::DriveReadErrors).count();
        assert_eq!(said, 1, "the clock stands still");
        // What was read has moved: nothing of it is read there any more.
        let before = drive.errors.unreadable;
        compare(pool, "v", 9).await;
        rest().await;
        assert_eq!(pool.status().await.unwrap().drives[1].errors.unreadable, before);
    });
    // Kept in the pool.
    with_pool(&machine, async |pool| {
        let drive = &pool.status().await.unwrap().drives[1];
        assert!(drive.errors.unreadable >= 10 && drive.errors.zones >= 1, "{:?}", drive.errors);
    });
}

/// A drive that garbles what it holds everywhere is emptied while it is read, with nothing lost and nobody asked.
#[test]
fn a_drive_that_errs_everywhere_is_emptied() {
    for garbles in [false, true] {
        let machine = machine(&setup("2+2", 6, 4), 2);
        with_pool(&machine, async |pool| fill(pool, "v", 1500, 9).await);
        let bad = &machine.disks[2];
        for page in pages(bad) {
            if garbles {
                assert!(bad.flip(page, 77));
            } else {
                bad.spoil(page);
            }
        }
        with_pool(&machine, async |pool| {
            compare(pool, "v", 9).await;
            rest().await;
            let status = settled(pool).await;
            let drive = &status.drives[2];
            assert_eq!((drive.state, status.repair.state), (DriveState::Removed, RepairState::Whole));
            assert_eq!(drive.errors.wrong > 0, garbles);
            assert_eq!(drive.errors.unreadable > 0, !garbles);
            let kinds = kinds(pool).await;
            for kind in [
                EventKind::DriveReadErrors,
                EventKind::DriveFailing,
                EventKind::DriveDraining,
                EventKind::DriveRemoved,
            ] {
                assert_eq!(kinds.iter().filter(|said| **said == kind).count(), 1, "{kind:?} in {kinds:?}");
            }
            pool.fail_drive(0).await.unwrap();
            pool.fail_drive(5).await.unwrap();
            compare(pool, "v", 9).await;
        });
        judge(&machine.check().unwrap(), &[]).unwrap();
    }
}

/// With no drive to spare it stays, and is said to fail, over restarts; a drive that is added takes its place without being asked.
#[test]
fn a_failing_drive_stays_until_there_is_another() {
    let machine = machine(&Setup { spares: vec![20 << 20], ..setup("2+1", 3, 2) }, 3);
    with_pool(&machine, async |pool| fill(pool, "v", 700, 9).await);
    let bad = &machine.disks[0];
    pages(bad).into_iter().for_each(|page| bad.spoil(page));
    with_pool(&machine, async |pool| {
        compare(pool, "v", 9).await;
        rest().await;
        let status = settled(pool).await;
        assert_eq!((state(&status, 0), status.drives[0].failing), (DriveState::Online, true));
        let failing = kinds(pool).await.into_iter().filter(|kind| *kind == EventKind::DriveFailing).count();
        assert_eq!(failing, 1);
    });
    with_pool(&machine, async |pool| {
        assert!(pool.status().await.unwrap().drives[0].failing);
        machine.add(pool, 3).await.unwrap();
        rest().await;
        let status = settled(pool).await;
        assert_eq!((state(&status, 0), state(&status, 3)), (DriveState::Removed, DriveState::Online));
        pool.fail_drive(1).await.unwrap();
        compare(pool, "v", 9).await;
    });
}

/// Somebody who wants to keep a drive keeps it: what counted against it is forgotten.
#[test]
fn a_drive_that_is_kept_is_not_emptied_for_the_same_places() {
    let machine = machine(&setup("2+1", 5, 2), 4);
    with_pool(&machine, async |pool| fill(pool, "v", 1500, 9).await);
    let bad = &machine.disks[0];
    pages(bad).into_iter().for_each(|page| bad.spoil(page));
    with_pool(&machine, async |pool| {
        pool.set_repair_limits(engine::RepairLimits { paused: true, bytes_per_second: 0 }).await.unwrap();
        compare(pool, "v", 9).await;
        rest().await;
        assert_eq!(state(&settled(pool).await, 0), DriveState::Draining);
        pool.keep_drive(0).await.unwrap();
        // What lies there is read again, as far as it was not healed.
        compare(pool, "v", 9).await;
        rest().await;
        let drive = &pool.status().await.unwrap().drives[0];
        assert_eq!((drive.state, drive.failing), (DriveState::Online, false));
        assert!(drive.errors.unreadable > 0);
    });
}

/// While another drive is lost, one that errs is needed more than it does harm: it goes when everything is whole again.
#[test]
fn nothing_is_retired_while_another_drive_is_lost() {
    let machine = machine(&setup("2+2", 6, 2), 5);
    with_pool(&machine, async |pool| fill(pool, "v", 700, 9).await);
    with_pool(&machine, async |pool| {
        pool.set_repair_limits(engine::RepairLimits { paused: true, bytes_per_second: 0 }).await.unwrap();
        pool.fail_drive(4).await.unwrap();
        let bad = &machine.disks[1];
        pages(bad).into_iter().for_each(|page| bad.spoil(page));
        compare(pool, "v", 9).await;
        rest().await;
        let status = pool.status().await.unwrap();
        assert_eq!((state(&status, 1), status.drives[1].failing), (DriveState::Online, true));
        pool.set_repair_limits(engine::RepairLimits::default()).await.unwrap();
        settled(pool).await;
        rest().await;
        let status = settled(pool).await;
        assert_eq!((state(&status, 1), state(&status, 4)), (DriveState::Removed, DriveState::Removed));
        compare(pool, "v", 9).await;
    });
    judge(&machine.check().unwrap(), &[]).unwrap();
}

/// A kill right after errors were counted: they are there at the next opening.
#[test]
fn counts_survive_a_kill() {
    let machine = machine(&setup("2+1", 3, 8), 6);
    with_pool(&machine, async |pool| fill(pool, "v", 300, 9).await);
    let bad = &machine.disks[1];
    pages(bad).into_iter().for_each(|page| bad.spoil(page));
    let this = machine.clone();
    let ended = machine.boot(async move || {
        let (pool, _) = this.open().await.unwrap();
        let volume = pool.open_volume("v").await.unwrap().attach();
        volume.read(0, &Buffer::new(64 * usize::try_from(BLOCK).unwrap()).span()).await.unwrap();
        rest().await;
        let errors = pool.status().await.unwrap().drives[1].errors;
        assert!(errors.zones > 0);
    });
    assert_eq!(ended, crate::run::Ended::Done(()));
    machine.kill();
    with_pool(&machine, async |pool| {
        assert!(pool.status().await.unwrap().drives[1].errors.zones > 0);
    });
}
