//! The crash sweep: every operation, with the power cut at drive operation 1, 2, 3 ... until it gets through; and the same with its first
//! write or flush failing, its second, its third.
//!
//! Each point is tried with several outcomes of the cut (what the caches keep), on several schemes. (As SPDK's blobstore
//! tests do for its metadata; here the pool is verified and its data compared after every cut.)

mod failing;
mod members;
mod operation;
mod perform;
mod verify;

use engine::{FoundOnDrive, Pool, PoolStatus};
use format::DriveState;

pub use self::failing::sweep_failures;
pub use self::operation::{ALL, Swept};
use self::operation::{SECTOR, parsed};
use self::perform::{perform, prepare};
use self::verify::verify;
use crate::model::VolumeModel;
use crate::run::{Ended, Machine, judge};

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

impl Expected {
    fn of(operation: Swept) -> Self {
        let model = VolumeModel::new(operation.volume_bytes(), SECTOR);
        Self { model, snapshot: None, done: false }
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
fn one_cut(operation: Swept, scheme: &str, drives: usize, cut: u64, outcome: u64) -> Result<bool, String> {
    let machine = Machine::new(&operation.setup(scheme, drives), crate::random::mix(cut ^ outcome << 32));
    let mut expected = Expected::of(operation);
    prepare(operation, &machine, &mut expected)?;
    expected.done = match operate(operation, &machine, &mut expected, || machine.cut_after(cut)) {
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
    look(operation, &machine, &mut expected)?;
    if matches!(operation, Swept::Scrub | Swept::Rebuild) {
        check_drives(&machine, &[])?;
    }
    if operation == Swept::Rebuild {
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
    pool.repair_settled().await.map_err(|error| format!("repair: {error:?}"))?;
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
