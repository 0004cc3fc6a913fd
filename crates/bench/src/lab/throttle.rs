//! The kernel's throttling of block devices: cgroup v1 `blkio.throttle.*`, v2 `io.max`.
//!
//! Decides which processes are throttled. The kernel charges an operation to the cgroup of the
//! process that submits it to the device, that is the program that uses the drive; the loop
//! device's own workers are behind the throttle and are not charged again.
//!
//! - v1: each cgroup has its own budget per device, not shared with its children. The limits are
//!   set on the root cgroup, and measured processes move there: programs and kernel threads (a file
//!   system's workers) then share one budget.
//! - v2: limits cannot be set on the root cgroup, but apply to a cgroup and its children. The lab
//!   creates one cgroup, and measured processes move there. Kernel threads stay outside: operations
//!   that a kernel file system submits from its workers are not throttled, and a run reports a
//!   drive that exceeds its limit.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::LabError;
use super::model::DriveLimits;

/// A block device number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceNumber {
    /// Major number.
    pub major: u32,
    /// Minor number.
    pub minor: u32,
}

impl std::fmt::Display for DeviceNumber {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.major, self.minor)
    }
}

/// The throttling mechanism and its cgroup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Throttle {
    /// The root cgroup of the v1 `blkio` hierarchy.
    V1 {
        /// The cgroup's directory.
        root: PathBuf,
    },
    /// A cgroup of the v2 hierarchy.
    V2 {
        /// The cgroup's directory.
        group: PathBuf,
    },
}

type Pick = fn(&DriveLimits) -> u64;

/// The files of v1 and the limit that each one holds.
const V1_FILES: [(&str, Pick); 4] = [
    ("blkio.throttle.read_iops_device", |limits| limits.read_iops),
    ("blkio.throttle.write_iops_device", |limits| limits.write_iops),
    ("blkio.throttle.read_bps_device", |limits| limits.read_bps),
    ("blkio.throttle.write_bps_device", |limits| limits.write_bps),
];

impl Throttle {
    /// Returns the mechanism of this machine for a lab of that name. `mounts` is the text of
    /// `/proc/self/mountinfo`.
    ///
    /// # Errors
    /// If the machine has neither.
    pub(super) fn find(mounts: &str, lab: &str) -> Result<Self, LabError> {
        let hierarchies = || mounts.lines().filter_map(hierarchy);
        if let Some((_, root, _)) = hierarchies()
            .find(|(kind, _, options)| *kind == "cgroup" && options.split(',').any(|word| word == "blkio"))
        {
            return Ok(Self::V1 { root: root.into() });
        }
        let has_io = |root: &&str| {
            let controllers = std::fs::read_to_string(Path::new(root).join("cgroup.controllers"));
            controllers.is_ok_and(|text| text.split_whitespace().any(|word| word == "io"))
        };
        let unified = hierarchies().filter(|(kind, ..)| *kind == "cgroup2").map(|(_, root, _)| root);
        match unified.clone().find(has_io) {
            Some(root) => Ok(Self::V2 { group: Path::new(root).join(format!("gabion-lab-{lab}")) }),
            None => Err(LabError::NoThrottle),
        }
    }

    /// Creates the cgroup, if one is needed.
    pub(super) fn make(&self) -> Result<(), LabError> {
        let Self::V2 { group } = self else { return Ok(()) };
        let above = group.parent().unwrap_or(group);
        write(&above.join("cgroup.subtree_control"), "+io")?;
        match std::fs::create_dir(group) {
            Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
                Err(LabError::file(group, error))
            }
            _ => Ok(()),
        }
    }

    /// True if the device already has limits.
    pub(super) fn is_limited(&self, device: DeviceNumber) -> Result<bool, LabError> {
        let files = match self {
            Self::V1 { root } => V1_FILES.iter().map(|(name, _)| root.join(name)).collect(),
            Self::V2 { group } => vec![group.join("io.max")],
        };
        let start = format!("{device} ");
        for file in files {
            let text = std::fs::read_to_string(&file).map_err(|error| LabError::file(&file, error))?;
            if text.lines().any(|line| line.starts_with(&start)) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Sets the limits of a device.
    pub(super) fn set(&self, device: DeviceNumber, limits: &DriveLimits) -> Result<(), LabError> {
        match self {
            Self::V1 { root } => V1_FILES.iter().try_for_each(|(name, limit)| {
                write(&root.join(name), &format!("{device} {}", limit(limits)))
            }),
            Self::V2 { group } => {
                let DriveLimits { read_iops, write_iops, read_bps, write_bps } = limits;
                let line =
                    format!("{device} rbps={read_bps} wbps={write_bps} riops={read_iops} wiops={write_iops}");
                write(&group.join("io.max"), &line)
            }
        }
    }

    /// True if the device has exactly these limits.
    pub(super) fn has(&self, device: DeviceNumber, limits: &DriveLimits) -> Result<bool, LabError> {
        match self {
            Self::V1 { root } => {
                let same = |(name, limit): &(&str, Pick)| {
                    let file = root.join(name);
                    let text =
                        std::fs::read_to_string(&file).map_err(|error| LabError::file(&file, error))?;
                    let line = format!("{device} {}", limit(limits));
                    Ok(text.lines().any(|other| other == line))
                };
                let each = V1_FILES.iter().map(same).collect::<Result<Vec<bool>, LabError>>()?;
                Ok(each.iter().all(|same| *same))
            }
            // Only the lab writes to this cgroup's file.
            Self::V2 { group } => Ok(group.exists() && self.is_limited(device)?),
        }
    }

    /// Clears the limits of a device.
    pub(super) fn clear(&self, device: DeviceNumber) -> Result<(), LabError> {
        match self {
            Self::V1 { root } => {
                V1_FILES.iter().try_for_each(|(name, _)| write(&root.join(name), &format!("{device} 0")))
            }
            Self::V2 { group } if !group.exists() => Ok(()),
            Self::V2 { group } => {
                write(&group.join("io.max"), &format!("{device} rbps=max wbps=max riops=max wiops=max"))
            }
        }
    }

    /// Moves a process into the throttled cgroup; its later children inherit it.
    ///
    /// # Errors
    /// If the process may not be moved.
    pub fn join(&self, process: u32) -> Result<(), LabError> {
        let group = match self {
            Self::V1 { root } => root,
            Self::V2 { group } => group,
        };
        write(&group.join("cgroup.procs"), &process.to_string())
    }

    /// Removes the cgroup.
    pub(super) fn remove(&self) -> Result<(), LabError> {
        let Self::V2 { group } = self else { return Ok(()) };
        if !group.exists() {
            return Ok(());
        }
        // Its remaining processes move back to the parent cgroup.
        let members = std::fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
        for member in members.lines() {
            let above = group.parent().unwrap_or(group);
            write(&above.join("cgroup.procs"), member)?;
        }
        std::fs::remove_dir(group).map_err(|error| LabError::file(group, error))
    }

    /// Describes the throttled processes for the user.
    pub fn explain(&self) -> String {
        match self {
            Self::V1 { root } => format!(
                "cgroup v1, limits on the root cgroup ({}): they apply to all its processes, including kernel threads",
                root.display()
            ),
            Self::V2 { group } => format!(
                "cgroup v2, cgroup {}: limits apply to its processes, not to kernel threads",
                group.display()
            ),
        }
    }
}

/// Returns the file system type, mount point and options of a mountinfo line
/// (proc_pid_mountinfo(5)) of a cgroup hierarchy.
fn hierarchy(line: &str) -> Option<(&str, &str, &str)> {
    let (before, after) = line.split_once(" - ")?;
    let mut after = after.split(' ');
    let (kind, _, options) = (after.next()?, after.next()?, after.next()?);
    kind.starts_with("cgroup").then_some((kind, before.split(' ').nth(4)?, options))
}

fn write(file: &Path, text: &str) -> Result<(), LabError> {
    std::fs::write(file, text).map_err(|error| LabError::file(file, error))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: DriveLimits = DriveLimits { read_iops: 10, write_iops: 20, read_bps: 30, write_bps: 40 };
    const DEVICE: DeviceNumber = DeviceNumber { major: 7, minor: 3 };

    fn place() -> tempfile::TempDir {
        tempfile::tempdir().unwrap()
    }

    fn line(kind: &str, at: &Path, options: &str) -> String {
        format!("31 23 0:26 / {} rw,relatime shared:9 - {kind} {kind} {options}\n", at.display())
    }

    #[test]
    fn v1_is_used_if_it_has_the_controller() {
        let place = place();
        std::fs::write(place.path().join("cgroup.controllers"), "cpu io\n").unwrap();
        let v1 = line("cgroup", Path::new("/c/blkio"), "rw,blkio");
        let v2 = line("cgroup2", place.path(), "rw");
        let other = line("cgroup", Path::new("/c/cpu"), "rw,cpu,cpuacct");
        let found = Throttle::find(&format!("{other}{v2}{v1}"), "x").unwrap();
        assert_eq!(found, Throttle::V1 { root: "/c/blkio".into() });
        let found = Throttle::find(&format!("{other}{v2}"), "x").unwrap();
        assert_eq!(found, Throttle::V2 { group: place.path().join("gabion-lab-x") });
        std::fs::write(place.path().join("cgroup.controllers"), "hugetlb\n").unwrap();
        assert!(matches!(Throttle::find(&format!("{other}{v2}"), "x"), Err(LabError::NoThrottle)));
    }

    #[test]
    fn v1_has_a_file_per_limit() {
        let place = place();
        let throttle = Throttle::V1 { root: place.path().into() };
        throttle.set(DEVICE, &LIMITS).unwrap();
        let read = |name: &str| std::fs::read_to_string(place.path().join(name)).unwrap();
        assert_eq!(read("blkio.throttle.read_iops_device"), "7:3 10");
        assert_eq!(read("blkio.throttle.write_iops_device"), "7:3 20");
        assert_eq!(read("blkio.throttle.read_bps_device"), "7:3 30");
        assert_eq!(read("blkio.throttle.write_bps_device"), "7:3 40");
        assert!(throttle.is_limited(DEVICE).unwrap());
        assert!(throttle.has(DEVICE, &LIMITS).unwrap());
        assert!(!throttle.has(DEVICE, &DriveLimits { read_bps: 31, ..LIMITS }).unwrap());
        assert!(!throttle.is_limited(DeviceNumber { major: 7, minor: 33 }).unwrap());
        throttle.clear(DEVICE).unwrap();
        assert_eq!(read("blkio.throttle.write_bps_device"), "7:3 0");
    }

    #[test]
    fn v2_has_a_cgroup_and_a_line_per_device() {
        let place = place();
        let group = place.path().join("gabion-lab-x");
        let throttle = Throttle::V2 { group: group.clone() };
        throttle.make().unwrap();
        assert_eq!(std::fs::read_to_string(place.path().join("cgroup.subtree_control")).unwrap(), "+io");
        throttle.set(DEVICE, &LIMITS).unwrap();
        let text = std::fs::read_to_string(group.join("io.max")).unwrap();
        assert_eq!(text, "7:3 rbps=30 wbps=40 riops=10 wiops=20");
        throttle.join(77).unwrap();
        assert_eq!(std::fs::read_to_string(group.join("cgroup.procs")).unwrap(), "77");
        throttle.clear(DEVICE).unwrap();
        assert!(std::fs::read_to_string(group.join("io.max")).unwrap().contains("rbps=max"));
    }
}
