//! The crash sweep: every operation, with the power cut at drive operation 1, 2, 3 ... until it gets through; and the same with its first
//! write or flush failing, its second, its third.
//!
//! Each point is tried with several outcomes of the cut (what the caches keep), on several schemes. (As SPDK's blobstore
//! tests do for its metadata; here the pool is verified and its data compared after every cut.)

mod failing;
mod members;

use std::time::Duration;

use engine::{AttachedVolume, FoundOnDrive, Pool, RepairState};
use format::DriveState;
use reactor::{Buffer, Reactor};

pub use self::failing::sweep_failures;
use crate::model::{VolumeModel, content};
use crate::run::{Ended, Machine, Setup, judge};

/// An operation that is swept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Swept {
    /// Opening the pool after a crash.
    Open,
    /// A small write, flushed.
    WriteSmall,
    /// A write of many blocks, flushed.
    WriteLarge,
    /// A write of less than a block, flushed.
    WritePart,
    /// Zeroing a range, flushed.
    Zero,
    /// A checkpoint.
    Checkpoint,
    /// Creating a volume.
    CreateVolume,
    /// Deleting one that holds data.
    DeleteVolume,
    /// Making one smaller.
    Resize,
    /// Losing a drive while writing.
    LoseDrive,
    /// Taking a drive out while writing and flushing: whichever drives the superblocks call in use after the cut must do, without
    /// as many of the others as the scheme bears.
    TakeDriveOut,
    /// Losing a drive, and writing what it held to others.
    Rebuild,
    /// Adding a drive, and writing on.
    AddDrive,
    /// Having a drive emptied, and writing on.
    Evacuate,
    /// Adding a drive and having another one emptied, and writing on.
    ReplaceDrive,
    /// Losing a drive, writing on, and taking it back.
    ReturnDrive,
    /// Reading a drive that errs in many places, which is emptied for that, and writing on.
    Retire,
    /// Reading everything and writing anew what is damaged, and writing on.
    Scrub,
    /// Overwriting in a pool so full that the cleaner works.
    Clean,
    /// Taking a snapshot, and writing on.
    Snapshot,
    /// Deleting a snapshot that lies below its volume: its blocks go over.
    DeleteSnapshot,
    /// Making a volume from a snapshot, and writing to it.
    Clone,
    /// Rolling a volume back to its snapshot, and writing on.
    RollBack,
    /// Closing the pool.
    Close,
}

/// All of them.
pub const ALL: [Swept; 24] = [
    Swept::Open,
    Swept::WriteSmall,
    Swept::WriteLarge,
    Swept::WritePart,
    Swept::Zero,
    Swept::Checkpoint,
    Swept::CreateVolume,
    Swept::DeleteVolume,
    Swept::Resize,
    Swept::LoseDrive,
    Swept::TakeDriveOut,
    Swept::Rebuild,
    Swept::AddDrive,
    Swept::Evacuate,
    Swept::ReplaceDrive,
    Swept::ReturnDrive,
    Swept::Retire,
    Swept::Scrub,
    Swept::Clean,
    Swept::Snapshot,
    Swept::DeleteSnapshot,
    Swept::Clone,
    Swept::RollBack,
    Swept::Close,
];

impl Swept {
    /// True if a scheme bears what it does.
    pub fn fits(self, scheme: &str) -> bool {
        let needs_parity = matches!(
            self,
            Self::LoseDrive | Self::TakeDriveOut | Self::Rebuild | Self::ReturnDrive | Self::Retire
        );
        !needs_parity || parsed(scheme).parity() > 0
    }

    /// Bytes of the volume that it works on.
    const fn volume_bytes(self) -> u64 {
        match self {
            Self::Clean => 3 << 20,
            _ => SIZE,
        }
    }

    /// True if there is a snapshot of the volume, older than its last writes.
    const fn has_snapshot(self) -> bool {
        matches!(self, Self::DeleteSnapshot | Self::Clone | Self::RollBack)
    }

    /// True if drives join or leave.
    pub(crate) const fn changes_drives(self) -> bool {
        matches!(
            self,
            Self::AddDrive | Self::Evacuate | Self::ReplaceDrive | Self::ReturnDrive | Self::Retire
        )
    }

    /// True if a drive is lost, or is no better than that for a while.
    const fn loses_a_drive(self) -> bool {
        matches!(
            self,
            Self::LoseDrive
                | Self::TakeDriveOut
                | Self::Rebuild
                | Self::ReturnDrive
                | Self::Retire
                | Self::Scrub
        )
    }

    /// Drives that do not give what they hold.
    const fn bad_drives(self) -> &'static [usize] {
        if matches!(self, Self::Retire | Self::Scrub) { &[0] } else { &[] }
    }

    /// The pool that it works on.
    fn setup(self, scheme: &str, drives: usize) -> Setup {
        // There must be a drive to write to.
        let needs_another = matches!(self, Self::Rebuild | Self::Evacuate | Self::Retire);
        let spare = usize::from(needs_another && drives == usize::from(parsed(scheme).width()));
        let drives = drives + spare;
        let joins = matches!(self, Self::AddDrive | Self::ReplaceDrive);
        let spares = if joins { vec![24 << 20] } else { Vec::new() };
        let mut setup = Setup { spares, ..Setup::small(scheme, drives) };
        if self == Self::Retire {
            setup.tuning.retire_after = 1;
        }
        if self != Self::Clean {
            return setup;
        }
        // So few segments that the volume leaves little room: the reserve, and what it fills to three quarters. And no drive to spare:
        // for the loss of one, more would be kept back.
        let (data, width) = (u64::from(parsed(scheme).data()), usize::from(parsed(scheme).width()));
        let zone_bytes = if data == 1 { 128 << 10 } else { 64 << 10 };
        let segments = 20 + (72 << 16) / (data * zone_bytes);
        let size = (4 << 20) + (segments + 1) * zone_bytes;
        Setup { drives: vec![size; width], volatile: vec![true; width], zone_bytes, ..setup }
    }
}

fn parsed(scheme: &str) -> format::Scheme {
    scheme.parse().unwrap_or_else(|error| panic!("{scheme}: {error}"))
}

const SIZE: u64 = 1 << 20;
const SECTOR: u32 = 512;

/// What a sweep did.
#[derive(Clone, Copy, Debug, Default)]
pub struct Swath {
    /// Power cuts.
    pub cuts: u64,
    /// Writes and flushes that failed.
    pub failures: u64,
}

/// Sweeps one operation on one scheme. `outcomes` is how often each cut is tried; only every `step`th cut is made.
///
/// # Errors
/// What went wrong at which cut.
pub fn sweep(
    operation: Swept,
    scheme: &str,
    drives: usize,
    outcomes: u64,
    step: usize,
) -> Result<Swath, String> {
    let mut swath = Swath::default();
    for cut in (1..).step_by(step) {
        let mut through = false;
        for outcome in 0..outcomes {
            let at = |message| format!("{operation:?} on {scheme}, cut {cut}, outcome {outcome}: {message}");
            through = one_cut(operation, scheme, drives, cut, outcome).map_err(at)?;
            swath.cuts += 1;
        }
        if through {
            break;
        }
    }
    Ok(swath)
}

/// The state that the model allows after the cut.
struct Expected {
    /// The volume's content, before and, once it was begun, after the operation.
    model: VolumeModel,
    /// What the snapshot holds, or the clone of it.
    snapshot: Option<VolumeModel>,
    /// The operation was acknowledged as durable.
    done: bool,
}

/// Prepares a pool, cuts the power within the operation, and looks at what is left. True if the operation got through.
fn one_cut(operation: Swept, scheme: &str, drives: usize, cut: u64, outcome: u64) -> Result<bool, String> {
    let machine = Machine::new(&operation.setup(scheme, drives), crate::random::mix(cut ^ outcome << 32));
    let model = VolumeModel::new(operation.volume_bytes(), SECTOR);
    let mut expected = Expected { model, snapshot: None, done: false };
    prepare(operation, &machine, &mut expected)?;
    let ended = machine.boot(async || {
        if operation == Swept::Open {
            machine.cut_after(cut);
        }
        let (pool, _) = machine.open().await?;
        if operation != Swept::Open {
            machine.cut_after(cut);
        }
        perform(operation, &machine, &pool, &mut expected).await?;
        if operation == Swept::Close {
            return pool.close().await;
        }
        Ok(())
    });
    expected.done = match ended {
        Ended::Done(Ok(())) => true,
        Ended::Done(Err(error)) => return Err(format!("the operation failed: {error:?}")),
        Ended::Cut => false,
    };
    machine.cut_power();
    let report = machine.check().map_err(|error| format!("check: {error:?}"))?;
    judge(&report, operation.bad_drives())?;
    if operation.changes_drives() {
        members::after_cut(operation, &machine, &mut expected, cut + outcome)?;
        return Ok(expected.done);
    }
    let removed = saying_removed(&machine);
    if operation == Swept::TakeDriveOut && report.missing.is_empty() && removed == 0 {
        // Nothing says that the first drive missed anything.
        machine
            .absent
            .borrow_mut()
            .iter_mut()
            .skip(1)
            .take(usize::from(parsed(scheme).parity()))
            .for_each(|absent| *absent = true);
    }
    if operation == Swept::Rebuild && (cut + outcome).is_multiple_of(2) && removed + 1 == machine.disks.len()
    {
        // So the pool bears a loss: at once, without any repair first.
        lose_another(&machine, &mut expected)?;
        return Ok(expected.done);
    }
    match machine.boot(async || verify(operation, &machine, &mut expected).await) {
        Ended::Done(result) => result?,
        Ended::Cut => return Err("a second cut".into()),
    }
    if operation == Swept::Scrub {
        let report = machine.check().map_err(|error| format!("check after the scrub: {error:?}"))?;
        judge(&report, &[])?;
    }
    if operation == Swept::Rebuild {
        let report = machine.check().map_err(|error| format!("check after the rebuild: {error:?}"))?;
        judge(&report, &[])?;
        lose_another(&machine, &mut expected)?;
    }
    Ok(expected.done)
}

/// How many of the drives that are left say that the first one belongs to the pool no more.
fn saying_removed(machine: &Machine) -> usize {
    let look = async || {
        let mut say = 0;
        for disk in machine.disks.iter().skip(1) {
            let FoundOnDrive::Pool(pool) = engine::identify(&*disk.source()).await else { continue };
            say += usize::from(pool.members.first().is_some_and(|first| first.state == DriveState::Removed));
        }
        say
    };
    match machine.boot(look) {
        Ended::Done(say) => say,
        Ended::Cut => 0,
    }
}

/// After a rebuild the pool bears the loss of another drive.
fn lose_another(machine: &Machine, expected: &mut Expected) -> Result<(), String> {
    if let Some(disk) = machine.disks.get(1) {
        disk.set_dead(true);
    }
    match machine.boot(async || verify(Swept::LoseDrive, machine, expected).await) {
        Ended::Done(result) => result.map_err(|error| format!("after the loss of another drive: {error}")),
        Ended::Cut => Err("a third cut".into()),
    }
}

/// A pool with a volume of known content, left as a crash leaves it.
fn prepare(operation: Swept, machine: &Machine, expected: &mut Expected) -> Result<(), String> {
    let Expected { model, snapshot, .. } = expected;
    let work = async || {
        machine.create().await?;
        let (pool, _) = machine.open().await?;
        pool.create_volume("v", operation.volume_bytes(), SECTOR, 0).await?;
        let volume = pool.open_volume("v").await?.attach();
        if operation == Swept::Clean {
            // Full, with garbage everywhere.
            for offset in (0..3 << 20).step_by(64 << 10) {
                write(&volume, model, 1, offset, 64 << 10).await?;
            }
            for offset in (0..3 << 20).step_by(16 << 10) {
                write(&volume, model, 2, offset, 4096).await?;
            }
        }
        if operation == Swept::Retire {
            // So much that the first drive holds some of it, and not only parity.
            for offset in (0..SIZE).step_by(128 << 10) {
                write(&volume, model, 2, offset, 128 << 10).await?;
            }
        }
        for (value, offset, length) in
            [(3, 0, 64 << 10), (4, 8192, 4096), (5, 300 << 10, 100 << 10), (6, 512, 512)]
        {
            write(&volume, model, value, offset, length).await?;
        }
        volume.flush().await?;
        model.flushed(100);
        pool.checkpoint().await?;
        if operation.has_snapshot() {
            pool.snapshot_volume("v@before", 0).await?;
            *snapshot = Some(model.clone());
        }
        for (value, offset, length) in [(7, 16 << 10, 8192), (8, 900 << 10, 20 << 10)] {
            write(&volume, model, value, offset, length).await?;
        }
        volume.flush().await?;
        model.flushed(101);
        if operation == Swept::Snapshot {
            *snapshot = Some(model.clone());
        }
        Ok::<_, engine::Error>(())
    };
    match machine.boot(work) {
        Ended::Done(result) => result.map_err(|error| format!("preparing: {error:?}"))?,
        Ended::Cut => return Err("preparing ran into a power cut".into()),
    }
    machine.kill();
    Ok(())
}

/// Writes `value` at its own moment: values double as the model's clock.
async fn write(
    volume: &AttachedVolume,
    model: &mut VolumeModel,
    value: u64,
    offset: u64,
    length: u64,
) -> engine::Result<()> {
    let (first, count) = (offset / u64::from(SECTOR), length / u64::from(SECTOR));
    let token =
        model.begin_write(2 * value, first, count, value, offset.is_multiple_of(4096) && length <= 64 << 10);
    let bytes: Vec<u8> = (first..first + count).flat_map(|cell| content(value, cell, SECTOR)).collect();
    let result = volume.write(offset, &Buffer::copy_of(&bytes).span()).await;
    model.end_write(token, 2 * value + 1, result.is_ok());
    result
}

/// The operation that is swept; what it acknowledges is flushed.
async fn perform(
    operation: Swept,
    machine: &Machine,
    pool: &Pool,
    expected: &mut Expected,
) -> engine::Result<()> {
    let volume = pool.open_volume("v").await?.attach();
    let model = &mut expected.model;
    match operation {
        Swept::Open | Swept::Close => return Ok(()),
        Swept::WriteSmall => write(&volume, model, 60, 8192, 4096).await?,
        Swept::WriteLarge => write(&volume, model, 60, 4096, 600 << 10).await?,
        Swept::WritePart => write(&volume, model, 60, 8192 + 512, 1024).await?,
        Swept::Zero => {
            let token = model.begin_write(120, 1, 400, 0, false);
            let result = volume.write_zeroes(512, 400 * 512).await;
            model.end_write(token, 121, result.is_ok());
            result?;
        }
        Swept::Checkpoint => return pool.checkpoint().await,
        Swept::CreateVolume => return pool.create_volume("w", SIZE, 4096, 0).await,
        Swept::DeleteVolume => {
            drop(volume);
            return pool.delete_volume("v").await;
        }
        Swept::Clean => {
            for at in 0..128 {
                write(&volume, model, 60 + at, at * 37 % 768 * 4096, 4096).await?;
            }
            let moved = pool.status().await?.shards.iter().map(|shard| shard.log.moved_blocks).sum::<u64>();
            assert!(moved > 0, "nothing was cleaned: the sweep means nothing");
        }
        Swept::Resize => {
            drop(volume);
            return pool.resize_volume("v", 128 << 10, true).await;
        }
        Swept::LoseDrive => {
            if let Some(disk) = machine.disks.first() {
                disk.set_dead(true);
            }
            write(&volume, model, 60, 4096, 200 << 10).await?;
        }
        Swept::Snapshot => {
            pool.snapshot_volume("v@during", 0).await?;
            write(&volume, model, 60, 8192, 64 << 10).await?;
        }
        Swept::DeleteSnapshot => {
            pool.delete_volume("v@before").await?;
            while pool.volumes().await?.len() > 1 && pool.status().await?.failure.is_none() {
                Reactor::current().sleep(Duration::from_micros(100)).await;
            }
            write(&volume, model, 60, 8192, 8192).await?;
        }
        Swept::Clone => {
            pool.clone_volume("v@before", "w", 0).await?;
            let clone = pool.open_volume("w").await?.attach();
            let Some(model) = expected.snapshot.as_mut() else { return Ok(()) };
            write(&clone, model, 60, 8192, 64 << 10).await?;
            clone.flush().await?;
            model.flushed(1000);
            return Ok(());
        }
        Swept::RollBack => {
            pool.roll_back_volume("v@before", 0).await?;
            *model = expected.snapshot.clone().unwrap_or_else(|| panic!("there is a snapshot"));
            write(&volume, model, 60, 8192, 64 << 10).await?;
        }
        Swept::TakeDriveOut => {
            let pool = pool.clone();
            let taken = Reactor::current().spawn(async move { pool.fail_drive(0).await });
            for value in 60..66 {
                write(&volume, model, value, (value - 60) * 8192, 8192).await?;
                volume.flush().await?;
                model.flushed(2 * value + 1);
            }
            taken.await?;
        }
        Swept::AddDrive | Swept::Evacuate | Swept::ReplaceDrive | Swept::ReturnDrive | Swept::Retire => {
            members::perform(operation, machine, pool, &volume, model).await?;
        }
        Swept::Scrub => {
            damage_first_drive(machine);
            pool.start_scrub().await?;
            for value in 60..66 {
                write(&volume, model, value, (value - 60) * 8192, 8192).await?;
                volume.flush().await?;
                model.flushed(2 * value + 1);
            }
            pool.scrub_settled().await?;
            pool.repair_settled().await?;
        }
        Swept::Rebuild => {
            pool.fail_drive(0).await?;
            write(&volume, model, 60, 4096, 200 << 10).await?;
            pool.repair_settled().await?;
        }
    }
    volume.flush().await?;
    model.flushed(1000);
    Ok(())
}

/// All of a volume or snapshot.
async fn read_all(pool: &Pool, name: &str) -> Result<Vec<u8>, String> {
    let volume = pool.open_volume(name).await.map_err(|error| format!("open {name}: {error:?}"))?.attach();
    let buffer = Buffer::new(usize::try_from(volume.size()).unwrap_or(0));
    volume.read(0, &buffer.span()).await.map_err(|error| format!("read {name}: {error:?}"))?;
    Ok(buffer.as_slice().to_vec())
}

/// Compares snapshots and clones that may be there with what they hold.
async fn verify_snapshots(
    operation: Swept,
    pool: &Pool,
    volumes: &[engine::VolumeInfo],
    expected: &mut Expected,
) -> Result<(), String> {
    let is_there = |name: &str| volumes.iter().any(|info| info.name == name && !info.deleting);
    let (done, must_be, may_be) = match operation {
        Swept::Snapshot => (expected.done, "v@during", true),
        Swept::Clone => (expected.done, "w", true),
        Swept::DeleteSnapshot => (false, "v@before", !expected.done),
        Swept::RollBack => (true, "v@before", true),
        _ => return Ok(()),
    };
    match (is_there(must_be), done, may_be) {
        (false, true, _) => return Err(format!("{must_be} is gone")),
        (true, _, false) => return Err(format!("{must_be} was deleted and is there")),
        (false, ..) => return Ok(()),
        (true, ..) => {}
    }
    let bytes = read_all(pool, must_be).await?;
    let held = expected.snapshot.as_mut().map(|model| model.adopt_after_crash(&bytes));
    held.unwrap_or(Ok(())).map_err(|error| format!("{must_be}: {error}"))
}

/// Opens the pool again and compares it with what may be there.
async fn verify(operation: Swept, machine: &Machine, expected: &mut Expected) -> Result<(), String> {
    let (pool, _) = machine.open().await.map_err(|error| format!("open: {error:?}"))?;
    let volumes = pool.volumes().await.map_err(|error| format!("list: {error:?}"))?;
    let find = |name: &str| volumes.iter().find(|info| info.name == name && !info.deleting);
    if operation == Swept::CreateVolume && expected.done && find("w").is_none() {
        return Err("a volume that was created is gone".into());
    }
    let Some(info) = find("v") else {
        return if operation == Swept::DeleteVolume { Ok(()) } else { Err("the volume is gone".into()) };
    };
    if operation == Swept::DeleteVolume && expected.done {
        return Err("a volume that was deleted is there".into());
    }
    match (operation, info.size) {
        (Swept::Resize, size) if size == SIZE && !expected.done => {}
        (Swept::Resize, size) if size == 128 << 10 => expected.model.resize(size),
        (_, size) if operation != Swept::Resize && size == operation.volume_bytes() => {}
        (_, size) => return Err(format!("the volume has {size} bytes")),
    }
    let bytes = read_all(&pool, "v").await?;
    let held = expected.model.adopt_after_crash(&bytes);
    match &mut expected.snapshot {
        // Rolled back already, or still.
        Some(snapshot) if operation == Swept::RollBack && held.is_err() => {
            snapshot.clone().adopt_after_crash(&bytes)?
        }
        _ => held?,
    }
    verify_snapshots(operation, &pool, &volumes, expected).await?;
    if operation == Swept::Rebuild {
        check_rebuilt(&pool, expected.done).await?;
    }
    if operation == Swept::Scrub {
        check_scrubbed(&pool, expected.done).await?;
    }
    pool.close().await.map_err(|error| format!("close: {error:?}"))
}

/// Flips bits on the first drive, and takes pages away, unless nothing gives them back.
fn damage_first_drive(machine: &Machine) {
    let Some(disk) = machine.disks.first().filter(|_| parsed(machine.scheme()).parity() > 0) else { return };
    // The superblocks lie in the first four MiB.
    for (at, page) in disk.pages().into_iter().filter(|page| *page >= 1024).enumerate() {
        match at % 8 {
            0 => _ = disk.flip(page, at),
            3 => disk.spoil(page),
            _ => {}
        }
    }
}

/// A scrub that was cut goes on; one that had ended has left nothing to be found. Afterwards nothing is damaged.
async fn check_scrubbed(pool: &Pool, done: bool) -> Result<(), String> {
    let error = |what: &str, error: engine::Error| format!("{what}: {error:?}");
    pool.scrub_settled().await.map_err(|is| error("scrub", is))?;
    if !done {
        pool.start_scrub().await.map_err(|is| error("scrub", is))?;
        pool.scrub_settled().await.map_err(|is| error("scrub", is))?;
    }
    pool.repair_settled().await.map_err(|is| error("repair", is))?;
    let scrub = pool.status().await.map_err(|is| error("status", is))?.scrub;
    if scrub.running || scrub.unhealed > 0 || scrub.last.lost > 0 {
        return Err(format!("after a scrub: {scrub:?}"));
    }
    Ok(())
}

/// What a rebuild had not come to is done when the pool is opened again, and then the lost drive belongs to it no more.
async fn check_rebuilt(pool: &Pool, done: bool) -> Result<(), String> {
    pool.repair_settled().await.map_err(|error| format!("repair: {error:?}"))?;
    let status = pool.status().await.map_err(|error| format!("status: {error:?}"))?;
    let lost = status.drives.first().map(|drive| drive.state);
    // It may have been cut before anybody knew that the drive was lost.
    let known = done || lost != Some(DriveState::Online);
    if status.repair.state != RepairState::Whole || known && lost != Some(DriveState::Removed) {
        return Err(format!("the lost drive is {lost:?}, repair {:?}", status.repair));
    }
    Ok(())
}
