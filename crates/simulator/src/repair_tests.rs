//! Repair, step by step: its guarantees, and its states when it cannot continue.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use engine::{AttachedVolume, Pool, PoolStatus, RepairLimits, RepairState};
use format::DriveState;
use reactor::{Buffer, Clock as _, Reactor};

use crate::disk::{Disk, Faults};
use crate::model::content;
use crate::run::{BootEnd, Machine, Setup, check_findings};

pub(crate) const BLOCK: u64 = 4096;

/// Creates a machine with an empty pool.
pub(crate) fn machine(setup: &Setup, seed: u64) -> Rc<Machine> {
    let machine = Rc::new(Machine::new(setup, seed));
    let this = machine.clone();
    let made = machine.boot(async move || this.create().await.unwrap());
    assert_eq!(made, BootEnd::Completed(()));
    machine
}

/// Boots the machine, opens the pool, runs `work` and closes the pool.
pub(crate) fn with_pool<T>(machine: &Rc<Machine>, work: impl AsyncFnOnce(&Pool) -> T) -> T {
    let this = machine.clone();
    let ended = machine.boot(async move || {
        let (pool, _) = this.open().await.unwrap();
        let done = work(&pool).await;
        pool.close().await.unwrap();
        done
    });
    let BootEnd::Completed(done) = ended else { panic!("unexpected power cut") };
    machine.kill_process();
    done
}

pub(crate) async fn fill(pool: &Pool, name: &str, blocks: u64, value: u64) -> AttachedVolume {
    pool.create_volume(name, blocks * BLOCK, 4096, 0).await.unwrap();
    let volume = pool.open_volume(name).await.unwrap().attach();
    for first in (0..blocks).step_by(64) {
        let bytes: Vec<u8> =
            (first..blocks.min(first + 64)).flat_map(|block| content(value, block, 4096)).collect();
        volume.write(first * BLOCK, &Buffer::copy_of(&bytes).span()).await.unwrap();
    }
    volume.flush().await.unwrap();
    volume
}

pub(crate) async fn compare(pool: &Pool, name: &str, value: u64) {
    let volume = pool.open_volume(name).await.unwrap().attach();
    for block in 0..volume.size() / BLOCK {
        let buffer = Buffer::new(4096);
        volume.read(block * BLOCK, &buffer.span()).await.unwrap();
        assert!(buffer.as_slice() == content(value, block, 4096), "{name}: block {block}");
    }
}

pub(crate) async fn wait_for_repair(pool: &Pool) -> PoolStatus {
    pool.wait_for_repair().await.unwrap();
    pool.status().await.unwrap()
}

pub(crate) fn state(status: &PoolStatus, drive: usize) -> DriveState {
    status.drives[drive].state
}

/// Drives are lost one after the other until the scheme's width is left. After each rebuild the
/// pool is fully redundant.
#[test]
fn a_pool_survives_successive_losses() {
    lose_drives_in_turn(&Setup::small("2+1", 7));
    // Without volatile caches the engine does not flush.
    lose_drives_in_turn(&Setup { volatile: vec![false; 7], ..Setup::small("2+1", 7) });
}

fn lose_drives_in_turn(setup: &Setup) {
    let machine = machine(setup, 1);
    with_pool(&machine, async |pool| {
        fill(pool, "v", 700, 9).await;
        for drive in 0..4 {
            pool.fail_drive(drive).await.unwrap();
            let status = wait_for_repair(pool).await;
            assert_eq!(status.repair.state, RepairState::Complete);
            assert_eq!((state(&status, drive.into()), status.lost_drives()), (DriveState::Removed, 0));
        }
        pool.fail_drive(4).await.unwrap();
        let status = wait_for_repair(pool).await;
        assert_eq!((state(&status, 4), status.repair.state), (DriveState::Failed, RepairState::NeedsDrive));
        assert!(status.repair.bytes_left > 0);
        assert!(pool.fail_drive(5).await.is_err(), "the scheme does not tolerate this loss");
        compare(pool, "v", 9).await;
    });
    with_pool(&machine, async |pool| compare(pool, "v", 9).await);
    check_findings(&machine.check().unwrap(), &[]).unwrap();
}

/// Two drives are lost at once with double parity. After the rebuild, two others can be lost.
#[test]
fn two_lost_drives_are_rebuilt_together() {
    let machine = machine(&Setup::small("2+2", 6), 2);
    with_pool(&machine, async |pool| {
        fill(pool, "v", 700, 5).await;
        pool.fail_drive(1).await.unwrap();
        pool.fail_drive(3).await.unwrap();
        let status = wait_for_repair(pool).await;
        assert_eq!((state(&status, 1), state(&status, 3)), (DriveState::Removed, DriveState::Removed));
        pool.fail_drive(0).await.unwrap();
        pool.fail_drive(5).await.unwrap();
        compare(pool, "v", 5).await;
    });
    check_findings(&machine.check().unwrap(), &[]).unwrap();
}

/// Silently corrupted cells of another drive must not be used to compute the rebuilt columns.
#[test]
fn a_rebuild_does_not_spread_damage() {
    for (scheme, drives, seed) in [("2+2", 5, 3), ("4+2", 7, 4), ("1+2", 4, 5), ("3+3", 7, 6)] {
        let machine = machine(&Setup::small(scheme, drives), seed);
        with_pool(&machine, async |pool| fill(pool, "v", 700, 7).await);
        let corrupt = &machine.disks[1];
        // The superblocks take the first 4 MiB.
        for page in corrupt.pages().into_iter().filter(|page| *page >= 1024) {
            assert!(corrupt.flip_bit(page, usize::try_from(page).unwrap() * 77));
        }
        with_pool(&machine, async |pool| {
            pool.fail_drive(0).await.unwrap();
            let status = wait_for_repair(pool).await;
            assert_eq!((state(&status, 0), status.repair.damaged_rows), (DriveState::Removed, 0), "{scheme}");
            pool.fail_drive(2).await.unwrap();
            compare(pool, "v", 7).await;
        });
        check_findings(&machine.check().unwrap(), &[1, 2]).unwrap();
    }
}

/// Counts the unreadable blocks among the first `blocks` of `v`, and checks the content of the
/// others.
async fn count_unreadable(pool: &Pool, blocks: u64) -> u64 {
    let volume = pool.open_volume("v").await.unwrap().attach();
    let mut lost = 0;
    for block in 0..blocks {
        let buffer = Buffer::new(4096);
        let read = volume.read(block * BLOCK, &buffer.span()).await;
        match read {
            Ok(()) => assert!(buffer.as_slice() == content(3, block, 4096), "block {block}"),
            Err(_) => lost += 1,
        }
    }
    lost
}

/// Rows damaged beyond the scheme's tolerance are counted and reported. The rest of the column is
/// rebuilt and the pool stays in service.
#[test]
fn rows_that_cannot_be_computed_are_counted() {
    let machine = machine(&Setup::small("2+1", 4), 8);
    with_pool(&machine, async |pool| fill(pool, "v", 300, 3).await);
    let corrupt = &machine.disks[1];
    let pages = corrupt.pages().into_iter().filter(|page| *page >= 1024);
    pages.skip(20).take(8).for_each(|page| assert!(corrupt.flip_bit(page, 5)));
    with_pool(&machine, async |pool| {
        pool.fail_drive(0).await.unwrap();
        let status = wait_for_repair(pool).await;
        assert_eq!((status.repair.state, state(&status, 0)), (RepairState::Complete, DriveState::Removed));
        let lost = count_unreadable(pool, 300).await;
        // A damaged row can lose the block on the lost drive, the damaged block, or only parity.
        let damaged = status.repair.damaged_rows;
        assert!((1..=8).contains(&damaged) && (1..=2 * damaged).contains(&lost), "{damaged} {lost}");
    });
}

/// If a header is lost, the checksums of its rows are lost with it. Each row is still computed
/// separately. A cell that cannot be computed is zeros, never other memory content.
#[test]
fn rows_without_header_are_computed_separately() {
    let machine = machine(&Setup { spares: vec![16 << 20], ..Setup::small("2+1", 3) }, 16);
    with_pool(&machine, async |pool| fill(pool, "v", 1400, 3).await);
    // Counts the blocks with more than one copy on the drives, those in mirror segments.
    let twice = |disks: &[Rc<Disk>]| {
        let mut seen = BTreeMap::<Vec<u8>, u32>::new();
        for disk in disks {
            let pages = disk.pages().into_iter().filter(|page| *page >= 1024);
            let pages = pages.filter_map(|page| disk.read_page(page).ok());
            pages.for_each(|page| *seen.entry(page.to_vec()).or_default() += 1);
        }
        let many = |block: &u64| seen.get(&content(3, *block, 4096)).is_some_and(|count| *count > 1);
        (0..1400).filter(many).count()
    };
    let corrupt = &machine.disks[1];
    // A segment's first header is in its first row. The superblocks take the first 4 MiB.
    let first_rows = |page: &u64| *page >= 1024 && page.is_multiple_of((128 << 10) / BLOCK);
    let unreadable = corrupt.pages().into_iter().filter(first_rows).skip(4).take(12);
    unreadable.for_each(|page| corrupt.mark_unreadable(page));
    let before = twice(&machine.disks[..3]);
    with_pool(&machine, async |pool| {
        machine.add_drive(pool, 3).await.unwrap();
        pool.fail_drive(0).await.unwrap();
        let status = wait_for_repair(pool).await;
        assert_eq!((status.repair.state, state(&status, 0)), (RepairState::Complete, DriveState::Removed));
        assert_eq!(status.repair.damaged_rows, 12, "{:?}", status.repair);
        assert_eq!(twice(&machine.disks[1..]), before, "the rebuild wrote another block into a lost cell");
        let lost = count_unreadable(pool, 1400).await;
        assert!((1..=2 * 12).contains(&lost), "{lost}");
    });
}

#[test]
fn repair_pauses_and_resumes() {
    let machine = machine(&Setup::small("4+1", 6), 10);
    with_pool(&machine, async |pool| {
        fill(pool, "v", 700, 2).await;
        pool.set_repair_limits(RepairLimits { paused: true, bytes_per_second: 0 }).await.unwrap();
        pool.fail_drive(2).await.unwrap();
        let status = wait_for_repair(pool).await;
        assert_eq!((status.repair.state, status.repair.bytes_done), (RepairState::Paused, 0));
        assert!(status.repair.bytes_left >= 100 * BLOCK, "{:?}", status.repair);
        assert_eq!(state(&status, 2), DriveState::Failed);
        pool.set_repair_limits(RepairLimits::default()).await.unwrap();
        let status = wait_for_repair(pool).await;
        assert_eq!((status.repair.state, status.repair.bytes_left), (RepairState::Complete, 0));
        assert_eq!(state(&status, 2), DriveState::Removed);
    });
}

#[test]
fn repair_respects_its_rate_limit() {
    let machine = machine(&Setup::small("4+1", 6), 11);
    with_pool(&machine, async |pool| {
        fill(pool, "v", 2000, 2).await;
        pool.set_repair_limits(RepairLimits { paused: false, bytes_per_second: 200_000 }).await.unwrap();
        let begin = machine.events.now();
        pool.fail_drive(2).await.unwrap();
        let status = wait_for_repair(pool).await;
        let seconds = machine.events.now().since(begin).as_secs_f64();
        #[allow(clippy::cast_precision_loss)]
        let least = status.repair.bytes_done as f64 / 200_000.0;
        assert!(least > 5.0 && seconds > 0.9 * least && seconds < 1.5 * least, "{seconds} {least}");
    });
}

/// If the remaining drives lack space, repair waits in the state `NeedsSpace`. Deleting data makes
/// space.
#[test]
fn repair_waits_for_space() {
    let setup = Setup { drives: vec![(4 << 20) + 60 * (128 << 10); 6], ..Setup::small("4+1", 6) };
    let machine = machine(&setup, 12);
    with_pool(&machine, async |pool| {
        fill(pool, "kept", 300, 4).await;
        pool.create_volume("big", 1 << 30, 4096, 0).await.unwrap();
        let volume = pool.open_volume("big").await.unwrap().attach();
        let data = Buffer::copy_of(&content(6, 0, 4096).repeat(64));
        let mut offset = 0;
        while volume.write(offset, &data.span()).await.is_ok() {
            offset += data.len() as u64;
        }
        drop(volume);
        pool.fail_drive(5).await.unwrap();
        let status = wait_for_repair(pool).await;
        assert_eq!((status.repair.state, state(&status, 5)), (RepairState::NeedsSpace, DriveState::Failed));
        pool.delete_volume("big").await.unwrap();
        while pool.volumes().await.unwrap().len() > 1 {
            Reactor::current().sleep(Duration::from_millis(1)).await;
        }
        for _ in 0..3 {
            pool.checkpoint().await.unwrap();
        }
        let status = wait_for_repair(pool).await;
        assert_eq!((status.repair.state, state(&status, 5)), (RepairState::Complete, DriveState::Removed));
        compare(pool, "kept", 4).await;
    });
    check_findings(&machine.check().unwrap(), &[]).unwrap();
}

/// Columns take effect only when they are flushed (Z3): a published superblock with the new column
/// position may reach the drives before the column's data.
#[test]
fn a_power_cut_never_leaves_an_unflushed_column() {
    let setup = Setup {
        zone_bytes: 64 << 10,
        drives: vec![(4 << 20) + 300 * (64 << 10); 5],
        tuning: engine::Tuning { checkpoint_bytes: 64 << 20, ..Setup::small("2+1", 5).tuning },
        ..Setup::small("2+1", 5)
    };
    let (mut cut, mut through) = (1, false);
    while !through {
        let machine = machine(&setup, cut);
        let this = machine.clone();
        let ended = machine.boot(async move || {
            let (pool, _) = this.open().await.unwrap();
            // Little enough data that the superblocks list all segments, so that each publish
            // contains the column positions.
            drop(fill(&pool, "v", 300, 1).await);
            pool.create_volume("w", 1 << 20, 4096, 0).await.unwrap();
            // One segment after the other.
            let limits = RepairLimits { paused: false, bytes_per_second: 32 << 10 };
            pool.set_repair_limits(limits).await.unwrap();
            this.cut_after(cut);
            pool.fail_drive(0).await.unwrap();
            let rebuilt = Rc::new(Cell::new(false));
            let (done, repaired) = (rebuilt.clone(), pool.clone());
            let settles = Reactor::current().spawn(async move {
                repaired.wait_for_repair().await.unwrap();
                done.set(true);
            });
            // Segments are opened and published while columns move. There are no other flushes.
            let volume = pool.open_volume("w").await.unwrap().attach();
            while !rebuilt.get() {
                volume.write(0, &Buffer::copy_of(&[3; 64 * 4096]).span()).await.unwrap();
                Reactor::current().sleep(Duration::from_millis(700)).await;
            }
            settles.await;
        });
        machine.cut_power();
        check_findings(&machine.check().unwrap(), &[]).unwrap_or_else(|error| panic!("cut {cut}: {error}"));
        through = ended == BootEnd::Completed(());
        cut += 5;
    }
}

/// Repair finds a segment that is opened after its scan, with zones chosen before the drive was
/// lost.
#[test]
fn a_segment_opened_after_the_scan_is_completed() {
    // The first segment takes longest, because space is reserved on each of its drives.
    let setup = Setup { latency: (1_000_000, 1_000_000), ..Setup::small("2+1", 4) };
    for after in 0..40 {
        let machine = machine(&setup, after);
        with_pool(&machine, async |pool| {
            let creator = pool.clone();
            let creates =
                Reactor::current().spawn(async move { creator.create_volume("v", BLOCK, 4096, 0).await });
            Reactor::current().sleep(Duration::from_micros(200 * after)).await;
            let lost = u16::try_from(after % 4).unwrap();
            pool.fail_drive(lost).await.unwrap();
            creates.await.unwrap();
            let status = wait_for_repair(pool).await;
            let found = (state(&status, lost.into()), status.repair.state);
            assert_eq!(found, (DriveState::Removed, RepairState::Complete), "{after}");
        });
    }
}

/// A very slow read of deleted data does not delay the removal of an unreferenced drive.
#[test]
fn slow_reads_of_freed_blocks_do_not_delay_removal() {
    let machine = machine(&Setup { latency: (2_000_000, 2_000_000), ..Setup::small("4+1", 6) }, 14);
    with_pool(&machine, async |pool| {
        let volume = Rc::new(fill(pool, "v", 64, 1).await);
        let stall = |stall| {
            machine.disks.iter().for_each(|disk| disk.set_faults(Faults { stall, ..Faults::default() }));
        };
        stall(1);
        let (reader, over) = (volume.clone(), Rc::new(Cell::new(false)));
        let ended = over.clone();
        let read = Reactor::current().spawn(async move {
            reader.read(0, &Buffer::new(64 * 4096).span()).await.unwrap();
            ended.set(true);
        });
        Reactor::current().sleep(Duration::from_millis(1)).await;
        stall(0);
        volume.write_zeroes(0, 64 * BLOCK).await.unwrap();
        pool.fail_drive(0).await.unwrap();
        let status = wait_for_repair(pool).await;
        assert_eq!(state(&status, 0), DriveState::Removed);
        assert!(!over.get(), "the read had ended before the removal");
        read.await;
    });
}

/// A pause frees the zones allocated for unfinished columns.
#[test]
fn a_pause_frees_unfinished_columns() {
    let machine = machine(&Setup::small("4+1", 6), 15);
    with_pool(&machine, async |pool| {
        fill(pool, "v", 4000, 2).await;
        let limits = |paused| RepairLimits { paused, bytes_per_second: 1 << 20 };
        pool.set_repair_limits(limits(true)).await.unwrap();
        pool.fail_drive(2).await.unwrap();
        let before = wait_for_repair(pool).await;
        pool.set_repair_limits(limits(false)).await.unwrap();
        Reactor::current().sleep(Duration::from_millis(50)).await;
        let status = pool.status().await.unwrap();
        assert_eq!(status.repair.state, RepairState::Running);
        assert!(status.space.free_zones + 10 < before.space.free_zones, "{:?}", status.space);
        pool.set_repair_limits(limits(true)).await.unwrap();
        Reactor::current().sleep(Duration::from_secs(1)).await;
        let status = wait_for_repair(pool).await;
        assert_eq!(status.repair.state, RepairState::Paused);
        // Completed columns stay.
        let written = before.space.free_zones - status.space.free_zones;
        assert!(
            written * (128 << 10) <= status.repair.bytes_done + (128 << 10),
            "{written} {:?}",
            status.repair
        );
    });
}

/// A pool can be closed at any time during a rebuild and after it.
#[test]
fn a_pool_can_be_closed_during_a_rebuild() {
    for after in 0..60 {
        let setup = Setup { shards: 2, latency: (1_000, 500_000), ..Setup::small("2+1", 5) };
        let machine = machine(&setup, after);
        with_pool(&machine, async |pool| {
            drop(fill(pool, "v", 100, 1).await);
            pool.fail_drive(0).await.unwrap();
            Reactor::current().sleep(Duration::from_micros(after * 401)).await;
        });
        check_findings(&machine.check().unwrap(), &[]).unwrap();
        with_pool(&machine, async |pool| compare(pool, "v", 1).await);
    }
}

/// A rebuild heals the damage that it reads, without a scrub.
#[test]
fn a_rebuild_heals_the_damage_it_reads() {
    for unreadable in [false, true] {
        let setup = Setup { spares: vec![16 << 20], ..Setup::small("2+2", 4) };
        let setup = Setup { tuning: engine::Tuning { retire_after: 0, ..setup.tuning }, ..setup };
        let machine = machine(&setup, 11);
        with_pool(&machine, async |pool| fill(pool, "v", 700, 7).await);
        let corrupt = &machine.disks[1];
        for page in corrupt.pages().into_iter().filter(|page| *page >= 1024 && page.is_multiple_of(3)) {
            if unreadable {
                corrupt.mark_unreadable(page);
            } else {
                assert!(corrupt.flip_bit(page, usize::try_from(page).unwrap() * 77));
            }
        }
        let damaged = || {
            let report = machine.check().unwrap();
            check_findings(&report, &[1]).unwrap();
            report.findings.len()
        };
        let before = damaged();
        let retried = with_pool(&machine, async |pool| {
            machine.add_drive(pool, 4).await.unwrap();
            pool.fail_drive(0).await.unwrap();
            let status = wait_for_repair(pool).await;
            assert_eq!((state(&status, 0), status.repair.damaged_rows), (DriveState::Removed, 0));
            assert_eq!((status.repair.state, status.scrub.unhealed), (RepairState::Complete, 0));
            compare(pool, "v", 7).await;
            status.repair.bytes_done
        });
        // All damage that was read is healed. Parity that was not needed was not read.
        let after = damaged();
        assert!(before > 40 && after * 2 < before, "{before} {after}, {retried} bytes written");
    }
}

/// Segments that were being written when a drive was lost are closed and completed. Repair never
/// reports a lack of space.
#[test]
fn repair_does_not_report_a_lack_of_available_space() {
    for seed in 20..24 {
        let setup = Setup { shards: 2, ..Setup::small("2+1", 5) };
        let machine = machine(&setup, seed);
        with_pool(&machine, async |pool| {
            fill(pool, "v", 700, 5).await;
            let (stop, states) = (Rc::new(Cell::new(false)), Rc::new(RefCell::new(Vec::new())));
            let (watched, stopped, seen) = (pool.clone(), stop.clone(), states.clone());
            let watch = Reactor::current().spawn(async move {
                while !stopped.get() {
                    let state = watched.status().await.unwrap().repair.state;
                    if seen.borrow().last() != Some(&state) {
                        seen.borrow_mut().push(state);
                    }
                    Reactor::current().sleep(Duration::from_micros(5)).await;
                }
            });
            let (writer, stopped) = (pool.clone(), stop.clone());
            let writes = Reactor::current().spawn(async move {
                let volume = writer.open_volume("v").await.unwrap().attach();
                let mut block = 0;
                while !stopped.get() {
                    let bytes = content(5, block, 4096);
                    volume.write(block * BLOCK, &Buffer::copy_of(&bytes).span()).await.unwrap();
                    block = (block + 7) % 700;
                }
            });
            for drive in [0, 1] {
                Reactor::current().sleep(Duration::from_secs(1)).await;
                pool.fail_drive(drive).await.unwrap();
                assert_eq!(state(&wait_for_repair(pool).await, drive.into()), DriveState::Removed);
            }
            stop.set(true);
            watch.await;
            writes.await;
            let expected = [RepairState::Complete, RepairState::Running];
            assert!(states.borrow().contains(&RepairState::Running), "{states:?}");
            assert!(states.borrow().iter().all(|state| expected.contains(state)), "{states:?}");
        });
    }
}
