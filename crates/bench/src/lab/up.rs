//! Creation of a lab.

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

/// Smallest drive that a pool accepts, with a margin.
const DRIVE_MIN: u64 = 64 << 20;
/// Maximum number of drives: that of a pool.
const DRIVES_MAX: u16 = 256;

/// Parameters of a lab.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LabPlan {
    /// Name.
    pub name: String,
    /// Number of drives.
    pub drives: u16,
    /// Drive model.
    pub model: String,
    /// Fraction of the model's limits.
    pub fraction: Fraction,
    /// Bytes per drive.
    pub drive_bytes: u64,
    /// A directory on a disk for the files; tmpfs if `None`.
    pub directory: Option<PathBuf>,
}

/// Creates a lab, unless `stop` is set meanwhile.
///
/// # Errors
/// See [`LabError`]. Nothing is left behind.
pub fn up(plan: &LabPlan, stop: &AtomicBool) -> Result<Lab, LabError> {
    must_be_root()?;
    let mut lab = check(plan)?;
    // From here on there is something to remove, and the record names it.
    let made = lab.save().and_then(|()| make(plan, &mut lab, stop));
    match made {
        Ok(()) => Ok(lab),
        Err(error) => {
            down::remove(&lab)?;
            Err(error)
        }
    }
}

/// Checks everything that can be checked in advance.
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
            "a drive needs at least {DRIVE_MIN} bytes, a multiple of 4096, not {}",
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
        return Err(LabError::Plan(format!(
            "{} exists and was not created by this lab",
            directory.display()
        )));
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

/// Checks the free space: a lab allocates all its space at once, because a drive that runs full
/// during a run is useless.
fn room(plan: &LabPlan) -> Result<(), LabError> {
    let (place, free) = match &plan.directory {
        None => {
            let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
            let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
            let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0);
            // The rest is for the measured programs and the load.
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
            let found = "it already has other limits".into();
            return Err(LabError::NotOurs { device: drive.device, found });
        }
        loops::set_deep_queue(&drive.device);
        lab.throttle.set(drive.number, &lab.limits)?;
    }
    lab.complete = true;
    lab.save()
}

/// Mounts a tmpfs with exactly the space of the drives.
fn mount_memory(at: &Path, bytes: u64) -> Result<(), LabError> {
    let options = std::ffi::CString::new(format!("mode=0700,size={}", bytes + (16 << 20)))
        .map_err(|error| LabError::file(at, std::io::Error::other(error)))?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    rustix::mount::mount("gabion-lab", at, "tmpfs", flags, Some(options.as_c_str()))
        .map_err(|error| LabError::file(at, error))
}

/// Creates a file with all blocks allocated.
fn make_file(file: &Path, bytes: u64) -> Result<(), LabError> {
    let made = std::fs::File::create_new(file).map_err(|error| LabError::file(file, error))?;
    rustix::fs::fallocate(&made, FallocateFlags::empty(), 0, bytes)
        .map_err(|error| LabError::file(file, error))
}
