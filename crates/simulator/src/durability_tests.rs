//! Violations of durability and isolation that the sweep and the swarm did not reach.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use engine::{Execution, NewVolume, QosLimits};
use format::DriveState;
use format::limits::VOLUME_MAX;
use futures_util::FutureExt;
use reactor::{Buffer, Reactor};

use crate::model::content;
use crate::repair_tests::{BLOCK, fill, machine, state, wait_for_repair, with_pool};
use crate::run::{BootEnd, Machine, Setup, check_findings};

fn block_of(value: u64, block: u64) -> Buffer {
    Buffer::copy_of(&content(value, block, 4096))
}

/// Runs `work` on an open pool and cuts the power when it ends.
fn with_pool_until_power_cut(machine: &Rc<Machine>, work: impl AsyncFnOnce(&engine::Pool)) {
    let this = machine.clone();
    let ended = machine.boot(async move || {
        let (pool, _) = this.open().await.unwrap();
        work(&pool).await;
    });
    assert_eq!(ended, BootEnd::Completed(()));
    machine.cut_power();
}

/// A merge of the last leaves of a volume of the maximum size must not write a record that recovery
/// takes for the end of the log.
#[test]
fn merging_the_last_leaf_of_the_largest_volume_loses_no_data() {
    let machine = machine(&Setup::small("2+1", 3), 31);
    let last = VOLUME_MAX / BLOCK - 1;
    with_pool_until_power_cut(&machine, async |pool| {
        pool.create_volume("v", VOLUME_MAX, 4096, 0).await.unwrap();
        let volume = pool.open_volume("v").await.unwrap().attach();
        volume.write(last * BLOCK, &block_of(1, last).span()).await.unwrap();
        pool.snapshot_volume("v@s", 0).await.unwrap();
        pool.delete_volume("v@s").await.unwrap();
        while pool.volumes().await.unwrap().len() > 1 {
            Reactor::current().sleep(Duration::from_millis(10)).await;
        }
        volume.write(0, &block_of(2, 0).span()).await.unwrap();
        volume.flush().await.unwrap();
    });
    with_pool(&machine, async |pool| {
        let volume = pool.open_volume("v").await.unwrap().attach();
        for (block, value) in [(0, 2), (last, 1)] {
            let buffer = Buffer::new(4096);
            volume.read(block * BLOCK, &buffer.span()).await.unwrap();
            assert!(buffer.as_slice() == content(value, block, 4096), "flushed block {block} is wrong");
        }
    });
    check_findings(&machine.check().unwrap(), &[]).unwrap();
}

/// After a failed read has returned, no transfer reaches the reader's memory.
#[test]
fn a_failed_read_does_not_write_to_its_buffer_later() {
    let mut failed = 0;
    for round in 0..20 {
        let machine = machine(&Setup::small("4+0", 4), 40 + round);
        with_pool(&machine, async |pool| {
            let volume = fill(pool, "v", 256, 7).await;
            machine.disks[0].pages().into_iter().for_each(|page| machine.disks[0].mark_unreadable(page));
            (1..4).for_each(|drive| machine.disks[drive].set_latency(1_000_000, 30_000_000));
            machine.disks[0].set_latency(1, 2);
            for first in (0..256).step_by(32) {
                let buffer = Buffer::zeroed(32 * 4096);
                let span = buffer.span();
                if volume.read(first * BLOCK, &span).await.is_ok() {
                    continue;
                }
                failed += 1;
                span.zero();
                Reactor::current().sleep(Duration::from_millis(100)).await;
                drop(span);
                assert!(
                    buffer.as_slice().iter().all(|byte| *byte == 0),
                    "a late transfer wrote to the reader's memory"
                );
            }
            (0..4).for_each(|drive| machine.disks[drive].set_latency(20_000, 100_000));
        });
    }
    assert!(failed > 100, "{failed} reads failed");
}

/// Writes that wait for a QoS limit when their volume is deleted fail, or make the deletion fail.
/// They never appear in the next volume.
#[test]
fn writes_to_a_deleted_volume_never_appear() {
    let machine = machine(&Setup { shards: 2, ..Setup::small("2+1", 3) }, 61);
    machine.events.set_message_delay(200_000, 5);
    for delay in (0..2_000).step_by(40) {
        with_pool(&machine, async |pool| {
            let wanted = NewVolume { size: 1 << 20, sector: 4096, thick: false, shards: None, now: 0 };
            pool.create_volume_with("old", wanted).await.unwrap();
            let limits = QosLimits { operations: 200, burst_ms: 1, ..QosLimits::default() };
            pool.set_qos_limits("old", limits).await.unwrap();
            let client = pool.clone();
            let writes = Reactor::current().spawn(async move {
                Reactor::current().sleep(Duration::from_micros(delay)).await;
                let Ok(volume) = client.open_volume("old").await else { return 0 };
                let volume = Rc::new(volume.attach());
                let tasks: Vec<_> = (0..40)
                    .map(|block| {
                        let volume = volume.clone();
                        Reactor::current().spawn(async move {
                            volume.write(block * BLOCK, &block_of(9, block).span()).await.is_ok()
                        })
                    })
                    .collect();
                let mut acknowledged = 0;
                for task in tasks {
                    acknowledged += u64::from(task.await);
                }
                acknowledged
            });
            let deleted = pool.delete_volume("old").await;
            if deleted.is_ok() {
                while !pool.volumes().await.unwrap().is_empty() {
                    Reactor::current().sleep(Duration::from_millis(1)).await;
                }
                pool.create_volume_with("new", wanted).await.unwrap();
                let acknowledged = writes.await;
                assert_eq!(acknowledged, 0, "a write to a deleted volume was acknowledged");
                let new = pool.open_volume("new").await.unwrap().attach();
                for block in 0..256 {
                    let buffer = Buffer::new(4096);
                    new.read(block * BLOCK, &buffer.span()).await.unwrap();
                    assert!(
                        buffer.as_slice().iter().all(|byte| *byte == 0),
                        "block {block} holds a write to the deleted volume"
                    );
                }
                drop(new);
                pool.delete_volume("new").await.unwrap();
            } else {
                writes.await;
                pool.delete_volume("old").await.unwrap();
            }
        });
    }
}

/// Operations that are aborted behind a rate limit have no effect; the others are complete.
#[test]
fn an_aborted_operation_has_no_effect() {
    let machine = machine(&Setup::small("2+1", 3), 62);
    with_pool(&machine, async |pool| {
        pool.create_volume("v", 1 << 20, 4096, 0).await.unwrap();
        let limits = QosLimits { operations: 200, burst_ms: 1, ..QosLimits::default() };
        pool.set_qos_limits("v", limits).await.unwrap();
        let volume = Rc::new(pool.open_volume("v").await.unwrap().attach());
        assert!(volume.is_rate_limited());
        let abort = || Reactor::current().sleep(Duration::from_millis(20)).boxed_local();
        let write = |block| {
            let (volume, abort) = (volume.clone(), abort());
            Reactor::current().spawn(async move {
                volume.write_unless(block * BLOCK, &block_of(9, block).span(), abort).await.unwrap()
            })
        };
        let mut writes = Vec::new();
        for write in (0..40).map(write).collect::<Vec<_>>() {
            writes.push(write.await);
        }
        assert!(writes.contains(&Execution::Completed) && writes.contains(&Execution::Aborted));
        let buffer = block_of(5, 5);
        // The rate is used up by the writes, also by the aborted ones.
        let read = volume.read_unless(0, &buffer.span(), abort()).await.unwrap();
        assert_eq!(read, Execution::Aborted);
        assert!(buffer.as_slice() == content(5, 5, 4096), "an aborted read has data");
        pool.set_qos_limits("v", QosLimits::default()).await.unwrap();
        assert!(!volume.is_rate_limited());
        for (block, write) in (0..).zip(writes) {
            let buffer = block_of(5, 5);
            let (offset, abort) = (block * BLOCK, std::future::ready(()).boxed_local());
            let read = volume.read_unless(offset, &buffer.span(), abort).await.unwrap();
            assert_eq!(read, Execution::Completed, "nothing delays it");
            let expected = match write {
                Execution::Completed => content(9, block, 4096),
                Execution::Aborted => vec![0; 4096],
            };
            assert!(buffer.as_slice() == expected, "block {block}: {write:?}");
        }
    });
}

/// A write of whole sectors is atomic up to the size that the pool reports, also if it is not
/// aligned to blocks: a power cut at any drive operation leaves all of it or nothing.
#[test]
fn an_unaligned_write_is_atomic() {
    const OFFSET: u64 = 126_287 * 512;
    const LENGTH: usize = 64 << 10;
    let mut whole = [0, 0];
    for operations in 0..360 {
        let volatile = vec![operations % 2 == 0; 5];
        let machine = machine(&Setup { volatile, ..Setup::small("4+1", 5) }, 70 + operations);
        with_pool(&machine, async |pool| {
            pool.create_volume("v", 128 << 20, 512, 0).await.unwrap();
            let volume = pool.open_volume("v").await.unwrap().attach();
            volume.write(OFFSET, &Buffer::copy_of(&[1; LENGTH]).span()).await.unwrap();
            volume.flush().await.unwrap();
        });
        let this = machine.clone();
        machine.boot(async move || {
            let (pool, _) = this.open().await.unwrap();
            let volume = pool.open_volume("v").await.unwrap().attach();
            this.cut_after(operations / 3);
            volume.write(OFFSET, &Buffer::copy_of(&[2; LENGTH]).span()).await.unwrap();
            Reactor::current().sleep(Duration::from_secs(1)).await;
        });
        machine.cut_power();
        with_pool(&machine, async |pool| {
            assert!(pool.atomic_write_bytes() > LENGTH as u64);
            let volume = pool.open_volume("v").await.unwrap().attach();
            let buffer = Buffer::new(LENGTH);
            volume.read(OFFSET, &buffer.span()).await.unwrap();
            let first = buffer.as_slice()[0];
            assert!(
                buffer.as_slice().iter().all(|byte| *byte == first),
                "a torn write after {operations} operations"
            );
            whole[usize::from(first) - 1] += 1;
        });
    }
    assert!(whole[0] > 5 && whole[1] > 5, "{whole:?}: one of the outcomes is rare");
}

/// A read that hung on a drive before the drive was lost ends after the drive has returned. The
/// drive stays online.
#[test]
fn a_hung_read_from_before_the_return_does_not_fail_the_drive() {
    let machine = machine(&Setup::small("2+1", 3), 120);
    with_pool(&machine, async |pool| {
        let volume = Rc::new(fill(pool, "v", 256, 7).await);
        machine.disks[1].set_read_timeout(Some(20_000_000_000));
        let reads: Vec<_> = (0..64)
            .map(|block| {
                let volume = volume.clone();
                Reactor::current().spawn(async move {
                    let buffer = Buffer::new(4096);
                    volume.read(block * BLOCK, &buffer.span()).await.unwrap();
                    assert!(buffer.as_slice() == content(7, block, 4096), "block {block}");
                })
            })
            .collect();
        Reactor::current().sleep(Duration::from_secs(1)).await;
        machine.disks[1].set_read_timeout(None);
        pool.fail_drive(1).await.unwrap();
        machine.return_drive(pool, 1).await.unwrap();
        assert_eq!(state(&wait_for_repair(pool).await, 1), DriveState::Online);
        for read in reads {
            read.await;
        }
        Reactor::current().sleep(Duration::from_secs(1)).await;
        assert_eq!(
            state(&wait_for_repair(pool).await, 1),
            DriveState::Online,
            "a read from before the return failed the drive"
        );
    });
    check_findings(&machine.check().unwrap(), &[]).unwrap();
}

/// After a failed write has failed the pool, zeros over the same unwritten blocks are refused too.
/// The next opening may replay the write, which would replace the zeros.
#[test]
fn zeros_after_a_failed_write_are_not_acknowledged() {
    for seed in 0..40 {
        let machine = machine(&Setup { volatile: vec![false; 3], ..Setup::small("2+1", 3) }, 130 + seed);
        let zeroed = Cell::new(false);
        with_pool_until_power_cut(&machine, async |pool| {
            pool.create_volume("v", 1 << 20, 4096, 0).await.unwrap();
            let volume = Rc::new(pool.open_volume("v").await.unwrap().attach());
            let writer = volume.clone();
            let write =
                Reactor::current().spawn(async move { writer.write(0, &block_of(1, 0).span()).await });
            Reactor::current().sleep(Duration::from_micros(seed * 10)).await;
            [1, 2].into_iter().for_each(|drive| machine.disks[drive].set_dead(true));
            if write.await.is_err() {
                Reactor::current().sleep(Duration::from_secs(1)).await;
                let (zeros, discard) = (volume.write_zeroes(0, 4096).await, volume.discard(0, 4096).await);
                zeroed.set(zeros.is_ok() || discard.is_ok());
            }
        });
        assert!(!zeroed.get(), "seed {seed}");
    }
}
