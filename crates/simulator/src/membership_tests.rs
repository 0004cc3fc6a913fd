//! Joining, returning and leaving drives, step by step.

use std::time::Duration;

use engine::{ErrorKind, RepairLimits, RepairState};
use format::DriveState;
use reactor::{Buffer, Reactor};

use crate::repair_tests::{BLOCK, compare, fill, machine, state, wait_for_repair, with_pool};
use crate::run::{Setup, check_findings};

const PAUSED: RepairLimits = RepairLimits { paused: true, bytes_per_second: 0 };

/// A pool without a free drive takes a new one and rebuilds the lost drive's columns onto it.
#[test]
fn a_lost_drive_is_replaced() {
    let machine = machine(&Setup { spares: vec![20 << 20], ..Setup::small("2+1", 3) }, 1);
    with_pool(&machine, async |pool| {
        fill(pool, "v", 700, 9).await;
        pool.fail_drive(1).await.unwrap();
        assert_eq!(wait_for_repair(pool).await.repair.state, RepairState::NeedsDrive);
        assert_eq!(machine.add_drive(pool, 3).await.unwrap(), 3);
        let status = wait_for_repair(pool).await;
        assert_eq!((status.repair.state, state(&status, 1)), (RepairState::Complete, DriveState::Removed));
        pool.fail_drive(0).await.unwrap();
        compare(pool, "v", 9).await;
    });
    check_findings(&machine.check().unwrap(), &[]).unwrap();
}

/// A draining drive belongs to the pool until all its data is elsewhere. Then the pool tolerates
/// further losses.
#[test]
fn a_drive_is_drained() {
    let machine = machine(&Setup { shards: 2, ..Setup::small("2+2", 5) }, 2);
    with_pool(&machine, async |pool| {
        fill(pool, "v", 700, 3).await;
        pool.set_repair_limits(PAUSED).await.unwrap();
        pool.remove_drive(2).await.unwrap();
        let status = wait_for_repair(pool).await;
        assert_eq!((state(&status, 2), status.lost_drives()), (DriveState::Draining, 0));
        assert_eq!(status.repair.state, RepairState::Paused);
        let refused = pool.remove_drive(0).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Invalid, "a segment takes four drives");
        pool.set_repair_limits(RepairLimits::default()).await.unwrap();
        let status = wait_for_repair(pool).await;
        assert_eq!((state(&status, 2), status.repair.state), (DriveState::Removed, RepairState::Complete));
        machine.disks[2].set_dead(true);
        pool.fail_drive(0).await.unwrap();
        pool.fail_drive(4).await.unwrap();
        compare(pool, "v", 3).await;
    });
    check_findings(&machine.check().unwrap(), &[]).unwrap();
}

/// A drain continues after a restart, and can be cancelled.
#[test]
fn a_cancelled_drain_keeps_the_drive() {
    let machine = machine(&Setup::small("2+1", 5), 3);
    with_pool(&machine, async |pool| {
        fill(pool, "v", 700, 3).await;
        pool.set_repair_limits(PAUSED).await.unwrap();
        pool.remove_drive(4).await.unwrap();
        pool.remove_drive(3).await.unwrap();
        pool.cancel_remove_drive(3).await.unwrap();
        let refused = pool.cancel_remove_drive(0).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Invalid);
        assert_eq!(refused.to_string(), "drive 0 is not being removed");
    });
    with_pool(&machine, async |pool| {
        let status = wait_for_repair(pool).await;
        assert_eq!((state(&status, 3), state(&status, 4)), (DriveState::Online, DriveState::Removed));
        compare(pool, "v", 3).await;
    });
    check_findings(&machine.check().unwrap(), &[]).unwrap();
}

/// When another drive is lost, a draining drive stays. No drive is drained before redundancy is
/// complete again.
#[test]
fn no_drive_is_drained_while_another_is_lost() {
    let machine = machine(&Setup::small("2+1", 5), 4);
    with_pool(&machine, async |pool| {
        fill(pool, "v", 700, 3).await;
        pool.set_repair_limits(PAUSED).await.unwrap();
        pool.remove_drive(3).await.unwrap();
        pool.fail_drive(0).await.unwrap();
        let status = pool.status().await.unwrap();
        assert_eq!((state(&status, 0), state(&status, 3)), (DriveState::Failed, DriveState::Online));
        assert_eq!(pool.remove_drive(3).await.unwrap_err().kind(), ErrorKind::Busy);
        pool.set_repair_limits(RepairLimits::default()).await.unwrap();
        let status = wait_for_repair(pool).await;
        assert_eq!((status.repair.state, state(&status, 0)), (RepairState::Complete, DriveState::Removed));
        pool.remove_drive(3).await.unwrap();
        assert_eq!(state(&wait_for_repair(pool).await, 3), DriveState::Removed);
        compare(pool, "v", 3).await;
    });
}

/// Only the missed writes of a returning drive are rebuilt. Until then it counts as lost.
#[test]
fn a_returned_drive_is_resynced() {
    for plugged_in_at_an_opening in [false, true] {
        let machine = machine(&Setup::small("2+1", 3), 5);
        with_pool(&machine, async |pool| {
            fill(pool, "v", 2000, 3).await;
            pool.checkpoint().await.unwrap();
            machine.disks[1].set_dead(true);
            fill(pool, "w", 60, 8).await;
            let status = wait_for_repair(pool).await;
            assert_eq!(
                (state(&status, 1), status.repair.state),
                (DriveState::Missing, RepairState::NeedsDrive)
            );
            if !plugged_in_at_an_opening {
                let refused = machine.return_drive(pool, 0).await.unwrap_err();
                assert_eq!(refused.kind(), ErrorKind::Exists);
                pool.set_repair_limits(PAUSED).await.unwrap();
                machine.disks[1].plug_in();
                assert_eq!(machine.return_drive(pool, 1).await.unwrap(), 1);
                let status = pool.status().await.unwrap();
                assert_eq!(state(&status, 1), DriveState::Returning);
                assert!(pool.fail_drive(0).await.is_err(), "the missed writes are not rebuilt yet");
                pool.set_repair_limits(RepairLimits::default()).await.unwrap();
                check_returned_drive(pool).await;
            }
        });
        if plugged_in_at_an_opening {
            machine.disks[1].plug_in();
            with_pool(&machine, async |pool| check_returned_drive(pool).await);
        }
        check_findings(&machine.check().unwrap(), &[]).unwrap();
    }
}

async fn check_returned_drive(pool: &engine::Pool) {
    let status = wait_for_repair(pool).await;
    assert_eq!((state(&status, 1), status.repair.state), (DriveState::Online, RepairState::Complete));
    // A third of the segments' columns would be 4 MiB.
    assert!(status.repair.bytes_done < 2 << 20, "{:?}", status.repair);
    pool.fail_drive(0).await.unwrap();
    compare(pool, "v", 3).await;
    compare(pool, "w", 8).await;
}

/// A drive that was removed deliberately stays out until it is returned by command.
#[test]
fn a_removed_drive_does_not_return_automatically() {
    let machine = machine(&Setup::small("2+1", 3), 6);
    with_pool(&machine, async |pool| {
        fill(pool, "v", 100, 3).await;
        pool.fail_drive(1).await.unwrap();
    });
    with_pool(&machine, async |pool| {
        assert_eq!(state(&wait_for_repair(pool).await, 1), DriveState::Failed);
        machine.return_drive(pool, 1).await.unwrap();
        assert_eq!(state(&wait_for_repair(pool).await, 1), DriveState::Online);
        compare(pool, "v", 3).await;
    });
    check_findings(&machine.check().unwrap(), &[]).unwrap();
}

/// A joining drive of any size adds space for new data. Existing data stays where it is.
#[test]
fn a_pool_grows_by_a_drive_of_another_size() {
    let machine = machine(&Setup { spares: vec![32 << 20, 40 << 20], ..Setup::small("1+1", 2) }, 7);
    with_pool(&machine, async |pool| {
        fill(pool, "v", 1000, 3).await;
        let before = pool.status().await.unwrap().space;
        machine.add_drive(pool, 2).await.unwrap();
        machine.add_drive(pool, 3).await.unwrap();
        let after = pool.status().await.unwrap().space;
        // Zones of 128 KiB after the first 4 MiB.
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
    check_findings(&machine.check().unwrap(), &[]).unwrap();
}

/// A drive that is too small or already belongs to the pool is refused.
#[test]
fn unsuitable_drives_are_refused() {
    let machine = machine(&Setup { spares: vec![4 << 20], ..Setup::small("2+1", 3) }, 8);
    with_pool(&machine, async |pool| {
        fill(pool, "v", 100, 3).await;
        assert_eq!(machine.add_drive(pool, 3).await.unwrap_err().kind(), ErrorKind::Invalid);
        assert_eq!(machine.add_drive(pool, 0).await.unwrap_err().kind(), ErrorKind::Exists);
        assert_eq!(machine.return_drive(pool, 3).await.unwrap_err().kind(), ErrorKind::Invalid);
        assert_eq!(pool.status().await.unwrap().drives.len(), 3);
        compare(pool, "v", 3).await;
    });
    machine.absent.borrow_mut()[3] = true;
    check_findings(&machine.check().unwrap(), &[]).unwrap();
}

/// The other drives must have space for the drained drive's data.
#[test]
fn a_full_pool_refuses_a_drain() {
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
        let refused = pool.remove_drive(1).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::NoSpace);
        assert_eq!(state(&wait_for_repair(pool).await, 1), DriveState::Online);
    });
    check_findings(&machine.check().unwrap(), &[]).unwrap();
}

/// Free space on most of the other drives does not help if every segment needs a column on each of
/// them.
#[test]
fn a_drain_is_refused_if_the_smallest_drive_lacks_space() {
    let zones = |count: u64| (4 << 20) + count * (128 << 10);
    let setup = Setup { drives: vec![zones(120); 3], spares: vec![zones(40)], ..Setup::small("2+1", 3) };
    let machine = machine(&setup, 10);
    with_pool(&machine, async |pool| {
        fill(pool, "v", 3500, 3).await;
        machine.add_drive(pool, 3).await.unwrap();
        let before = pool.status().await.unwrap().space;
        let refused = pool.remove_drive(0).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::NoSpace);
        let status = wait_for_repair(pool).await;
        assert_eq!((state(&status, 0), status.space), (DriveState::Online, before));
        fill(pool, "more", 100, 4).await;
        // The small drive can be drained.
        pool.remove_drive(3).await.unwrap();
        let status = wait_for_repair(pool).await;
        assert_eq!((state(&status, 3), status.repair.state), (DriveState::Removed, RepairState::Complete));
        compare(pool, "v", 3).await;
        compare(pool, "more", 4).await;
    });
    check_findings(&machine.check().unwrap(), &[]).unwrap();
}

/// While repair is paused, the missing bytes are recounted when drives are lost and return.
#[test]
fn missing_bytes_are_recounted_while_repair_is_paused() {
    let machine = machine(&Setup::small("2+1", 3), 11);
    with_pool(&machine, async |pool| {
        fill(pool, "v", 1500, 3).await;
        pool.set_repair_limits(PAUSED).await.unwrap();
        pool.fail_drive(1).await.unwrap();
        let lost = wait_for_repair(pool).await.repair;
        assert_eq!((lost.state, lost.bytes_left > 200 * BLOCK), (RepairState::Paused, true), "{lost:?}");
        // The failed drive misses this write.
        fill(pool, "more", 20, 4).await;
        machine.return_drive(pool, 1).await.unwrap();
        // Each shard scans in the background.
        Reactor::current().sleep(Duration::from_secs(1)).await;
        let back = pool.status().await.unwrap().repair;
        assert_eq!(back.state, RepairState::Paused);
        assert!((1..lost.bytes_left / 4).contains(&back.bytes_left), "{lost:?} {back:?}");
    });
}

/// A lost drive belongs to the pool until all shards are rebuilt, even while the state of another,
/// returned drive changes.
#[test]
fn a_lost_drive_stays_until_all_shards_are_rebuilt() {
    let setup = Setup { shards: 2, ..Setup::small("2+2", 5) };
    let machine = machine(&setup, 12);
    with_pool(&machine, async |pool| {
        pool.create_volume("v", 8 << 20, 4096, 0).await.unwrap();
        let volume = pool.open_volume("v").await.unwrap().attach();
        // Little data in the first shard, much in the second.
        let of_both = (0..20).chain(1024..2000);
        for block in of_both.clone() {
            let bytes = crate::model::content(3, block, 4096);
            volume.write(block * BLOCK, &Buffer::copy_of(&bytes).span()).await.unwrap();
        }
        volume.flush().await.unwrap();
        pool.fail_drive(0).await.unwrap();
        pool.fail_drive(1).await.unwrap();
        assert_eq!(wait_for_repair(pool).await.repair.state, RepairState::NeedsDrive);
        pool.set_repair_limits(RepairLimits { paused: false, bytes_per_second: 1 << 20 }).await.unwrap();
        machine.return_drive(pool, 0).await.unwrap();
        let mut waited = 0;
        while state(&pool.status().await.unwrap(), 1) != DriveState::Removed {
            waited += 1;
            Reactor::current().sleep(Duration::from_millis(1)).await;
        }
        assert!(waited > 100, "removed too early, after {waited} ms");
        // The pool tolerates two losses again.
        pool.fail_drive(2).await.unwrap();
        pool.fail_drive(3).await.unwrap();
        for block in of_both {
            let buffer = Buffer::new(4096);
            volume.read(block * BLOCK, &buffer.span()).await.unwrap();
            assert!(buffer.as_slice() == crate::model::content(3, block, 4096), "block {block}");
        }
    });
    check_findings(&machine.check().unwrap(), &[]).unwrap();
}

/// A drive pulled during a rebuild onto it is trusted on return only for the data that it kept.
#[test]
fn a_drive_pulled_during_a_rebuild_onto_it_is_rebuilt_again() {
    let mut lost_at_work = 0;
    for after in 0..40 {
        let machine = machine(&Setup::small("2+2", 5), 100 + after);
        with_pool(&machine, async |pool| {
            fill(pool, "v", 500, 3).await;
            pool.set_repair_limits(RepairLimits { paused: false, bytes_per_second: 1 << 20 }).await.unwrap();
            pool.fail_drive(0).await.unwrap();
            Reactor::current().sleep(Duration::from_millis(after * 17)).await;
            machine.disks[4].set_dead(true);
            lost_at_work += u32::from(pool.status().await.unwrap().repair.state == RepairState::Running);
            // The engine notices the loss only when it writes.
            let volume = pool.open_volume("v").await.unwrap().attach();
            let bytes = crate::model::content(3, 7, 4096);
            volume.write(7 * BLOCK, &Buffer::copy_of(&bytes).span()).await.unwrap();
            volume.flush().await.unwrap();
            wait_for_repair(pool).await;
            machine.disks[4].plug_in();
            machine.return_drive(pool, 4).await.unwrap();
            let status = wait_for_repair(pool).await;
            assert_eq!((state(&status, 4), status.repair.state), (DriveState::Online, RepairState::Complete));
            pool.fail_drive(1).await.unwrap();
            pool.fail_drive(2).await.unwrap();
            compare(pool, "v", 3).await;
        });
        check_findings(&machine.check().unwrap(), &[])
            .unwrap_or_else(|error| panic!("after {after}: {error}"));
    }
    assert!(lost_at_work > 10, "{lost_at_work}");
}

/// When the last drive with a volatile cache has been drained, earlier unflushed writes are
/// durable. Another drive can then be drained.
#[test]
fn the_last_volatile_drive_can_be_drained_before_another() {
    let setup = Setup::small("3+0", 5);
    let machine = machine(&Setup { volatile: vec![false, false, false, false, true], ..setup }, 13);
    with_pool(&machine, async |pool| {
        fill(pool, "v", 700, 3).await;
        pool.set_repair_limits(RepairLimits { paused: false, bytes_per_second: 1 << 20 }).await.unwrap();
        pool.remove_drive(4).await.unwrap();
        let volume = pool.open_volume("v").await.unwrap().attach();
        while state(&pool.status().await.unwrap(), 4) != DriveState::Removed {
            // Written but never flushed.
            let bytes = crate::model::content(3, 0, 4096);
            volume.write(0, &Buffer::copy_of(&bytes).span()).await.unwrap();
        }
        // A write of this length goes to a segment of another class.
        let long: Vec<u8> = (0..64).flat_map(|block| crate::model::content(3, block, 4096)).collect();
        volume.write(0, &Buffer::copy_of(&long).span()).await.unwrap();
        pool.remove_drive(0).await.unwrap();
        let status = wait_for_repair(pool).await;
        assert_eq!((state(&status, 0), status.repair.state), (DriveState::Removed, RepairState::Complete));
        compare(pool, "v", 3).await;
    });
    check_findings(&machine.check().unwrap(), &[]).unwrap();
}
