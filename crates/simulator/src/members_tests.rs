//! Drives that join, come back and leave, step by step: what is promised of each.

use engine::{ErrorKind, RepairLimits, RepairState};
use format::DriveState;
use reactor::Buffer;

use crate::repair_tests::{BLOCK, compare, fill, machine, settled, state, with_pool};
use crate::run::{Setup, judge};

const PAUSED: RepairLimits = RepairLimits { paused: true, bytes_per_second: 0 };

/// A pool with no drive to spare takes a new one, on which the lost one's columns are written.
#[test]
fn a_lost_drive_is_replaced() {
    let machine = machine(&Setup { spares: vec![20 << 20], ..Setup::small("2+1", 3) }, 1);
    with_pool(&machine, async |pool| {
        fill(pool, "v", 700, 9).await;
        pool.fail_drive(1).await.unwrap();
        assert_eq!(settled(pool).await.repair.state, RepairState::NeedsDrive);
        assert_eq!(machine.add(pool, 3).await.unwrap(), 3);
        let status = settled(pool).await;
        assert_eq!((status.repair.state, state(&status, 1)), (RepairState::Whole, DriveState::Removed));
        pool.fail_drive(0).await.unwrap();
        compare(pool, "v", 9).await;
    });
    judge(&machine.check().unwrap(), &[]).unwrap();
}

/// A drive that is emptied is part of the pool until everything lies elsewhere, and then another one may be lost.
#[test]
fn a_drive_is_emptied() {
    let machine = machine(&Setup { shards: 2, ..Setup::small("2+2", 5) }, 2);
    with_pool(&machine, async |pool| {
        fill(pool, "v", 700, 3).await;
        pool.set_repair_limits(PAUSED).await.unwrap();
        pool.evacuate_drive(2).await.unwrap();
        let status = settled(pool).await;
        assert_eq!((state(&status, 2), status.lost_drives()), (DriveState::Leaving, 0));
        assert_eq!(status.repair.state, RepairState::Paused);
        let refused = pool.evacuate_drive(0).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Invalid, "a segment needs four drives");
        pool.set_repair_limits(RepairLimits::default()).await.unwrap();
        let status = settled(pool).await;
        assert_eq!((state(&status, 2), status.repair.state), (DriveState::Removed, RepairState::Whole));
        machine.disks[2].set_dead(true);
        pool.fail_drive(0).await.unwrap();
        pool.fail_drive(4).await.unwrap();
        compare(pool, "v", 3).await;
    });
    judge(&machine.check().unwrap(), &[]).unwrap();
}

/// Emptying goes on after a restart, and may be given up.
#[test]
fn a_drive_that_was_to_be_emptied_stays_if_it_is_kept() {
    let machine = machine(&Setup::small("2+1", 5), 3);
    with_pool(&machine, async |pool| {
        fill(pool, "v", 700, 3).await;
        pool.set_repair_limits(PAUSED).await.unwrap();
        pool.evacuate_drive(4).await.unwrap();
        pool.evacuate_drive(3).await.unwrap();
        pool.keep_drive(3).await.unwrap();
        pool.keep_drive(0).await.unwrap();
    });
    with_pool(&machine, async |pool| {
        let status = settled(pool).await;
        assert_eq!((state(&status, 3), state(&status, 4)), (DriveState::Online, DriveState::Removed));
        compare(pool, "v", 3).await;
    });
    judge(&machine.check().unwrap(), &[]).unwrap();
}

/// When another one is lost, a drive that was to be emptied stays, and none is emptied before the pool is whole again.
#[test]
fn a_drive_is_not_emptied_when_others_are_lost() {
    let machine = machine(&Setup::small("2+1", 5), 4);
    with_pool(&machine, async |pool| {
        fill(pool, "v", 700, 3).await;
        pool.set_repair_limits(PAUSED).await.unwrap();
        pool.evacuate_drive(3).await.unwrap();
        pool.fail_drive(0).await.unwrap();
        let status = pool.status().await.unwrap();
        assert_eq!((state(&status, 0), state(&status, 3)), (DriveState::Failed, DriveState::Online));
        assert_eq!(pool.evacuate_drive(3).await.unwrap_err().kind(), ErrorKind::Busy);
        pool.set_repair_limits(RepairLimits::default()).await.unwrap();
        let status = settled(pool).await;
        assert_eq!((status.repair.state, state(&status, 0)), (RepairState::Whole, DriveState::Removed));
        pool.evacuate_drive(3).await.unwrap();
        assert_eq!(state(&settled(pool).await, 3), DriveState::Removed);
        compare(pool, "v", 3).await;
    });
}

/// Of a drive that was pulled out and is plugged in again, only what it missed is written; until then it counts as lost.
#[test]
fn a_drive_that_comes_back_gets_what_it_missed() {
    for plugged_in_at_an_opening in [false, true] {
        let machine = machine(&Setup::small("2+1", 3), 5);
        with_pool(&machine, async |pool| {
            fill(pool, "v", 2000, 3).await;
            pool.checkpoint().await.unwrap();
            machine.disks[1].set_dead(true);
            fill(pool, "w", 60, 8).await;
            let status = settled(pool).await;
            assert_eq!(
                (state(&status, 1), status.repair.state),
                (DriveState::Missing, RepairState::NeedsDrive)
            );
            if !plugged_in_at_an_opening {
                let refused = machine.bring_back(pool, 0).await.unwrap_err();
                assert_eq!(refused.kind(), ErrorKind::Exists);
                pool.set_repair_limits(PAUSED).await.unwrap();
                machine.disks[1].plug_in();
                assert_eq!(machine.bring_back(pool, 1).await.unwrap(), 1);
                let status = pool.status().await.unwrap();
                assert_eq!(state(&status, 1), DriveState::Returning);
                assert!(pool.fail_drive(0).await.is_err(), "what it missed is missing yet");
                pool.set_repair_limits(RepairLimits::default()).await.unwrap();
                back_and_whole(pool).await;
            }
        });
        if plugged_in_at_an_opening {
            machine.disks[1].plug_in();
            with_pool(&machine, async |pool| back_and_whole(pool).await);
        }
        judge(&machine.check().unwrap(), &[]).unwrap();
    }
}

async fn back_and_whole(pool: &engine::Pool) {
    let status = settled(pool).await;
    assert_eq!((state(&status, 1), status.repair.state), (DriveState::Online, RepairState::Whole));
    // A third of the segments' columns would be 4 MiB.
    assert!(status.repair.bytes_done < 2 << 20, "{:?}", status.repair);
    pool.fail_drive(0).await.unwrap();
    compare(pool, "v", 3).await;
    compare(pool, "w", 8).await;
}

/// A drive that was taken out on purpose stays out, until somebody says otherwise.
#[test]
fn a_drive_that_was_taken_out_does_not_come_back_by_itself() {
    let machine = machine(&Setup::small("2+1", 3), 6);
    with_pool(&machine, async |pool| {
        fill(pool, "v", 100, 3).await;
        pool.fail_drive(1).await.unwrap();
    });
    with_pool(&machine, async |pool| {
        assert_eq!(state(&settled(pool).await, 1), DriveState::Failed);
        machine.bring_back(pool, 1).await.unwrap();
        assert_eq!(state(&settled(pool).await, 1), DriveState::Online);
        compare(pool, "v", 3).await;
    });
    judge(&machine.check().unwrap(), &[]).unwrap();
}

/// The space of a drive that joins is there for new data, whatever its size; what was written before stays where it is.
#[test]
fn a_pool_grows_by_a_drive_of_another_size() {
    let machine = machine(&Setup { spares: vec![32 << 20, 40 << 20], ..Setup::small("1+1", 2) }, 7);
    with_pool(&machine, async |pool| {
        fill(pool, "v", 1000, 3).await;
        let before = pool.status().await.unwrap().space;
        machine.add(pool, 2).await.unwrap();
        machine.add(pool, 3).await.unwrap();
        let after = pool.status().await.unwrap().space;
        // Zones of 128 KiB behind the first 4 MiB.
        assert_eq!(after.zones - before.zones, (28 + 36) * 8);
        assert!(after.capacity_blocks > 3 * before.capacity_blocks, "{before:?} {after:?}");
        pool.create_volume("big", 1 << 30, 4096, 0).await.unwrap();
        let volume = pool.open_volume("big").await.unwrap().attach();
        let data = Buffer::copy_of(&crate::model::content(6, 0, 4096).repeat(64));
        let mut written = 0;
        while volume.write(written, &data.span()).await.is_ok() {
            written += data.len() as u64;
        }
        assert!(written > (after.capacity_blocks - 1000) * BLOCK * 9 / 10, "{written} {after:?}");
        compare(pool, "v", 3).await;
    });
    judge(&machine.check().unwrap(), &[]).unwrap();
}

/// What is too small, or belongs to the pool already, does not join.
#[test]
fn drives_that_cannot_join_are_refused() {
    let machine = machine(&Setup { spares: vec![4 << 20], ..Setup::small("2+1", 3) }, 8);
    with_pool(&machine, async |pool| {
        fill(pool, "v", 100, 3).await;
        assert_eq!(machine.add(pool, 3).await.unwrap_err().kind(), ErrorKind::Invalid);
        assert_eq!(machine.add(pool, 0).await.unwrap_err().kind(), ErrorKind::Exists);
        assert_eq!(machine.bring_back(pool, 3).await.unwrap_err().kind(), ErrorKind::Invalid);
        assert_eq!(pool.status().await.unwrap().drives.len(), 3);
        compare(pool, "v", 3).await;
    });
    machine.absent.borrow_mut()[3] = true;
    judge(&machine.check().unwrap(), &[]).unwrap();
}

/// Others must have room for what a drive holds.
#[test]
fn a_drive_is_not_emptied_into_a_full_pool() {
    let machine =
        machine(&Setup { drives: vec![(4 << 20) + 80 * (128 << 10); 4], ..Setup::small("2+1", 4) }, 9);
    with_pool(&machine, async |pool| {
        pool.create_volume("big", 1 << 30, 4096, 0).await.unwrap();
        let volume = pool.open_volume("big").await.unwrap().attach();
        let data = Buffer::copy_of(&crate::model::content(6, 0, 4096).repeat(64));
        let mut offset = 0;
        while volume.write(offset, &data.span()).await.is_ok() {
            offset += data.len() as u64;
        }
        let refused = pool.evacuate_drive(1).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::NoSpace);
        assert_eq!(state(&settled(pool).await, 1), DriveState::Online);
    });
    judge(&machine.check().unwrap(), &[]).unwrap();
}
