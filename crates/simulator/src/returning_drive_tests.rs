//! Returning drives: the trust in their content, and the time from which they count as redundancy.

use std::rc::Rc;
use std::time::Duration;

use engine::{ErrorKind, RepairLimits, RepairState, Tuning};
use format::DriveState;
use reactor::{Buffer, Reactor};

use crate::model::content;
use crate::repair_tests::{BLOCK, compare, fill, machine, state, wait_for_repair, with_pool};
use crate::run::{BootEnd, Machine, Setup, check_findings};

fn paused(scheme: &str, drives: usize) -> Setup {
    let setup = Setup::small(scheme, drives);
    let repair = RepairLimits { paused: true, bytes_per_second: 0 };
    Setup { tuning: Tuning { repair, ..setup.tuning }, ..setup }
}

/// A returned drive counts as lost until its missed writes are rebuilt, also across openings.
#[test]
fn a_returned_drive_counts_as_lost_until_resynced() {
    for at_an_opening in [false, true] {
        let machine = machine(&paused("2+1", 3), 20);
        with_pool(&machine, async |pool| {
            fill(pool, "v", 300, 3).await;
            machine.disks[1].set_dead(true);
            fill(pool, "w", 60, 8).await;
            assert_eq!(state(&wait_for_repair(pool).await, 1), DriveState::Missing);
            machine.disks[1].plug_in();
            if !at_an_opening {
                machine.return_drive(pool, 1).await.unwrap();
            }
        });
        for _ in 0..2 {
            with_pool(&machine, async |pool| {
                pool.checkpoint().await.unwrap();
                // Each shard scans in the background.
                Reactor::current().sleep(Duration::from_secs(1)).await;
                let status = pool.status().await.unwrap();
                assert_eq!(
                    (state(&status, 1), status.repair.state),
                    (DriveState::Returning, RepairState::Paused)
                );
                assert_eq!(pool.fail_drive(0).await.unwrap_err().kind(), ErrorKind::PoolFailed);
            });
        }
        with_pool(&machine, async |pool| {
            pool.set_repair_limits(RepairLimits::default()).await.unwrap();
            assert_eq!(state(&wait_for_repair(pool).await, 1), DriveState::Online);
            pool.fail_drive(0).await.unwrap();
            compare(pool, "v", 3).await;
            compare(pool, "w", 8).await;
        });
    }
}

fn set_absent_drives(machine: &Machine, drives: &[usize]) {
    let mut absent = machine.absent.borrow_mut();
    absent.iter_mut().enumerate().for_each(|(index, place)| *place = drives.contains(&index));
}

/// A drive that was used without the others has writes that they lack. Neither an opening nor a
/// command takes it back.
#[test]
fn a_separately_used_drive_cannot_return() {
    let machine = machine(&Setup::small("1+1", 2), 21);
    with_pool(&machine, async |pool| fill(pool, "v", 300, 3).await);
    set_absent_drives(&machine, &[1]);
    with_pool(&machine, async |pool| fill(pool, "w", 60, 8).await);
    set_absent_drives(&machine, &[0]);
    with_pool(&machine, async |pool| fill(pool, "x", 200, 9).await);
    set_absent_drives(&machine, &[]);
    let opens = |machine: &Rc<Machine>| {
        let this = machine.clone();
        machine.boot(async move || this.open().await.map(|_| ()).map_err(|error| error.kind()))
    };
    assert_eq!(opens(&machine), BootEnd::Completed(Err(ErrorKind::NotAPool)));
    set_absent_drives(&machine, &[1]);
    with_pool(&machine, async |pool| {
        assert_eq!(machine.return_drive(pool, 1).await.unwrap_err().kind(), ErrorKind::Invalid);
        let status = wait_for_repair(pool).await;
        assert_eq!((state(&status, 1), status.drives.len()), (DriveState::Missing, 2));
        compare(pool, "v", 3).await;
        compare(pool, "w", 8).await;
    });
    check_findings(&machine.check().unwrap(), &[]).unwrap();
}

/// A returned drive counts as lost until the rebuild is complete in every shard.
#[test]
fn a_returned_drive_counts_as_lost_until_every_shard_is_resynced() {
    let machine = machine(&Setup { shards: 2, ..Setup::small("2+1", 3) }, 22);
    with_pool(&machine, async |pool| {
        // Little data in the first shard, much in the second.
        let blocks = || (0..20).chain(format::limits::SLICE / BLOCK..format::limits::SLICE / BLOCK + 1000);
        pool.create_volume("v", 2 * format::limits::SLICE, 4096, 0).await.unwrap();
        let volume = pool.open_volume("v").await.unwrap().attach();
        pool.set_repair_limits(RepairLimits { paused: true, bytes_per_second: 0 }).await.unwrap();
        pool.fail_drive(0).await.unwrap();
        for block in blocks() {
            let bytes = content(3, block, 4096);
            volume.write(block * BLOCK, &Buffer::copy_of(&bytes).span()).await.unwrap();
        }
        volume.flush().await.unwrap();
        machine.return_drive(pool, 0).await.unwrap();
        pool.set_repair_limits(RepairLimits { paused: false, bytes_per_second: 1 << 20 }).await.unwrap();
        let mut waited = 0;
        while state(&pool.status().await.unwrap(), 0) != DriveState::Online {
            waited += 1;
            Reactor::current().sleep(Duration::from_millis(1)).await;
        }
        assert!(waited > 100, "online too early, after {waited} ms");
        pool.fail_drive(1).await.unwrap();
        for block in blocks() {
            let buffer = Buffer::new(4096);
            volume.read(block * BLOCK, &buffer.span()).await.unwrap();
            assert!(buffer.as_slice() == content(3, block, 4096), "block {block}");
        }
    });
    check_findings(&machine.check().unwrap(), &[]).unwrap();
}
