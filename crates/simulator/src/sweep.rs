//! The crash sweep: every operation, with the power cut at drive operation 1, 2, 3 ... until it gets through; the same with its first
//! write or flush failing, its second, its third; and with no space for files to grow from the first time on that it is asked for, from
//! the second, the third. And a pool with each page damaged on more drives than the scheme bears.
//!
//! Each point is tried with several outcomes of the cut (what the caches keep), on several schemes. (As SPDK's blobstore
//! tests do for its metadata; here the pool is verified and its data compared after every cut.)

mod damage;
mod failing;
mod fork;
mod full;
mod members;
mod operation;
mod perform;
mod verify;

use engine::{FoundOnDrive, Pool, PoolStatus, Tuning};
use format::DriveState;

pub use self::damage::{DamageCounts, sweep_damage};
pub use self::failing::sweep_failures;
pub use self::fork::sweep_forks;
pub use self::full::sweep_full_hosts;
pub use self::operation::{ALL, Swept};
use self::operation::{SECTOR, parsed};
use self::perform::{perform, prepare};
use self::verify::verify;
use crate::model::VolumeModel;
use crate::run::{Ended, Machine, Setup, judge};

/// What a sweep did.
#[derive(Clone, Copy, Debug, Default)]
pub struct Swath {
    /// Power cuts.
    pub cuts: u64,
    /// Writes and flushes that failed.
    pub failures: u64,
    /// Hosts that became full.
    pub full_hosts: u64,
}

impl Swath {
    /// Adds another one's.
    pub fn add(&mut self, other: &Self) {
        self.cuts += other.cuts;
        self.failures += other.failures;
        self.full_hosts += other.full_hosts;
    }
}

/// The pools that an operation is swept on, and how thoroughly.
#[derive(Clone, Copy, Debug)]
pub struct SweepOptions<'a> {
    /// Scheme, as k+m.
    pub scheme: &'a str,
    /// Drives, besides those that an operation needs to spare.
    pub drives: usize,
    /// No drive has a volatile cache: what is acknowledged is durable.
    pub write_through: bool,
    /// How often each cut or failure is tried, with different outcomes.
    pub outcomes: u64,
    /// Only every so many-th cut or failure is made.
    pub step: usize,
}

impl<'a> SweepOptions<'a> {
    /// Every cut or failure once, on drives with volatile caches.
    pub fn new(scheme: &'a str, drives: usize) -> Self {
        Self { scheme, drives, write_through: false, outcomes: 1, step: 1 }
    }

    fn machine(&self, operation: Swept, seed: u64) -> Machine {
        let setup = operation.setup(self.scheme, self.drives);
        let volatile = setup.volatile.iter().map(|volatile| *volatile && !self.write_through).collect();
        Machine::new(&Setup { volatile, ..setup }, seed)
    }

    fn parity(&self) -> usize {
        parsed(self.scheme).parity().into()
    }
}

impl std::fmt::Display for SweepOptions<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.scheme)?;
        if self.write_through { f.write_str(" without volatile caches") } else { Ok(()) }
    }
}

/// Sweeps one operation.
///
/// # Errors
/// What went wrong at which cut.
pub fn sweep(operation: Swept, options: &SweepOptions<'_>) -> Result<Swath, String> {
    let mut swath = Swath::default();
    for cut in (1..).step_by(options.step) {
        let mut through = false;
        for outcome in 0..options.outcomes {
            let at = |message| format!("{operation:?} on {options}, cut {cut}, outcome {outcome}: {message}");
            through = one_cut(operation, options, cut, outcome).map_err(at)?;
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
    /// What the volume may hold instead of `model`: set while a rollback has begun and is not acknowledged.
    rollback: Option<VolumeModel>,
    /// The operation was acknowledged as durable.
    done: bool,
}

impl Expected {
    fn of(operation: Swept, options: &SweepOptions<'_>) -> Self {
        let mut model = VolumeModel::new(operation.model_bytes(), SECTOR);
        // A drive that joins has a volatile cache.
        model.set_write_through(options.write_through && !operation.adds_a_drive());
        Self { model, snapshot: None, rollback: None, done: false }
    }
}

/// Does the operation, with a fuse that is lit when it begins.
fn operate(
    operation: Swept,
    machine: &Machine,
    expected: &mut Expected,
    light: impl Fn(),
) -> Ended<engine::Result<()>> {
    machine.boot(async || {
        if operation == Swept::Open {
            light();
        }
        let (pool, _) = machine.open().await?;
        if operation != Swept::Open {
            light();
        }
        perform(operation, machine, &pool, expected).await?;
        if operation == Swept::Close {
            return pool.close().await;
        }
        Ok(())
    })
}

/// Prepares a pool, cuts the power within the operation, and looks at what is left. True if the operation got through.
fn one_cut(operation: Swept, options: &SweepOptions<'_>, cut: u64, outcome: u64) -> Result<bool, String> {
    let machine = options.machine(operation, crate::random::mix(cut ^ outcome << 32));
    let mut expected = Expected::of(operation, options);
    prepare(operation, &machine, &mut expected)?;
    expected.done = match operate(operation, &machine, &mut expected, || machine.cut_after(cut)) {
        Ended::Done(Ok(())) => true,
        Ended::Done(Err(error)) => return Err(format!("the operation failed: {error:?}")),
        Ended::Cut => false,
    };
    machine.cut_power();
    retune(&machine, cut + outcome);
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
            .take(options.parity())
            .for_each(|absent| *absent = true);
    }
    if operation == Swept::Rebuild && (cut + outcome).is_multiple_of(2) && removed + 1 == machine.disks.len()
    {
        // So the pool bears a loss: at once, without any repair first.
        lose_another(&machine, &mut expected)?;
        return Ok(expected.done);
    }
    look(operation, &machine, &mut expected)?;
    if matches!(operation, Swept::Scrub | Swept::Rebuild) {
        check_drives(&machine, &[])?;
    }
    if operation == Swept::Rebuild {
        lose_another(&machine, &mut expected)?;
    }
    Ok(expected.done)
}

/// Has the pool opened with other settings than before, in two cases of three.
fn retune(machine: &Machine, choice: u64) {
    let tuning = machine.tuning();
    machine.set_tuning(match choice % 3 {
        0 => tuning,
        1 => Tuning { map_bytes: 0, records_in_flight: 1, checkpoint_bytes: 1 << 20, ..tuning },
        _ => Tuning { map_bytes: 64 << 20, records_in_flight: 32, checkpoint_bytes: 64 << 20, ..tuning },
    });
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
    look(Swept::LoseDrive, machine, expected)
        .map_err(|error| format!("after the loss of another drive: {error}"))
}

/// Opens the pool and looks at what is there.
fn look(operation: Swept, machine: &Machine, expected: &mut Expected) -> Result<(), String> {
    whole(machine.boot(async || verify(operation, machine, expected).await))
}

/// Opens the pool and lets repair come to its end, which `may_end` so.
fn settle(machine: &Machine, may_end: impl Fn(&PoolStatus) -> bool) -> Result<(), String> {
    whole(machine.boot(async || {
        let (pool, _) = machine.open().await.map_err(|error| format!("open: {error:?}"))?;
        let status = repaired(&pool).await?;
        if !may_end(&status) {
            return Err(format!("repair ends with {:?}", status.repair));
        }
        pool.close().await.map_err(|error| format!("close: {error:?}"))
    }))
}

/// The status when repair has come to its end.
async fn repaired(pool: &Pool) -> Result<PoolStatus, String> {
    pool.wait_for_repair().await.map_err(|error| format!("repair: {error:?}"))?;
    pool.status().await.map_err(|error| format!("status: {error:?}"))
}

/// The result of what nobody cut.
fn whole<T>(ended: Ended<Result<T, String>>) -> Result<T, String> {
    match ended {
        Ended::Done(result) => result,
        Ended::Cut => Err("a second cut".into()),
    }
}

/// The offline verifier finds nothing but what `bad` drives do not give.
fn check_drives(machine: &Machine, bad: &[usize]) -> Result<(), String> {
    judge(&machine.check().map_err(|error| format!("check: {error:?}"))?, bad)
}
