//! Drives that join, come back and leave, step by step: what is promised of each.

use std::time::Duration;

use engine::{ErrorKind, RepairLimits, RepairState};
use format::DriveState;
use reactor::{Buffer, Reactor};

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
        assert_eq!((state(&status, 2), status.lost_drives()), (DriveState::Draining, 0));
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

/// Much room on most of the others is of no use where a segment needs a column on each of them.
#[test]
fn a_drive_is_not_emptied_where_the_smallest_of_the_others_has_no_room() {
    let zones = |count: u64| (4 << 20) + count * (128 << 10);
    let setup = Setup { drives: vec![zones(120); 3], spares: vec![zones(40)], ..Setup::small("2+1", 3) };
    let machine = machine(&setup, 10);
    with_pool(&machine, async |pool| {
        fill(pool, "v", 3500, 3).await;
        machine.add(pool, 3).await.unwrap();
        let before = pool.status().await.unwrap().space;
        let refused = pool.evacuate_drive(0).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::NoSpace);
        let status = settled(pool).await;
        assert_eq!((state(&status, 0), status.space), (DriveState::Online, before));
        fill(pool, "more", 100, 4).await;
        // The small one is emptied, of course.
        pool.evacuate_drive(3).await.unwrap();
        let status = settled(pool).await;
        assert_eq!((state(&status, 3), status.repair.state), (DriveState::Removed, RepairState::Whole));
        compare(pool, "v", 3).await;
        compare(pool, "more", 4).await;
    });
    judge(&machine.check().unwrap(), &[]).unwrap();
}

/// While repair is paused, what is missing is said as it is, whoever comes and goes.
#[test]
fn what_is_missing_is_counted_anew_while_repair_is_paused() {
    let machine = machine(&Setup::small("2+1", 3), 11);
    with_pool(&machine, async |pool| {
        fill(pool, "v", 1500, 3).await;
        pool.set_repair_limits(PAUSED).await.unwrap();
        pool.fail_drive(1).await.unwrap();
        let lost = settled(pool).await.repair;
        assert_eq!((lost.state, lost.bytes_left > 200 * BLOCK), (RepairState::Paused, true), "{lost:?}");
        // It misses this.
        fill(pool, "more", 20, 4).await;
        machine.bring_back(pool, 1).await.unwrap();
        // Each shard looks in the background.
        Reactor::current().sleep(Duration::from_secs(1)).await;
        let back = pool.status().await.unwrap().repair;
        assert_eq!(back.state, RepairState::Paused);
        assert!((1..lost.bytes_left / 4).contains(&back.bytes_left), "{lost:?} {back:?}");
    });
}

/// A drive that is lost belongs to the pool until all shards are whole, also when another one that has come back is decided on.
#[test]
fn a_lost_drive_stays_while_a_shard_misses_its_columns() {
    let setup = Setup { shards: 2, ..Setup::small("2+2", 5) };
    let machine = machine(&setup, 12);
    with_pool(&machine, async |pool| {
        pool.create_volume("v", 8 << 20, 4096, 0).await.unwrap();
        let volume = pool.open_volume("v").await.unwrap().attach();
        // Little in the first shard, much in the second.
        let of_both = (0..20).chain(1024..2000);
        for block in of_both.clone() {
            let bytes = crate::model::content(3, block, 4096);
            volume.write(block * BLOCK, &Buffer::copy_of(&bytes).span()).await.unwrap();
        }
        volume.flush().await.unwrap();
        pool.fail_drive(0).await.unwrap();
        pool.fail_drive(1).await.unwrap();
        assert_eq!(settled(pool).await.repair.state, RepairState::NeedsDrive);
        pool.set_repair_limits(RepairLimits { paused: false, bytes_per_second: 1 << 20 }).await.unwrap();
        machine.bring_back(pool, 0).await.unwrap();
        let mut waited = 0;
        while state(&pool.status().await.unwrap(), 1) != DriveState::Removed {
            waited += 1;
            Reactor::current().sleep(Duration::from_millis(1)).await;
        }
        assert!(waited > 100, "it took a while: {waited}");
        // Now it bears two losses again.
        pool.fail_drive(2).await.unwrap();
        pool.fail_drive(3).await.unwrap();
        for block in of_both {
            let buffer = Buffer::new(4096);
            volume.read(block * BLOCK, &buffer.span()).await.unwrap();
            assert!(buffer.as_slice() == crate::model::content(3, block, 4096), "block {block}");
        }
    });
    judge(&machine.check().unwrap(), &[]).unwrap();
}

/// A drive that is pulled while columns are written to it, and comes back, is believed no more than what it kept.
#[test]
fn a_drive_that_is_pulled_while_it_takes_columns_gets_them_again() {
    let mut lost_at_work = 0;
    for after in 0..40 {
        let machine = machine(&Setup::small("2+2", 5), 100 + after);
        with_pool(&machine, async |pool| {
            fill(pool, "v", 500, 3).await;
            pool.set_repair_limits(RepairLimits { paused: false, bytes_per_second: 1 << 20 }).await.unwrap();
            pool.fail_drive(0).await.unwrap();
            Reactor::current().sleep(Duration::from_millis(after * 17)).await;
            machine.disks[4].set_dead(true);
            lost_at_work += u32::from(pool.status().await.unwrap().repair.state == RepairState::Working);
            // Whoever does not write notices nothing.
            let volume = pool.open_volume("v").await.unwrap().attach();
            let bytes = crate::model::content(3, 7, 4096);
            volume.write(7 * BLOCK, &Buffer::copy_of(&bytes).span()).await.unwrap();
            volume.flush().await.unwrap();
            settled(pool).await;
            machine.disks[4].plug_in();
            machine.bring_back(pool, 4).await.unwrap();
            let status = settled(pool).await;
            assert_eq!((state(&status, 4), status.repair.state), (DriveState::Online, RepairState::Whole));
            pool.fail_drive(1).await.unwrap();
            pool.fail_drive(2).await.unwrap();
            compare(pool, "v", 3).await;
        });
        judge(&machine.check().unwrap(), &[]).unwrap_or_else(|error| panic!("after {after}: {error}"));
    }
    assert!(lost_at_work > 10, "{lost_at_work}");
}

/// When the last drive that has to be flushed has been emptied, what had landed and was not flushed is durable: another one can be
/// emptied then.
#[test]
fn the_last_drive_that_forgets_is_emptied_and_another_one_after_it() {
    let setup = Setup::small("3+0", 5);
    let machine = machine(&Setup { volatile: vec![false, false, false, false, true], ..setup }, 13);
    with_pool(&machine, async |pool| {
        fill(pool, "v", 700, 3).await;
        pool.set_repair_limits(RepairLimits { paused: false, bytes_per_second: 1 << 20 }).await.unwrap();
        pool.evacuate_drive(4).await.unwrap();
        let volume = pool.open_volume("v").await.unwrap().attach();
        while state(&pool.status().await.unwrap(), 4) != DriveState::Removed {
            // Landed, and flushed by nobody.
            let bytes = crate::model::content(3, 0, 4096);
            volume.write(0, &Buffer::copy_of(&bytes).span()).await.unwrap();
        }
        // It goes to a segment of another class.
        let long: Vec<u8> = (0..64).flat_map(|block| crate::model::content(3, block, 4096)).collect();
        volume.write(0, &Buffer::copy_of(&long).span()).await.unwrap();
        pool.evacuate_drive(0).await.unwrap();
        let status = settled(pool).await;
        assert_eq!((state(&status, 0), status.repair.state), (DriveState::Removed, RepairState::Whole));
        compare(pool, "v", 3).await;
    });
    judge(&machine.check().unwrap(), &[]).unwrap();
}
