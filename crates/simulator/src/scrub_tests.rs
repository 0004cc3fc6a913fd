//! Scrubs: they find damage that no client read has found, heal it, continue after restarts,
//! respect rate limits, and run during other work.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use engine::{EventKind, Pool, RepairLimits, ScrubStatus};
use format::DriveState;
use reactor::{Buffer, Clock as _, Reactor};

use crate::disk::Disk;
use crate::model::content;
use crate::random::Random;
use crate::repair_tests::{BLOCK, compare, fill, machine, state, wait_for_repair, with_pool};
use crate::run::{BootEnd, Setup, check_findings};

/// Damages the segments of a drive, one page in `one_in` on average. Returns the number of damaged
/// pages.
fn damage(disk: &Disk, random: &Random, often: u64) -> u64 {
    let mut damaged = 0;
    for page in disk.pages().into_iter().filter(|page| *page >= 1024) {
        if random.once_in(often) {
            damaged += 1;
            if random.once_in(2) {
                disk.mark_unreadable(page);
            } else {
                assert!(disk.flip_bit(page, usize::try_from(random.below(32_768)).unwrap()));
            }
        }
    }
    damaged
}

async fn scrub(pool: &Pool) -> ScrubStatus {
    assert!(pool.start_scrub().await.unwrap());
    assert!(!pool.start_scrub().await.unwrap(), "two scrubs at the same time");
    pool.scrub_settled().await.unwrap();
    pool.wait_for_repair().await.unwrap();
    pool.status().await.unwrap().scrub
}

#[test]
fn a_scrub_of_an_undamaged_pool_finds_nothing() {
    let machine = machine(&Setup { shards: 3, ..Setup::small("4+2", 7) }, 1);
    with_pool(&machine, async |pool| {
        fill(pool, "v", 1500, 9).await;
        let status = scrub(pool).await;
        assert!(!status.running && status.last.bytes > 1500 * BLOCK * 6 / 4, "{status:?}");
        assert_eq!((status.last.damaged, status.last.lost, status.unhealed), (0, 0, 0));
        let kinds: Vec<EventKind> =
            pool.events(0, 100).await.unwrap().into_iter().map(|(_, event)| event.kind).collect();
        assert!(kinds.contains(&EventKind::ScrubStarted) && kinds.contains(&EventKind::ScrubFinished));
        assert!(!kinds.contains(&EventKind::Damaged), "{kinds:?}");
    });
}

/// Damage to data, parity, headers, map and garbage on as many drives as the scheme tolerates is
/// healed without client reads.
#[test]
fn a_scrub_heals_damage_within_the_tolerance() {
    for (scheme, drives, victims) in [("4+1", 6, vec![2]), ("2+2", 4, vec![0, 3]), ("1+2", 4, vec![1, 2])] {
        let setup = Setup { shards: 2, ..Setup::small(scheme, drives) };
        let setup = Setup { tuning: engine::Tuning { retire_after: 0, ..setup.tuning }, ..setup };
        let machine = machine(&setup, 2);
        with_pool(&machine, async |pool| {
            drop(fill(pool, "v", 1500, 9).await);
            let volume = pool.open_volume("v").await.unwrap().attach();
            // Makes garbage.
            for block in (0..1500).step_by(7) {
                let bytes = content(9, block, 4096);
                volume.write(block * BLOCK, &Buffer::copy_of(&bytes).span()).await.unwrap();
            }
        });
        let random = Random::new(7);
        let damaged: u64 = victims.iter().map(|victim| damage(&machine.disks[*victim], &random, 6)).sum();
        assert!(damaged > 50, "{damaged}");
        with_pool(&machine, async |pool| {
            let status = scrub(pool).await;
            assert!(status.last.damaged > 20 && status.last.damaged <= damaged, "{status:?} of {damaged}");
            assert_eq!((status.last.lost, status.unhealed), (0, 0), "{scheme}");
            let events = pool.events(0, 1000).await.unwrap();
            let reported: Vec<_> =
                events.iter().filter(|(_, event)| event.kind == EventKind::Damaged).collect();
            assert!(!reported.is_empty());
            let by_victims = |drive: Option<u16>| victims.contains(&usize::from(drive.unwrap()));
            assert!(reported.iter().all(|(_, event)| by_victims(event.drive)), "{reported:?}");
            let again = scrub(pool).await;
            assert_eq!((again.last.damaged, again.last.lost), (0, 0));
            for victim in 0..usize::from(pool.scheme().parity()) {
                pool.fail_drive(u16::try_from((victims[0] + 1 + victim) % drives).unwrap()).await.unwrap();
            }
            compare(pool, "v", 9).await;
        });
        check_findings(&machine.check().unwrap(), &[]).unwrap_or_else(|error| panic!("{scheme}: {error}"));
    }
}

/// Damage that a scrub finds and repair has not rewritten yet is remembered across a restart, and
/// healed without another scrub.
#[test]
fn damage_that_waits_for_repair_survives_a_restart() {
    for crashed in [false, true] {
        let machine = machine(&Setup::small("4+1", 6), 13);
        with_pool(&machine, async |pool| fill(pool, "v", 600, 9).await);
        damage(&machine.disks[2], &Random::new(7), 6);
        let this = machine.clone();
        let ended = machine.boot(async move || {
            let (pool, _) = this.open().await.unwrap();
            pool.set_repair_limits(RepairLimits { paused: true, ..pool.repair_limits() }).await.unwrap();
            let found = scrub(&pool).await;
            assert!(!found.running && found.last.damaged > 0 && found.unhealed > 0, "{found:?}");
            if !crashed {
                pool.close().await.unwrap();
            }
            found.unhealed
        });
        let BootEnd::Completed(unhealed) = ended else { panic!("unexpected power cut") };
        machine.cut_power();
        let this = machine.clone();
        let ended = machine.boot(async move || {
            let (pool, _) = this.open().await.unwrap();
            let damaged = pool.status().await.unwrap().damaged_columns();
            assert!(damaged > 0 && damaged <= unhealed, "{damaged} of {unhealed} columns");
            assert_eq!(wait_for_repair(&pool).await.damaged_columns(), 0);
            pool.close().await.unwrap();
        });
        assert_eq!(ended, BootEnd::Completed(()));
        machine.kill_process();
        check_findings(&machine.check().unwrap(), &[]).unwrap();
    }
}

/// Damage beyond the scheme's tolerance is counted and reported, and nothing else is affected.
#[test]
fn a_scrub_counts_lost_cells() {
    let machine = machine(&Setup::small("2+1", 4), 3);
    with_pool(&machine, async |pool| fill(pool, "v", 600, 3).await);
    let random = Random::new(8);
    for victim in [0, 1] {
        damage(&machine.disks[victim], &random, 6);
    }
    with_pool(&machine, async |pool| {
        let status = scrub(pool).await;
        assert!(status.last.lost > 0 && status.last.damaged > 0, "{status:?}");
        let again = scrub(pool).await;
        assert!(again.last.damaged <= again.last.lost, "{again:?}");
    });
}

/// A scrub that is rate-limited, paused, closed or killed continues at its last position.
#[test]
fn a_scrub_continues_after_restarts() {
    let machine = machine(&Setup::small("4+1", 6), 4);
    with_pool(&machine, async |pool| fill(pool, "v", 2000, 9).await);
    let random = Random::new(9);
    let damaged = damage(&machine.disks[3], &random, 40);
    let limits = RepairLimits { paused: false, bytes_per_second: 1 << 20 };
    let mut before = 0;
    for closes in [true, false, true, false] {
        let this = machine.clone();
        let ended = machine.boot(async move || {
            let (pool, _) = this.open().await.unwrap();
            if before == 0 {
                pool.start_scrub().await.unwrap();
            }
            pool.set_scrub_limits(limits).await.unwrap();
            Reactor::current().sleep(Duration::from_secs(2)).await;
            pool.set_scrub_limits(RepairLimits { paused: true, ..limits }).await.unwrap();
            pool.scrub_settled().await.unwrap();
            let status = pool.status().await.unwrap().scrub;
            assert!(status.running && status.paused && status.bytes_left > 0, "{status:?}");
            // The last part may be read again.
            assert!(status.current.bytes + (1 << 20) > before, "{status:?} {before}");
            if closes {
                pool.checkpoint().await.unwrap();
                pool.close().await.unwrap();
            } else {
                pool.checkpoint().await.unwrap();
            }
            status.current.bytes
        });
        let BootEnd::Completed(bytes) = ended else { panic!("unexpected power cut") };
        before = bytes;
        machine.kill_process();
    }
    assert!(before > 2 << 20, "{before}");
    with_pool(&machine, async |pool| {
        pool.scrub_settled().await.unwrap();
        let status = pool.status().await.unwrap().scrub;
        assert!(!status.running && status.last.bytes > before, "{status:?}");
        assert!(status.last.damaged > 0 && status.last.damaged <= damaged + 40, "{status:?} of {damaged}");
        wait_for_repair(pool).await;
    });
    check_findings(&machine.check().unwrap(), &[]).unwrap();
}

#[test]
fn a_scrub_respects_its_rate_limit_and_can_be_cancelled() {
    let machine = machine(&Setup::small("4+1", 6), 5);
    with_pool(&machine, async |pool| {
        fill(pool, "v", 1000, 2).await;
        pool.set_scrub_limits(RepairLimits { paused: false, bytes_per_second: 1 << 20 }).await.unwrap();
        let begin = machine.events.now();
        let status = scrub(pool).await;
        let seconds = machine.events.now().since(begin).as_secs_f64();
        #[allow(clippy::cast_precision_loss)]
        let least = status.last.bytes as f64 / f64::from(1 << 20);
        assert!(least > 4.0 && seconds > 0.9 * least && seconds < 1.5 * least, "{seconds} {least}");
        assert!(pool.start_scrub().await.unwrap());
        assert!(pool.cancel_scrub().await.unwrap() && !pool.cancel_scrub().await.unwrap());
        pool.scrub_settled().await.unwrap();
        let after = pool.status().await.unwrap().scrub;
        assert_eq!((after.running, after.last), (false, status.last));
    });
}

/// With client writes, drive damage and a lost drive, the pool is fully redundant in the end and
/// the verifier finds no errors.
#[test]
fn damage_under_load_is_healed_despite_a_lost_drive() {
    let setup = Setup { shards: 2, ..Setup::small("3+3", 8) };
    let setup = Setup { tuning: engine::Tuning { retire_after: 0, ..setup.tuning }, ..setup };
    let machine = machine(&setup, 6);
    with_pool(&machine, async |pool| {
        drop(fill(pool, "v", 1500, 9).await);
        let random = Random::new(10);
        let (stop, writer) = (Rc::new(Cell::new(false)), pool.clone());
        let stopped = stop.clone();
        let writes = Reactor::current().spawn(async move {
            let volume = writer.open_volume("v").await.unwrap().attach();
            let mut block = 0;
            while !stopped.get() {
                let bytes = content(9, block, 4096);
                volume.write(block * BLOCK, &Buffer::copy_of(&bytes).span()).await.unwrap();
                block = (block + 7) % 1500;
            }
        });
        for round in 0..4 {
            damage(&machine.disks[1], &random, 30);
            damage(&machine.disks[4], &random, 30);
            if round == 1 {
                pool.start_scrub().await.unwrap();
                pool.fail_drive(6).await.unwrap();
                pool.scrub_settled().await.unwrap();
            } else {
                scrub(pool).await;
            }
        }
        stop.set(true);
        writes.await;
        let last = scrub(pool).await;
        assert_eq!((last.last.lost, last.unhealed), (0, 0), "{last:?}");
        let status = wait_for_repair(pool).await;
        assert_eq!(state(&status, 6), DriveState::Removed);
        compare(pool, "v", 9).await;
    });
    check_findings(&machine.check().unwrap(), &[]).unwrap();
}

/// A scrub whose last checkpoint fails for lack of space ends once there is space. A paused repair
/// has nothing to do, so an idle pool makes no other checkpoint: the scrub tries again alone.
#[test]
fn a_scrub_of_an_idle_pool_ends_after_its_host_was_full() {
    const MINUTES: Duration = Duration::from_secs(600);
    for paused in [false, true] {
        let machine = machine(&Setup::small("4+1", 6), 1);
        with_pool(&machine, async |pool| drop(fill(pool, "v", 1500, 9).await));
        // A new opening assumes no space on the host for its free zones.
        let set_full = |full| machine.disks.iter().for_each(|disk| disk.set_host_full(full));
        set_full(true);
        assert!(damage(&machine.disks[2], &Random::new(7), 9) > 0);
        with_pool(&machine, async |pool| {
            pool.set_repair_limits(RepairLimits { paused, ..pool.repair_limits() }).await.unwrap();
            assert!(pool.start_scrub().await.unwrap());
            Reactor::current().sleep(MINUTES).await;
            let scrub = pool.status().await.unwrap().scrub;
            assert!(scrub.running, "a scrub ended before its repairs are durable: {scrub:?}");
            assert!(scrub.unhealed > 0, "nothing waits for repair: {scrub:?}");
            set_full(false);
            Reactor::current().sleep(MINUTES).await;
            let scrub = pool.status().await.unwrap().scrub;
            assert!(!scrub.running, "the scrub does not end, repair paused: {paused}");
            assert_eq!(scrub.unhealed > 0, paused, "{scrub:?}");
        });
    }
}
