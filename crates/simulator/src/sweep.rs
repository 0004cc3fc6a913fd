//! The crash sweep. Each operation runs with the power cut at drive operation 1, 2, 3 ... until the
//! operation completes before the cut. It also runs with its first, second, third ... write or
//! flush failing, and with the host's file systems full from the first, second, third ...
//! reservation of space on. Separate sweeps damage each page of a pool on more drives than the
//! scheme tolerates, after a clean close and after a crash.
//!
//! Each point is tried with several outcomes of the cut (the surviving cache contents), on several
//! schemes. SPDK's blobstore tests sweep their metadata in this way. Here the pool is verified and
//! its data compared after every cut.

mod contents;
mod crash_damage;
mod damage;
mod forks;
mod full_hosts;
mod groups;
mod membership;
mod modelled_write;
mod offloads;
mod operation;
mod perform;
mod prepared;
mod verify;
mod write_errors;

use std::time::Duration;

use engine::{DriveContents, Pool, PoolStatus, RepairState, Tuning};
use format::DriveState;
use reactor::Reactor;

pub use self::crash_damage::sweep_crash_damage;
pub use self::damage::{DamageCounts, sweep_damage};
pub use self::forks::sweep_forks;
pub use self::full_hosts::sweep_full_hosts;
pub use self::operation::{ALL_OPERATIONS, SweepOp};
use self::operation::{SECTOR, parse_scheme};
use self::perform::perform;
use self::prepared::PreparedPools;
use self::verify::verify;
pub use self::write_errors::sweep_failures;
use crate::model::VolumeModel;
use crate::random::mix;
use crate::run::{BootEnd, Machine, Setup, check_findings};

/// Repair that waits for space has this many times this long until the cleaner has gained some.
const SPACE_ATTEMPTS: u32 = 100;
const SPACE_DELAY: Duration = Duration::from_millis(100);

/// The number of injected events of a sweep.
#[derive(Clone, Copy, Debug, Default)]
pub struct SweepCounts {
    /// Power cuts.
    pub cuts: u64,
    /// Writes and flushes that failed.
    pub failures: u64,
    /// Runs with a full host file system.
    pub full_hosts: u64,
}

impl SweepCounts {
    /// Adds the counts of another sweep.
    pub fn add(&mut self, other: &Self) {
        self.cuts += other.cuts;
        self.failures += other.failures;
        self.full_hosts += other.full_hosts;
    }
}

/// The pools that an operation is swept on, and the density of the sweep.
#[derive(Clone, Copy, Debug)]
pub struct SweepOptions<'a> {
    /// Scheme, as k+m.
    pub scheme: &'a str,
    /// Number of drives, without the extra drives that an operation needs.
    pub drives: usize,
    /// No drive has a volatile cache: acknowledged writes are durable.
    pub write_through: bool,
    /// Number of attempts for each cut or failure, with different outcomes.
    pub outcomes: u64,
    /// The first tested cut or failure, from 1.
    pub first: u64,
    /// Distance between tested cuts or failures; 1 tests all of them.
    pub step: usize,
}

impl<'a> SweepOptions<'a> {
    /// Creates options for one attempt at every cut or failure, on drives with volatile caches.
    pub fn new(scheme: &'a str, drives: usize) -> Self {
        Self { scheme, drives, write_through: false, outcomes: 1, first: 1, step: 1 }
    }

    fn machine(&self, operation: SweepOp, seed: u64) -> Machine {
        let setup = operation.setup(self.scheme, self.drives);
        let volatile = setup.volatile.iter().map(|volatile| *volatile && !self.write_through).collect();
        Machine::new(&Setup { volatile, ..setup }, seed)
    }

    fn parity(&self) -> usize {
        parse_scheme(self.scheme).parity().into()
    }
}

impl std::fmt::Display for SweepOptions<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.scheme)?;
        if self.write_through { f.write_str(" without volatile caches") } else { Ok(()) }
    }
}

/// Sweeps the power cut over one operation.
///
/// # Errors
/// Describes the failure and its cut.
pub fn sweep(operation: SweepOp, options: &SweepOptions<'_>) -> Result<SweepCounts, String> {
    let mut counts = SweepCounts::default();
    let mut pools = PreparedPools::new(operation, options);
    for cut in (options.first..).step_by(options.step) {
        let mut through = false;
        for outcome in 0..options.outcomes {
            let at = |message| format!("{operation:?} on {options}, cut {cut}, outcome {outcome}: {message}");
            through = one_cut(&mut pools, cut, outcome).map_err(at)?;
            counts.cuts += 1;
        }
        if through {
            break;
        }
    }
    Ok(counts)
}

/// The state that the model allows after the cut.
#[derive(Clone)]
struct ExpectedState {
    /// The volume's content before the operation and, once it has begun, after it.
    model: VolumeModel,
    /// The content of the snapshot or of its clone.
    snapshot: Option<VolumeModel>,
    /// The second volume of a group of snapshots.
    other: Option<groups::OtherVolume>,
    /// Alternative content of the volume, set while a rollback has begun and is not acknowledged.
    rollback: Option<VolumeModel>,
    /// The operation was acknowledged as durable.
    done: bool,
}

impl ExpectedState {
    fn of(operation: SweepOp, options: &SweepOptions<'_>) -> Self {
        let mut model = VolumeModel::new(operation.model_bytes(), SECTOR);
        // A drive that joins has a volatile cache.
        model.set_write_through(options.write_through && !operation.adds_a_drive());
        Self { model, snapshot: None, other: None, rollback: None, done: false }
    }
}

/// Runs the operation. Calls `arm` when it begins, to arm the fault trigger.
fn run_operation(
    operation: SweepOp,
    machine: &Machine,
    expected: &mut ExpectedState,
    arm: impl Fn(),
) -> BootEnd<engine::Result<()>> {
    machine.boot(async || {
        if operation == SweepOp::Open {
            arm();
        }
        let (pool, _) = machine.open().await?;
        if operation != SweepOp::Open {
            arm();
        }
        perform(operation, machine, &pool, expected).await?;
        if operation == SweepOp::Close {
            return pool.close().await;
        }
        Ok(())
    })
}

/// Copies a prepared pool, cuts the power during the operation, and verifies the remaining state.
/// Returns true if the operation completed.
fn one_cut(pools: &mut PreparedPools<'_>, cut: u64, outcome: u64) -> Result<bool, String> {
    let (operation, options) = (pools.operation, pools.options);
    let (machine, mut expected) = pools.copy_for(cut, mix(cut ^ outcome << 32))?;
    expected.done = match run_operation(operation, &machine, &mut expected, || machine.cut_after(cut)) {
        BootEnd::Completed(Ok(())) => true,
        BootEnd::Completed(Err(error)) => return Err(format!("the operation failed: {error:?}")),
        BootEnd::PowerCut => false,
    };
    machine.cut_power();
    change_tuning(&machine, cut + outcome);
    let report = machine.check().map_err(|error| format!("check: {error:?}"))?;
    check_findings(&report, operation.bad_drives())?;
    if operation.changes_drives() {
        membership::after_cut(operation, &machine, &mut expected, cut + outcome)?;
        return Ok(expected.done);
    }
    let removed = count_removal_records(&machine);
    if operation == SweepOp::TakeDriveOut && report.missing.is_empty() && removed == 0 {
        // No superblock records that the first drive missed writes.
        machine
            .absent
            .borrow_mut()
            .iter_mut()
            .skip(1)
            .take(options.parity())
            .for_each(|absent| *absent = true);
    }
    if operation == SweepOp::Rebuild
        && (cut + outcome).is_multiple_of(2)
        && removed + 1 == machine.disks.len()
    {
        // The pool tolerates another loss now, without prior repair.
        lose_second_drive(&machine, &mut expected)?;
        return Ok(expected.done);
    }
    open_and_verify(operation, &machine, &mut expected)?;
    if matches!(operation, SweepOp::Scrub | SweepOp::Rebuild) {
        check_drives(&machine, &[])?;
    }
    if operation == SweepOp::Rebuild {
        lose_second_drive(&machine, &mut expected)?;
    }
    Ok(expected.done)
}

/// Changes the engine settings of the next opening, in two cases out of three.
fn change_tuning(machine: &Machine, choice: u64) {
    let tuning = machine.tuning();
    machine.set_tuning(match choice % 3 {
        0 => tuning,
        1 => Tuning { map_bytes: 0, records_in_flight: 1, checkpoint_bytes: 1 << 20, ..tuning },
        _ => Tuning { map_bytes: 64 << 20, records_in_flight: 32, checkpoint_bytes: 64 << 20, ..tuning },
    });
}

/// Counts the remaining drives with a superblock that lists the first drive as removed.
fn count_removal_records(machine: &Machine) -> usize {
    let read_superblocks = async || {
        let mut count = 0;
        for disk in machine.disks.iter().skip(1) {
            let DriveContents::Pool(pool) = engine::identify(&*disk.source()).await else { continue };
            count +=
                usize::from(pool.members.first().is_some_and(|first| first.state == DriveState::Removed));
        }
        count
    };
    match machine.boot(read_superblocks) {
        BootEnd::Completed(count) => count,
        BootEnd::PowerCut => 0,
    }
}

/// Checks that the pool tolerates the loss of another drive after a rebuild.
fn lose_second_drive(machine: &Machine, expected: &mut ExpectedState) -> Result<(), String> {
    if let Some(disk) = machine.disks.get(1) {
        disk.set_dead(true);
    }
    open_and_verify(SweepOp::LoseDrive, machine, expected)
        .map_err(|error| format!("after the loss of another drive: {error}"))
}

/// Opens the pool and verifies its content.
fn open_and_verify(
    operation: SweepOp,
    machine: &Machine,
    expected: &mut ExpectedState,
) -> Result<(), String> {
    completed(machine.boot(async || verify(operation, machine, expected).await))
}

/// Opens the pool and waits for repair to end. `may_end` decides whether the final status is
/// allowed.
fn finish_repair(machine: &Machine, may_end: impl Fn(&PoolStatus) -> bool) -> Result<(), String> {
    completed(machine.boot(async || {
        let (pool, _) = machine.open().await.map_err(|error| format!("open: {error:?}"))?;
        let mut status = wait_for_repair(&pool).await?;
        // Repair continues by itself when the cleaner has gained space.
        for _ in 0..SPACE_ATTEMPTS {
            if may_end(&status) || status.repair.state != RepairState::NeedsSpace {
                break;
            }
            Reactor::current().sleep(SPACE_DELAY).await;
            status = wait_for_repair(&pool).await?;
        }
        if !may_end(&status) {
            return Err(format!("repair ended with {:?}", status.repair));
        }
        pool.close().await.map_err(|error| format!("close: {error:?}"))
    }))
}

/// Waits for repair to end and returns the status.
async fn wait_for_repair(pool: &Pool) -> Result<PoolStatus, String> {
    pool.wait_for_repair().await.map_err(|error| format!("repair: {error:?}"))?;
    pool.status().await.map_err(|error| format!("status: {error:?}"))
}

/// Returns the result of a boot during which no power cut is allowed.
fn completed<T>(ended: BootEnd<Result<T, String>>) -> Result<T, String> {
    match ended {
        BootEnd::Completed(result) => result,
        BootEnd::PowerCut => Err("unexpected power cut".into()),
    }
}

/// Checks that the offline verifier finds no errors except damage on the `bad` drives.
fn check_drives(machine: &Machine, bad: &[usize]) -> Result<(), String> {
    check_findings(&machine.check().map_err(|error| format!("check: {error:?}"))?, bad)
}
