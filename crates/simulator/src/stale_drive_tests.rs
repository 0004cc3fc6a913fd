//! Drives with unexpected content: old copies, copies of other drives, forks, damaged superblocks.

use std::rc::Rc;
use std::time::Duration;

use engine::{AttachedVolume, ErrorKind, OpenReport, Pool, RepairState};
use format::DriveState;
use format::limits::SUPERBLOCK_SLOT;
use reactor::{Buffer, Reactor};

use crate::model::content;
use crate::repair_tests::{BLOCK, compare, fill, machine, state, wait_for_repair, with_pool};
use crate::run::{BootEnd, Machine, Setup, check_findings};

const SLOT_PAGES: u64 = SUPERBLOCK_SLOT / BLOCK;

/// Boots the machine, opens the pool, runs `work` with the report of the opening, and closes the
/// pool.
fn with_pool_and_report<T>(machine: &Rc<Machine>, work: impl AsyncFnOnce(&Pool, &OpenReport) -> T) -> T {
    let this = machine.clone();
    let ended = machine.boot(async move || {
        let (pool, report) = this.open().await.unwrap();
        let done = work(&pool, &report).await;
        pool.close().await.unwrap();
        done
    });
    let BootEnd::Completed(done) = ended else { panic!("unexpected power cut") };
    machine.kill_process();
    done
}

/// Returns the error of an opening, or `None` if it succeeds.
fn opening_error(machine: &Rc<Machine>) -> Option<ErrorKind> {
    let this = machine.clone();
    let ended = machine.boot(async move || match this.open().await {
        Ok((pool, _)) => {
            pool.close().await.unwrap();
            None
        }
        Err(error) => Some(error.kind()),
    });
    let BootEnd::Completed(kind) = ended else { panic!("unexpected power cut") };
    kind
}

fn set_absent_drives(machine: &Machine, drives: &[usize]) {
    let mut absent = machine.absent.borrow_mut();
    absent.iter_mut().enumerate().for_each(|(index, place)| *place = drives.contains(&index));
}

async fn overwrite(pool: &Pool, name: &str, value: u64) {
    let volume = pool.open_volume(name).await.unwrap().attach();
    for block in 0..volume.size() / BLOCK {
        let bytes = content(value, block, 4096);
        volume.write(block * BLOCK, &Buffer::copy_of(&bytes).span()).await.unwrap();
    }
    volume.flush().await.unwrap();
}

/// Waits until a returned drive is online again.
async fn wait_until_online(pool: &Pool, drive: usize) {
    for _ in 0..10_000 {
        if state(&wait_for_repair(pool).await, drive) == DriveState::Online {
            return;
        }
        Reactor::current().sleep(Duration::from_millis(1)).await;
    }
    panic!("drive {drive} is {:?}", state(&wait_for_repair(pool).await, drive));
}

/// Overwrites the first block with value 5, and flushes. The superblocks are current then, and
/// later writes are only in the log.
async fn overwrite_first(pool: &Pool) -> AttachedVolume {
    let volume = pool.open_volume("v").await.unwrap().attach();
    volume.write(0, &Buffer::copy_of(&content(5, 0, 4096)).span()).await.unwrap();
    volume.flush().await.unwrap();
    volume
}

/// An old copy of a drive is put in its place, after a clean close or a crash. Its content is not
/// trusted: the drive counts as lost until it is rebuilt, and then provides redundancy again.
#[test]
fn an_old_copy_of_a_drive_is_rebuilt_before_it_counts() {
    for (crashed, blocks) in [(false, 400), (true, 400), (true, 40)] {
        let machine = machine(&Setup::small("4+1", 5), 80 + blocks);
        with_pool(&machine, async |pool| fill(pool, "v", blocks, 3).await);
        let mut image = machine.disks[0].image();
        if crashed {
            let this = machine.clone();
            let ended = machine.boot(async move || {
                let (pool, _) = this.open().await.unwrap();
                overwrite_first(&pool).await;
                let image = this.disks[0].image();
                overwrite(&pool, "v", 5).await;
                image
            });
            let BootEnd::Completed(newer) = ended else { panic!("unexpected power cut") };
            image = newer;
            machine.cut_power();
        } else {
            with_pool(&machine, async |pool| overwrite(pool, "v", 5).await);
        }
        machine.disks[0].restore(&image);
        let report = machine.check().unwrap();
        assert!(
            report.findings.iter().any(|finding| finding.message.contains("outdated copy")),
            "{report:?}"
        );
        with_pool_and_report(&machine, async |pool, report| {
            assert_eq!(report.stale, ["drive0"], "{crashed} {blocks}");
            let status = pool.status().await.unwrap();
            assert!(
                matches!(state(&status, 0), DriveState::Missing | DriveState::Returning),
                "an old copy must count as lost: {:?}",
                state(&status, 0)
            );
            wait_until_online(pool, 0).await;
            pool.fail_drive(1).await.unwrap();
            compare(pool, "v", 5).await;
        });
        check_findings(&machine.check().unwrap(), &[]).unwrap();
    }
}

/// A copy of a drive that lacks only a few flushed writes is put in its place after a crash. The
/// pool opens, and tolerates the loss of another drive after its repair.
#[test]
fn a_copy_that_lacks_few_writes_is_repaired() {
    for writes in 1..=6 {
        for (copied, lost) in (0..5).flat_map(|copied| (0..5).map(move |lost| (copied, lost))) {
            if copied == lost {
                continue;
            }
            let machine = machine(&Setup::small("4+1", 5), 700 + writes);
            with_pool(&machine, async |pool| fill(pool, "v", 40, 3).await);
            let this = machine.clone();
            let ended = machine.boot(async move || {
                let (pool, _) = this.open().await.unwrap();
                let volume = overwrite_first(&pool).await;
                let image = this.disks[copied].image();
                for block in 1..=writes {
                    let bytes = Buffer::copy_of(&content(5, block, 4096));
                    volume.write(block * BLOCK, &bytes.span()).await.unwrap();
                    volume.flush().await.unwrap();
                }
                image
            });
            let BootEnd::Completed(image) = ended else { panic!("unexpected power cut") };
            machine.cut_power();
            machine.disks[copied].restore(&image);
            with_pool(&machine, async |pool| {
                wait_until_online(pool, copied).await;
                assert_eq!(wait_for_repair(pool).await.damaged_columns(), 0);
                pool.fail_drive(u16::try_from(lost).unwrap()).await.unwrap();
                let volume = pool.open_volume("v").await.unwrap().attach();
                for block in 0..40 {
                    let buffer = Buffer::new(4096);
                    volume.read(block * BLOCK, &buffer.span()).await.unwrap_or_else(|error| {
                        panic!("block {block} without drive {lost}, {writes} writes behind {copied}: {error}")
                    });
                    let value = if block <= writes { 5 } else { 3 };
                    assert!(buffer.as_slice() == content(value, block, 4096), "block {block}");
                }
            });
        }
    }
}

/// A failure to record the newest state outside of the drives is reported, and the state is
/// recorded with the next change.
#[test]
fn a_state_that_was_not_recorded_is_recorded_later() {
    let machine = machine(&Setup::small("1+1", 2), 91);
    with_pool(&machine, async |pool| fill(pool, "v", 40, 3).await);
    let image = machine.disks[1].image();
    machine.state_store.enforce();
    machine.state_store.set_failing(true);
    set_absent_drives(&machine, &[1]);
    with_pool(&machine, async |pool| {
        let reason = pool.status().await.unwrap().unrecorded;
        assert!(reason.is_some());
        pool.checkpoint().await.unwrap();
        assert_eq!(pool.status().await.unwrap().unrecorded, reason, "it fails again");
        machine.state_store.set_failing(false);
        overwrite(pool, "v", 5).await;
        pool.checkpoint().await.unwrap();
        assert_eq!(pool.status().await.unwrap().unrecorded, None);
        machine.state_store.set_failing(true);
    });
    // The closing of the pool was not recorded. Its opening was, with the absence of the drive.
    machine.disks[1].restore(&image);
    set_absent_drives(&machine, &[0]);
    assert_eq!(opening_error(&machine), Some(ErrorKind::Stale));
}

/// A crash at any point while an old copy is returned leaves a pool that still does not trust it.
#[test]
fn returning_an_old_copy_survives_a_cut_at_every_point() {
    for cut in (0..600).step_by(7) {
        let machine = machine(&Setup::small("2+1", 3), 90);
        with_pool(&machine, async |pool| fill(pool, "v", 120, 3).await);
        let image = machine.disks[2].image();
        with_pool(&machine, async |pool| overwrite(pool, "v", 5).await);
        machine.disks[2].restore(&image);
        let this = machine.clone();
        machine.cut_after(cut);
        machine.boot(async move || {
            let (pool, _) = this.open().await.unwrap();
            wait_until_online(&pool, 2).await;
        });
        machine.cut_power();
        with_pool(&machine, async |pool| {
            wait_until_online(pool, 2).await;
            pool.fail_drive(0).await.unwrap();
            compare(pool, "v", 5).await;
        });
        check_findings(&machine.check().unwrap(), &[]).unwrap();
    }
}

/// The proof that halves of a pool were used separately never expires, regardless of later
/// openings.
#[test]
fn separately_used_halves_are_refused_after_any_number_of_openings() {
    for openings in [1, 8, 9, 30] {
        let machine = machine(&Setup::small("1+1", 2), 100 + openings);
        with_pool(&machine, async |pool| fill(pool, "v", 20, 3).await);
        set_absent_drives(&machine, &[1]);
        with_pool(&machine, async |pool| fill(pool, "w", 20, 8).await);
        set_absent_drives(&machine, &[0]);
        for opening in 0..openings {
            with_pool(&machine, async |pool| fill(pool, &format!("x{opening}"), 2, 9).await);
        }
        set_absent_drives(&machine, &[]);
        assert_eq!(opening_error(&machine), Some(ErrorKind::NotAPool), "{openings} openings");
        set_absent_drives(&machine, &[0]);
        with_pool(&machine, async |pool| {
            assert_eq!(machine.return_drive(pool, 0).await.unwrap_err().kind(), ErrorKind::Invalid);
            compare(pool, "x0", 9).await;
        });
    }
}

/// A drive that was away for more openings than a superblock lists returns as an old state of the
/// same pool.
#[test]
fn a_drive_absent_for_many_openings_returns() {
    let machine = machine(&Setup::small("2+1", 3), 110);
    with_pool(&machine, async |pool| fill(pool, "v", 200, 3).await);
    set_absent_drives(&machine, &[1]);
    for opening in 0..12 {
        with_pool(&machine, async |pool| overwrite(pool, "v", opening).await);
    }
    set_absent_drives(&machine, &[]);
    with_pool_and_report(&machine, async |pool, report| {
        assert_eq!(report.returned, ["drive1"]);
        wait_until_online(pool, 1).await;
        pool.fail_drive(0).await.unwrap();
        compare(pool, "v", 11).await;
    });
    check_findings(&machine.check().unwrap(), &[]).unwrap();
}

/// A half that was not used last holds an old state. Only a state stored outside the pool reveals
/// that.
#[test]
fn an_older_half_is_refused_if_the_newer_state_is_stored() {
    let machine = machine(&Setup::small("1+1", 2), 111);
    machine.state_store.enforce();
    with_pool(&machine, async |pool| fill(pool, "v", 20, 3).await);
    set_absent_drives(&machine, &[1]);
    with_pool(&machine, async |pool| fill(pool, "w", 20, 8).await);
    set_absent_drives(&machine, &[0]);
    assert_eq!(opening_error(&machine), Some(ErrorKind::Stale));
    set_absent_drives(&machine, &[1]);
    with_pool(&machine, async |pool| compare(pool, "w", 8).await);
    set_absent_drives(&machine, &[0]);
    machine.accept_stale.set(true);
    with_pool(&machine, async |pool| {
        compare(pool, "v", 3).await;
        assert_eq!(pool.open_volume("w").await.err().unwrap().kind(), ErrorKind::NotFound);
    });
    // The older half is the current one from now on.
    machine.accept_stale.set(false);
    set_absent_drives(&machine, &[1]);
    assert_eq!(opening_error(&machine), Some(ErrorKind::Stale));
    set_absent_drives(&machine, &[0]);
    with_pool(&machine, async |pool| compare(pool, "v", 3).await);
}

/// As above, with a newer state from the same opening: the drive was lost while the pool was in
/// service.
#[test]
fn a_half_lost_in_service_is_refused_if_the_newer_state_is_stored() {
    let machine = machine(&Setup::small("1+1", 2), 112);
    machine.state_store.enforce();
    let this = machine.clone();
    let ended = machine.boot(async move || {
        let (pool, _) = this.open().await.unwrap();
        fill(&pool, "v", 20, 3).await;
        this.disks[1].set_dead(true);
        fill(&pool, "w", 20, 8).await;
    });
    assert_eq!(ended, BootEnd::Completed(()));
    machine.cut_power();
    machine.disks[1].set_dead(false);
    set_absent_drives(&machine, &[0]);
    assert_eq!(opening_error(&machine), Some(ErrorKind::Stale));
}

/// A drive that has shrunk counts as missing, and the report names the reason.
#[test]
fn a_drive_that_shrank_counts_as_missing() {
    for by in [1, 8 << 20] {
        let machine = machine(&Setup::small("4+1", 5), 113);
        with_pool(&machine, async |pool| fill(pool, "v", 400, 3).await);
        machine.disks[3].set_size((16 << 20) - by);
        let report = machine.check().unwrap();
        assert!(report.findings.iter().any(|finding| finding.message.contains("smaller")), "{report:?}");
        with_pool_and_report(&machine, async |pool, report| {
            assert_eq!(report.shrunk.len(), 1);
            let status = wait_for_repair(pool).await;
            assert_eq!(state(&status, 3), DriveState::Missing);
            assert_ne!(status.repair.state, RepairState::Complete);
            compare(pool, "v", 3).await;
        });
    }
}

/// A copy of one drive in another drive's place is not used, in any order of the drives. The
/// replaced drive is missing.
#[test]
fn a_copy_of_another_drive_is_not_used() {
    for (original, replaced) in [(1, 0), (0, 1), (4, 2)] {
        let machine = machine(&Setup::small("4+1", 5), 114);
        with_pool(&machine, async |pool| fill(pool, "v", 400, 3).await);
        machine.disks[replaced].restore(&machine.disks[original].image());
        with_pool_and_report(&machine, async |pool, report| {
            assert_eq!(report.copies, [format!("drive{replaced}")]);
            assert_eq!(state(&wait_for_repair(pool).await, replaced), DriveState::Missing);
            compare(pool, "v", 3).await;
        });
        assert!(
            machine
                .check()
                .unwrap()
                .findings
                .iter()
                .any(|finding| finding.message.contains("copy of another"))
        );
    }
}

/// A destroyed superblock copy is reported and rewritten, in either slot.
#[test]
fn a_destroyed_superblock_copy_is_reported_and_rewritten() {
    for slot in [0, 1] {
        let machine = machine(&Setup::small("4+1", 5), 115);
        with_pool(&machine, async |pool| fill(pool, "v", 400, 3).await);
        for page in machine.disks[2].pages().into_iter().filter(|page| page / SLOT_PAGES == slot) {
            machine.disks[2].flip_bit(page, 100);
        }
        let report = machine.check().unwrap();
        let noticed = report.damaged_superblocks.len() + report.findings.len();
        assert_eq!(noticed, 1, "slot {slot}: {report:?}");
        with_pool_and_report(&machine, async |pool, report| {
            let noticed = report.damaged_superblocks.len() + report.stale.len();
            assert_eq!((noticed, report.uncertain), (1, false), "slot {slot}: {report:?}");
            wait_until_online(pool, 2).await;
            compare(pool, "v", 3).await;
        });
        check_findings(&machine.check().unwrap(), &[]).unwrap();
        with_pool_and_report(&machine, async |_, report| {
            assert!(report.damaged_superblocks.is_empty() && report.stale.is_empty());
        });
    }
}

/// The newest superblock on the only present drive is corrupt: the opening reports that a newer
/// state may be lost.
#[test]
fn a_corrupt_newest_superblock_on_the_last_drive_is_reported() {
    let machine = machine(&Setup::small("1+1", 2), 116);
    with_pool(&machine, async |pool| fill(pool, "v", 20, 3).await);
    set_absent_drives(&machine, &[1]);
    with_pool(&machine, async |pool| fill(pool, "w", 20, 8).await);
    let image = machine.disks[0].image();
    let mut uncertain = 0;
    for slot in [0, 1] {
        machine.disks[0].restore(&image);
        let pages = machine.disks[0].pages().into_iter().filter(|page| page / SLOT_PAGES == slot);
        pages.for_each(|page| assert!(machine.disks[0].flip_bit(page, 9)));
        uncertain += with_pool_and_report(&machine, async |_, report| u32::from(report.uncertain));
    }
    assert_eq!(uncertain, 2);
}
