//! Making a lab.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use reactor::Access;
use rustix::fs::FallocateFlags;
use rustix::mount::MountFlags;
use serde::{Deserialize, Serialize};

use super::model::{Fraction, model, models};
use super::record::{Lab, LabDrive, home};
use super::throttle::Throttle;
use super::{LabError, down, loops, mounts, must_be_root};

/// Smallest drive that a pool takes, with room to spare.
const DRIVE_MIN: u64 = 64 << 20;
/// Most drives: as many as a pool has.
const DRIVES_MAX: u16 = 256;

/// What a lab is to be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LabPlan {
    /// Its name.
    pub name: String,
    /// How many drives.
    pub drives: u16,
    /// The drive that is imitated.
    pub model: String,
    /// How much of one.
    pub fraction: Fraction,
    /// Bytes of each drive.
    pub drive_bytes: u64,
    /// A directory on a disk for the files; in memory without one.
    pub directory: Option<PathBuf>,
}

/// Makes a lab; until `stop` is set.
///
/// # Errors
/// Why it could not be made; nothing is left behind then.
pub fn up(plan: &LabPlan, stop: &AtomicBool) -> Result<Lab, LabError> {
    must_be_root()?;
    let mut lab = check(plan)?;
    // From here on there is something to take away, and the record says what.
    let made = lab.save().and_then(|()| make(plan, &mut lab, stop));
    match made {
        Ok(()) => Ok(lab),
        Err(error) => {
            down::take_away(&lab)?;
            Err(error)
        }
    }
}

/// Everything that can be known to be wrong beforehand.
fn check(plan: &LabPlan) -> Result<Lab, LabError> {
    let name = &plan.name;
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    if name.is_empty() || name.len() > 32 || !name.bytes().all(plain) {
        return Err(LabError::Name(name.clone()));
    }
    if Lab::find(name)?.is_some() {
        return Err(LabError::Exists(name.clone()));
    }
    let Some(model) = model(&plan.model) else {
        let known: Vec<String> = models().into_iter().map(|model| model.name).collect();
        return Err(LabError::Model { name: plan.model.clone(), known: known.join(", ") });
    };
    if plan.drives == 0 || plan.drives > DRIVES_MAX {
        return Err(LabError::Plan(format!("a lab has 1 to {DRIVES_MAX} drives, not {}", plan.drives)));
    }
    if plan.drive_bytes < DRIVE_MIN || !plan.drive_bytes.is_multiple_of(4096) {
        return Err(LabError::Plan(format!(
            "a drive has at least {DRIVE_MIN} bytes, in whole 4096, not {}",
            plan.drive_bytes
        )));
    }
    room(plan)?;
    let directory = match &plan.directory {
        None => home(name).join("drives"),
        Some(above) => std::path::absolute(above)
            .map_err(|error| LabError::file(above, error))?
            .join(format!("gabion-lab-{name}")),
    };
    if plan.directory.is_some() && directory.exists() {
        return Err(LabError::Plan(format!("{} exists, and this lab did not make it", directory.display())));
    }
    Ok(Lab {
        name: name.clone(),
        model: model.name,
        fraction: plan.fraction,
        limits: model.limits.share(plan.fraction),
        drive_bytes: plan.drive_bytes,
        directory,
        in_memory: plan.directory.is_none(),
        throttle: Throttle::find(&mounts()?, name)?,
        drives: Vec::new(),
        complete: false,
    })
}

/// A lab takes all its room at once: a drive that turns out to be full in the middle of a run is none.
fn room(plan: &LabPlan) -> Result<(), LabError> {
    let (place, free) = match &plan.directory {
        None => {
            let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
            let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
            let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0);
            // The rest is for programs under test and the load.
            ("memory".to_owned(), kib * 1024 / 4 * 3)
        }
        Some(directory) => {
            let stat = rustix::fs::statvfs(directory).map_err(|error| LabError::file(directory, error))?;
            (directory.display().to_string(), stat.f_bavail.saturating_mul(stat.f_frsize))
        }
    };
    if u64::from(plan.drives).saturating_mul(plan.drive_bytes) > free {
        return Err(LabError::NoRoom { drives: plan.drives, bytes: plan.drive_bytes, place, free });
    }
    Ok(())
}

fn make(plan: &LabPlan, lab: &mut Lab, stop: &AtomicBool) -> Result<(), LabError> {
    let directory = lab.directory.clone();
    Access::OWNER.make_directories(&directory).map_err(|error| LabError::file(&directory, error))?;
    if lab.in_memory {
        mount_memory(&directory, u64::from(plan.drives) * plan.drive_bytes)?;
    }
    lab.throttle.make()?;
    for number in 0..plan.drives {
        if stop.load(Ordering::Relaxed) {
            return Err(LabError::Interrupted);
        }
        let file = directory.join(format!("drive{number:03}.img"));
        make_file(&file, plan.drive_bytes)?;
        let device = loops::attach(&file, lab.in_memory)?;
        let drive = LabDrive { number: loops::number(&device)?, device, file };
        lab.drives.push(drive.clone());
        lab.save()?;
        if lab.throttle.is_limited(drive.number)? {
            let found = "somebody has put limits of his own on it".into();
            return Err(LabError::NotOurs { device: drive.device, found });
        }
        loops::deepen(&drive.device);
        lab.throttle.set(drive.number, &lab.limits)?;
    }
    lab.complete = true;
    lab.save()
}

/// A file system in memory that can hold the drives and no more.
fn mount_memory(at: &Path, bytes: u64) -> Result<(), LabError> {
    let options = std::ffi::CString::new(format!("mode=0700,size={}", bytes + (16 << 20)))
        .map_err(|error| LabError::file(at, std::io::Error::other(error)))?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    rustix::mount::mount("gabion-lab", at, "tmpfs", flags, Some(options.as_c_str()))
        .map_err(|error| LabError::file(at, error))
}

/// A file all of whose blocks are there.
fn make_file(file: &Path, bytes: u64) -> Result<(), LabError> {
    let made = std::fs::File::create_new(file).map_err(|error| LabError::file(file, error))?;
    rustix::fs::fallocate(&made, FallocateFlags::empty(), 0, bytes)
        .map_err(|error| LabError::file(file, error))
}
