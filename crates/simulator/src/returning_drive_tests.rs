//! Returning drives: the trust in their content, and the time from which they count as redundancy.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use engine::{ErrorKind, RepairLimits, RepairState, Tuning};
use format::DriveState;
use reactor::{Buffer, Clock as _, Reactor};

use crate::disk::Faults;
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

/// Returns the nanoseconds until drive 1 is online.
async fn wait_until_online(machine: &Machine, pool: &engine::Pool) -> u64 {
    let begin = machine.events.now();
    while state(&pool.status().await.unwrap(), 1) != DriveState::Online {
        Reactor::current().sleep(Duration::from_micros(10)).await;
    }
    u64::try_from(machine.events.now().since(begin).as_nanos()).unwrap()
}

/// A drive may be lost again while the shards confirm that it lacks nothing. It stays lost: the
/// result of the confirmation does not count for it.
#[test]
fn a_drive_lost_during_its_confirmation_is_not_online() {
    let returned = |lost_after: Option<Duration>| {
        let machine = machine(&Setup { shards: 2, ..Setup::small("2+1", 3) }, 23);
        with_pool(&machine, async |pool| {
            fill(pool, "v", 200, 3).await;
            pool.fail_drive(1).await.unwrap();
            fill(pool, "w", 60, 8).await;
            machine.return_drive(pool, 1).await.unwrap();
            let Some(lost_after) = lost_after else { return wait_until_online(&machine, pool).await };
            Reactor::current().sleep(lost_after).await;
            pool.fail_drive(1).await.unwrap();
            fill(pool, "x", 60, 9).await;
            Reactor::current().sleep(Duration::from_secs(1)).await;
            let status = pool.status().await.unwrap();
            assert_eq!(state(&status, 1), DriveState::Failed, "lost after {lost_after:?}");
            assert_eq!(pool.fail_drive(0).await.unwrap_err().kind(), ErrorKind::PoolFailed);
            0
        })
    };
    let online_after = returned(None);
    // The confirmation takes a checkpoint of each shard.
    for early in (0..3_000_000).step_by(60_000) {
        returned(Some(Duration::from_nanos(online_after.saturating_sub(early))));
    }
}

/// A drive that returns while its loss is still being published is attached after it was detached,
/// in every shard and in the control: it gets all later superblocks and records.
#[test]
fn a_drive_that_returns_during_its_loss_is_complete() {
    for delay in (0..12_000).step_by(600) {
        let machine = machine(&Setup { shards: 2, ..Setup::small("2+1", 3) }, 24);
        with_pool(&machine, async |pool| {
            fill(pool, "v", 200, 3).await;
            // The loss is published on slow drives; the lost drive answers at once.
            [0, 2].into_iter().for_each(|drive| machine.disks[drive].set_latency(2_000_000, 3_000_000));
            machine.disks[1].set_latency(1_000, 2_000);
            let failing = pool.clone();
            let fails = Reactor::current().spawn(async move { failing.fail_drive(1).await });
            Reactor::current().sleep(Duration::from_micros(delay)).await;
            machine.return_drive(pool, 1).await.unwrap();
            fails.await.unwrap();
            (0..3).for_each(|drive| machine.disks[drive].set_latency(20_000, 100_000));
            fill(pool, "w", 60, 8).await;
            wait_until_online(&machine, pool).await;
            fill(pool, "x", 60, 9).await;
        });
        let newest: Vec<_> = machine.labels().iter().map(|label| label.written).collect();
        assert!(
            newest.len() == 3 && newest.iter().all(|written| *written == newest[0]),
            "{delay}: {newest:?}"
        );
        with_pool(&machine, async |pool| {
            assert_eq!(state(&pool.status().await.unwrap(), 1), DriveState::Online, "{delay}");
            pool.fail_drive(0).await.unwrap();
            for (name, value) in [("v", 3), ("w", 8), ("x", 9)] {
                compare(pool, name, value).await;
            }
        });
        check_findings(&machine.check().unwrap(), &[]).unwrap();
    }
}

/// A drive returns only when the operations that were started on it before its loss have ended: a
/// late write would change a zone that may hold other data by then (D1).
#[test]
fn a_drive_returns_after_the_operations_from_before_its_loss() {
    let mut late = 0;
    for stalled in 0..40 {
        let machine = machine(&Setup::small("2+1", 3), 25 + stalled);
        with_pool(&machine, async |pool| {
            let volume = Rc::new(fill(pool, "v", 200, 3).await);
            // The drive's next operations take up to 100 ms.
            machine.disks[1].set_faults(Faults { stall: 1, ..Faults::default() });
            let (writer, answered) = (volume.clone(), Rc::new(Cell::new(false)));
            let ended = answered.clone();
            let writes = Reactor::current().spawn(async move {
                writer.write(0, &Buffer::copy_of(&content(3, 0, 4096)).span()).await.unwrap();
                ended.set(true);
            });
            Reactor::current().sleep(Duration::from_micros(1 + stalled)).await;
            machine.disks[1].set_faults(Faults::default());
            pool.fail_drive(1).await.unwrap();
            late += u32::from(!answered.get());
            machine.return_drive(pool, 1).await.unwrap();
            assert!(answered.get(), "the drive returned before a write from before its loss had ended");
            writes.await;
            wait_until_online(&machine, pool).await;
            pool.fail_drive(0).await.unwrap();
            compare(pool, "v", 3).await;
        });
    }
    assert!(late > 20, "{late} writes ended after the loss");
}

/// On a copy of the machine, hangs and fails a drive after `delay`, and cuts the power at operation
/// `cut` of its return. Returns the number of drives with a superblock; `None` if no superblock was
/// in the drive's cache only.
fn cut_a_return(prepared: &Machine, delay: u64, cut: u64, seed: u64) -> Option<usize> {
    // Superblocks are in the first pages.
    const SUPERBLOCK_PAGES: u64 = (4 << 20) / BLOCK;
    let machine = Rc::new(prepared.copy(seed));
    let this = machine.clone();
    let ended = machine.boot(async move || {
        let (pool, _) = this.open().await.unwrap();
        let publisher = pool.clone();
        // Each checkpoint publishes superblocks.
        let publishes = Reactor::current().spawn(async move {
            publisher.create_volume("v", 1 << 20, 4096, 0).await.unwrap();
            for _ in 0..4 {
                publisher.checkpoint().await.unwrap();
            }
        });
        // The drive hangs, and fails, perhaps between writing a superblock and flushing it.
        Reactor::current().sleep(Duration::from_micros(delay)).await;
        this.disks[1].hang();
        let failing = pool.clone();
        let fails = Reactor::current().spawn(async move { failing.fail_drive(1).await });
        Reactor::current().sleep(Duration::from_millis(1)).await;
        this.disks[1].release(true);
        fails.await.unwrap();
        publishes.await;
        if !this.disks[1].unflushed_pages().iter().any(|page| *page < SUPERBLOCK_PAGES) {
            return false;
        }
        this.cut_after(cut);
        this.return_drive(&pool, 1).await.unwrap();
        Reactor::current().sleep(Duration::from_secs(1)).await;
        true
    });
    machine.cut_power();
    (ended != BootEnd::Completed(false)).then(|| machine.labels().len())
}

/// A drive whose newest superblock may be in its cache only is flushed before the other slot is
/// overwritten: a power cut at any operation of its return leaves a superblock on it.
#[test]
fn a_cut_during_a_return_leaves_a_superblock() {
    let mut returns = 0;
    let prepared = machine(&Setup::small("2+1", 3), 0);
    for delay in (0..4_000).step_by(10) {
        if cut_a_return(&prepared, delay, 1, delay).is_none() {
            continue;
        }
        for cut in 1..12 {
            for seed in 0..20 {
                let labels = cut_a_return(&prepared, delay, cut, delay + (seed << 32));
                returns += u64::from(labels.is_some());
                assert!(
                    labels.is_none_or(|labels| labels == 3),
                    "seed {seed}, hung after {delay} us, cut {cut}: {labels:?}"
                );
            }
        }
    }
    assert!(returns > 400, "{returns} returns");
}

/// A drive is lost while a new segment with a column on it is being opened. The column counts as
/// missing from its first row: after the drive's return, its old bytes are not used.
#[test]
fn a_segment_opened_during_a_loss_lacks_that_column() {
    for round in 0..80 {
        let machine = machine(&Setup { shards: 2, ..Setup::small("2+1", 3) }, 2000 + round);
        with_pool(&machine, async |pool| {
            pool.create_volume("v", 600 * BLOCK, 4096, 0).await.unwrap();
            let volume = Rc::new(pool.open_volume("v").await.unwrap().attach());
            // The zones of a new segment reach the shard later than the message about the loss.
            machine.events.set_message_delay(3_000_000, round);
            let writer = volume.clone();
            let writes = Reactor::current().spawn(async move {
                for first in (0..600).step_by(20) {
                    let bytes: Vec<u8> =
                        (first..first + 20).flat_map(|block| content(3, block, 4096)).collect();
                    writer.write(first * BLOCK, &Buffer::copy_of(&bytes).span()).await.unwrap();
                }
            });
            Reactor::current().sleep(Duration::from_micros(700 * (1 + round))).await;
            pool.fail_drive(1).await.unwrap();
            writes.await;
            machine.events.set_message_delay(1, round);
            machine.return_drive(pool, 1).await.unwrap();
            wait_until_online(&machine, pool).await;
            pool.fail_drive(0).await.unwrap();
            compare(pool, "v", 3).await;
        });
    }
}
