//! Prepares the pool of a sweep, and runs the swept operation.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use engine::{Pool, QosLimits};
use reactor::{Buffer, Reactor};

use super::modelled_write::write;
use super::operation::{SECTOR, SIZE, parse_scheme};
use super::{ExpectedState, SweepOp, groups, membership, offloads};
use crate::model::{VolumeModel, content};
use crate::run::{BootEnd, Machine};

/// Creates a pool with a volume of known content, and leaves it as a crash does.
pub(super) fn prepare(
    operation: SweepOp,
    machine: &Machine,
    expected: &mut ExpectedState,
) -> Result<(), String> {
    let ExpectedState { model, snapshot, other, .. } = expected;
    let work = async || {
        machine.create().await?;
        let (pool, _) = machine.open().await?;
        pool.create_volume("v", operation.volume_bytes(), SECTOR, 0).await?;
        let volume = pool.open_volume("v").await?.attach();
        if operation == SweepOp::Clean {
            // Fills the pool, with garbage in every segment.
            for offset in (0..3 << 20).step_by(64 << 10) {
                write(&volume, model, 1, offset, 64 << 10).await?;
            }
            for offset in (0..3 << 20).step_by(16 << 10) {
                write(&volume, model, 2, offset, 4096).await?;
            }
        }
        if operation == SweepOp::Retire {
            // Enough data that the first drive holds some, and not only parity.
            for offset in (0..SIZE).step_by(128 << 10) {
                write(&volume, model, 2, offset, 128 << 10).await?;
            }
        }
        for (value, offset, length) in [
            (3, 0, 64 << 10),
            (4, 8192, 4096),
            (5, 300 << 10, 100 << 10),
            (6, 512, 512),
            (9, SIZE - 8192, 8192),
        ] {
            write(&volume, model, value, offset, length).await?;
        }
        volume.flush().await?;
        model.note_flush(100);
        pool.checkpoint().await?;
        if operation.has_snapshot() {
            pool.snapshot_volume("v@before", 0).await?;
            *snapshot = Some(model.clone());
        }
        for (value, offset, length) in [(7, 16 << 10, 8192), (8, 900 << 10, 20 << 10)] {
            write(&volume, model, value, offset, length).await?;
        }
        volume.flush().await?;
        model.note_flush(101);
        if matches!(operation, SweepOp::Snapshot | SweepOp::SnapshotGroup) {
            *snapshot = Some(model.clone());
        }
        if operation == SweepOp::SnapshotGroup {
            *other = Some(groups::prepare(&pool).await?);
        }
        Ok::<_, engine::Error>(())
    };
    match machine.boot(work) {
        BootEnd::Completed(result) => result.map_err(|error| format!("preparing: {error:?}"))?,
        BootEnd::PowerCut => return Err("preparing ran into a power cut".into()),
    }
    machine.kill_process();
    Ok(())
}

/// Runs the swept operation, followed by a flush.
pub(super) async fn perform(
    operation: SweepOp,
    machine: &Machine,
    pool: &Pool,
    expected: &mut ExpectedState,
) -> engine::Result<()> {
    let volume = pool.open_volume("v").await?.attach();
    let model = &mut expected.model;
    match operation {
        SweepOp::Open | SweepOp::Close => return Ok(()),
        SweepOp::WriteSmall => write(&volume, model, 60, 8192, 4096).await?,
        SweepOp::WriteLarge => write(&volume, model, 60, 4096, 600 << 10).await?,
        SweepOp::WritePart => write(&volume, model, 60, 8192 + 512, 1024).await?,
        SweepOp::Zero => {
            let token = model.begin_write(120, 1, 400, 0, false);
            let result = volume.write_zeroes(512, 400 * 512).await;
            model.end_write(token, 121, result.is_ok());
            result?;
        }
        SweepOp::Checkpoint => return pool.checkpoint().await,
        SweepOp::CreateVolume => return pool.create_volume("w", SIZE, 4096, 0).await,
        SweepOp::DeleteVolume => {
            drop(volume);
            return pool.delete_volume("v").await;
        }
        SweepOp::Clean => {
            for at in 0..128 {
                write(&volume, model, 60 + at, at * 37 % 768 * 4096, 4096).await?;
            }
            let moved = pool.status().await?.shards.iter().map(|shard| shard.log.moved_blocks).sum::<u64>();
            assert!(moved > 0, "no block was cleaned: the sweep tests nothing");
        }
        SweepOp::Resize => {
            drop(volume);
            return pool.resize_volume("v", 128 << 10, true).await;
        }
        SweepOp::LoseDrive => {
            if let Some(disk) = machine.disks.first() {
                disk.set_dead(true);
            }
            write(&volume, model, 60, 4096, 200 << 10).await?;
        }
        SweepOp::Snapshot => {
            pool.snapshot_volume("v@during", 0).await?;
            write(&volume, model, 60, 8192, 64 << 10).await?;
        }
        SweepOp::SnapshotGroup => groups::perform(pool, &volume, model, expected.other.as_mut()).await?,
        SweepOp::CompareAndWrite => {
            let result = offloads::compare_and_write(&volume, model, 60).await;
            offloads::check_unreadable(pool, result).await?;
        }
        SweepOp::Copy => {
            let result = offloads::copy(pool, &volume, model, 60).await;
            offloads::check_unreadable(pool, result).await?;
        }
        SweepOp::WriteOneSector => write(&volume, model, 60, 0, 512).await?,
        SweepOp::DeleteInUse => {
            drop(volume);
            return delete_in_use(pool, model).await;
        }
        SweepOp::DeleteSnapshot | SweepOp::MergeAtLimit | SweepOp::MergeAtLimitOnShards => {
            pool.delete_volume("v@before").await?;
            while pool.volumes().await?.len() > 1 && pool.status().await?.failure.is_none() {
                Reactor::current().sleep(Duration::from_micros(100)).await;
            }
            write(&volume, model, 60, 8192, 8192).await?;
            write(&volume, model, 61, SIZE - 4096, 4096).await?;
        }
        SweepOp::Clone => {
            pool.clone_volume("v@before", "w", 0).await?;
            let clone = pool.open_volume("w").await?.attach();
            let Some(model) = expected.snapshot.as_mut() else { return Ok(()) };
            write(&clone, model, 60, 8192, 64 << 10).await?;
            clone.flush().await?;
            model.note_flush(1000);
            return Ok(());
        }
        SweepOp::RollBack => {
            let snapshot = expected.snapshot.clone().unwrap_or_else(|| panic!("the snapshot exists"));
            expected.rollback = Some(snapshot.clone());
            pool.roll_back_volume("v@before", 0).await?;
            // From here on the content from before the rollback must not return, and flushed writes
            // must survive.
            expected.rollback = None;
            *model = snapshot;
            write(&volume, model, 60, 8192, 64 << 10).await?;
        }
        SweepOp::TakeDriveOut => {
            let pool = pool.clone();
            let taken = Reactor::current().spawn(async move { pool.fail_drive(0).await });
            for value in 60..66 {
                write(&volume, model, value, (value - 60) * 8192, 8192).await?;
                volume.flush().await?;
                model.note_flush(2 * value + 1);
            }
            taken.await?;
        }
        SweepOp::AddDrive
        | SweepOp::Evacuate
        | SweepOp::ReplaceDrive
        | SweepOp::ReturnDrive
        | SweepOp::Retire => {
            membership::perform(operation, machine, pool, &volume, model).await?;
        }
        SweepOp::Scrub => {
            damage_first_drive(machine);
            pool.start_scrub().await?;
            for value in 60..66 {
                write(&volume, model, value, (value - 60) * 8192, 8192).await?;
                volume.flush().await?;
                model.note_flush(2 * value + 1);
            }
            pool.scrub_settled().await?;
            pool.wait_for_repair().await?;
        }
        SweepOp::Rebuild => {
            pool.fail_drive(0).await?;
            write(&volume, model, 60, 4096, 200 << 10).await?;
            pool.wait_for_repair().await?;
        }
    }
    volume.flush().await?;
    model.note_flush(1000);
    Ok(())
}

/// Writers that open a volume which is being deleted.
const WRITERS: u64 = 8;

/// Deletes the volume while writers open it and wait for its QoS limit, and creates another volume,
/// which must stay empty.
async fn delete_in_use(pool: &Pool, model: &mut VolumeModel) -> engine::Result<()> {
    let limit = QosLimits { operations: 20, ..QosLimits::default() };
    pool.set_qos_limits("v", limit).await?;
    let deleted = Rc::new(Cell::new(false));
    let mut writers = Vec::new();
    for number in 0..WRITERS {
        // The outcome of this write is unknown.
        let _ = model.begin_write(120 + number, number * 8, 8, 60 + number, true);
        let (pool, deleted) = (pool.clone(), deleted.clone());
        writers.push(Reactor::current().spawn(async move {
            Reactor::current().sleep(Duration::from_micros(1 + 40 * number)).await;
            let Ok(volume) = pool.open_volume("v").await else { return };
            let cells = (number * 8..number * 8 + 8).flat_map(|cell| content(60 + number, cell, SECTOR));
            let data = Buffer::copy_of(&cells.collect::<Vec<u8>>());
            let written = volume.attach().write(number * 4096, &data.span()).await;
            assert!(
                written.is_err() || !deleted.get(),
                "a write was acknowledged after its volume's deletion"
            );
        }));
    }
    let result = pool.delete_volume("v").await;
    deleted.set(result.is_ok());
    if result.is_ok() {
        while !pool.volumes().await?.is_empty() && pool.status().await?.failure.is_none() {
            Reactor::current().sleep(Duration::from_micros(100)).await;
        }
        pool.create_volume("w", SIZE, SECTOR, 0).await?;
    }
    for writer in writers {
        writer.await;
    }
    result
}

/// Flips bits on the first drive and makes pages unreadable, unless the scheme has no parity.
fn damage_first_drive(machine: &Machine) {
    let Some(disk) = machine.disks.first().filter(|_| parse_scheme(machine.scheme()).parity() > 0) else {
        return;
    };
    // The superblocks take the first 4 MiB.
    for (at, page) in disk.pages().into_iter().filter(|page| *page >= 1024).enumerate() {
        match at % 8 {
            0 => _ = disk.flip_bit(page, at),
            3 => disk.mark_unreadable(page),
            _ => {}
        }
    }
}
