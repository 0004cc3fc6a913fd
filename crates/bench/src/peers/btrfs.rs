//! Files on btrfs: a raid5 or raid6 file system on each pool's drives, with a file per instance.

use std::path::{Path, PathBuf};

use rustix::mount::{MountFlags, UnmountFlags};

use crate::bounds::Layout;
use crate::load::Target;
use crate::program::{command, is_installed, run};
use crate::system::{
    Guarantees, Requirements, System, SystemError, SystemInfo, TargetExtent, interleave, is_device,
};

use super::{Failure, Groups, PeerOptions, interrupted, number, round_to_mib, target_extent, with_left};

/// Share of the file systems that the files fill, in percent.
const FILL: u64 = 50;
/// Index of the drive that fails in each pool.
const VICTIM: usize = 1;

pub(super) struct Btrfs {
    options: PeerOptions,
    fill: u64,
    pools: Option<u32>,
    layout: Option<Layout>,
    up: Option<RunningBtrfs>,
}

#[derive(Default)]
struct RunningBtrfs {
    file_systems: Vec<FileSystem>,
    extents: Vec<TargetExtent>,
}

struct FileSystem {
    drives: Vec<PathBuf>,
    at: PathBuf,
    mounted: bool,
}

/// Returns the missing requirement, if any.
pub(super) fn missing_requirement() -> Option<String> {
    if !is_installed("mkfs.btrfs") {
        return Some("mkfs.btrfs is not installed".into());
    }
    let known = std::fs::read_to_string("/proc/filesystems").unwrap_or_default();
    let there = known.lines().any(|line| line.trim() == "btrfs")
        || run(command("modprobe").args(["--dry-run", "btrfs"])).is_ok();
    if !there {
        return Some("this kernel does not support btrfs".into());
    }
    (!rustix::process::geteuid().is_root()).then(|| "it requires root".into())
}

impl Btrfs {
    pub(super) fn new(options: PeerOptions) -> Result<Self, String> {
        let (mut fill, mut pools) = (FILL, None);
        options.each(|key, value| {
            match key {
                "fill" => fill = number(value, 95)?,
                "pools" => pools = Some(u32::try_from(number(value, 64)?).ok()?),
                _ => return None,
            }
            Some(())
        })?;
        Ok(Self { options, fill, pools, layout: None, up: None })
    }

    fn make(&mut self, requirements: &Requirements<'_>, up: &mut RunningBtrfs) -> Result<(), Failure> {
        let drive_bytes = self.options.take(requirements.drives)?;
        if let Some(file) = requirements.drives.iter().find(|drive| !is_device(drive)) {
            return Err(format!("{} is not a block device; use the drives of a lab", file.display()).into());
        }
        let pools = self.pools.unwrap_or(requirements.pools).max(1);
        let groups = Groups::new(requirements, pools)?;
        let Layout { data, parity, .. } = groups.layout;
        let each = drive_bytes.saturating_mul(data.into()) / 100 * self.fill;
        let files = requirements.share(pools);
        let bytes =
            round_to_mib((each / u64::from(files)).min(requirements.instance_bytes.unwrap_or(u64::MAX)));
        if bytes == 0 {
            return Err(format!("the drives have no space for {files} files per file system").into());
        }
        let mut extents = Vec::new();
        for (number, drives) in groups.drives.iter().enumerate() {
            interrupted(requirements.stop)?;
            let profile = if parity == 1 { "raid5" } else { "raid6" };
            // Its documentation recommends mirrored metadata with raid5 and raid6.
            let metadata = if parity == 1 { "raid1" } else { "raid1c3" };
            let mut mkfs = command("mkfs.btrfs");
            mkfs.args(["-q", "-f", "-L", "gabion-bench", "-d", profile, "-m", metadata]).args(*drives);
            run(&mut mkfs)?;
            let at = requirements.folder.join(format!("{}-{number}", self.options.name));
            match std::fs::create_dir(&at) {
                Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => return Err(error.into()),
                _ => {}
            }
            up.file_systems.push(FileSystem { drives: drives.to_vec(), at, mounted: false });
            let Some(made) = up.file_systems.last_mut() else { continue };
            made.mount(&made.drives.clone(), "")?;
            let file = |index: u32| {
                let path = made.at.join(format!("volume{index}"));
                std::fs::File::create_new(&path)?.set_len(bytes)?;
                Ok(target_extent(Target::File(path), bytes))
            };
            extents.push((0..files).map(file).collect::<Result<Vec<TargetExtent>, std::io::Error>>()?);
        }
        self.layout = Some(groups.layout);
        up.extents = interleave(extents);
        Ok(())
    }

    fn fail_drives(up: &mut RunningBtrfs) -> Result<(), Failure> {
        for file_system in &mut up.file_systems {
            file_system.unmount()?;
            forget(&file_system.drives)?;
            let left: Vec<PathBuf> = file_system
                .drives
                .iter()
                .enumerate()
                .filter(|(index, _)| *index != VICTIM)
                .map(|(_, drive)| drive.clone())
                .collect();
            file_system.mount(&left, "degraded,")?;
        }
        Ok(())
    }

    /// Removes as much as possible and returns the first failure.
    fn remove(up: &mut RunningBtrfs) -> Result<(), Failure> {
        let mut result = Ok(());
        for file_system in &mut up.file_systems {
            let done = file_system.unmount().and_then(|()| {
                forget(&file_system.drives)?;
                run(command("wipefs").args(["-a", "-q"]).args(&file_system.drives))?;
                Ok(std::fs::remove_dir(&file_system.at)?)
            });
            result = result.and(done);
        }
        result
    }
}

/// Makes the kernel forget the drives of a file system: an unknown drive counts as failed.
pub(super) fn forget(drives: &[PathBuf]) -> Result<(), Failure> {
    for drive in drives {
        run(command("btrfs").args(["device", "scan", "--forget"]).arg(drive))?;
    }
    Ok(())
}

impl FileSystem {
    fn mount(&mut self, drives: &[PathBuf], options: &str) -> Result<(), Failure> {
        let first = drives.first().ok_or("no drives")?;
        let devices: Vec<String> = drives.iter().map(|drive| format!("device={}", drive.display())).collect();
        let options = std::ffi::CString::new(format!("{options}{}", devices.join(",")))?;
        rustix::mount::mount(first, &self.at, "btrfs", MountFlags::NOATIME, Some(options.as_c_str()))?;
        self.mounted = true;
        Ok(())
    }

    fn unmount(&mut self) -> Result<(), Failure> {
        if self.mounted {
            rustix::mount::unmount(&self.at, UnmountFlags::empty())
                .map_err(|error| format!("{} stays mounted: {error}", self.at.display()))?;
            self.mounted = false;
        }
        Ok(())
    }
}

/// Returns the directories in a run's folder where an earlier process has mounted a file system.
pub(super) fn mounted_in(folder: &Path, name: &str) -> Result<Vec<PathBuf>, Failure> {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo")?;
    let of_line = |line: &str| Some(PathBuf::from(line.split(' ').nth(4)?));
    let ours = |at: &PathBuf| {
        let number =
            at.file_name().and_then(|of| of.to_str()).and_then(|of| of.strip_prefix(name)?.strip_prefix('-'));
        at.parent() == Some(folder) && number.is_some_and(|number| number.parse::<u32>().is_ok())
    };
    Ok(mounts.lines().filter_map(of_line).filter(ours).collect())
}

impl System for Btrfs {
    fn info(&self) -> SystemInfo {
        let shape = self.layout.map_or(String::new(), |layout| {
            format!(
                "{} of {} drives, data {}, metadata copied, files of {} % of the space",
                if layout.pools == 1 {
                    "one file system".into()
                } else {
                    format!("{} file systems", layout.pools)
                },
                layout.drives,
                if layout.parity == 1 { "raid5" } else { "raid6" },
                self.fill
            )
        });
        SystemInfo {
            name: self.options.name.clone(),
            what: format!("btrfs: {shape}"),
            guarantees: Guarantees {
                flush: "flushed data is on the drives, and their caches are flushed".into(),
                checksums: "CRC-32C of every block, verified on every read".into(),
                protection: "one drive per parity column; a crash can leave inconsistent parity (write hole)"
                    .into(),
            },
            takes_drives: true,
            own_contents: false,
            degrades: true,
            layout: self.layout,
            remark: None,
            network: None,
            is_remote: false,
        }
    }

    fn set_up(&mut self, requirements: &Requirements<'_>) -> Result<(), SystemError> {
        let mut up = RunningBtrfs::default();
        let made = self.make(requirements, &mut up);
        if let Err(error) = made {
            return Err(self.options.error("set up", with_left(error, Self::remove(&mut up))));
        }
        self.up = Some(up);
        Ok(())
    }

    fn targets(&self) -> Vec<TargetExtent> {
        self.up.as_ref().map(|up| up.extents.clone()).unwrap_or_default()
    }

    fn processes(&self) -> Vec<u32> {
        Vec::new()
    }

    fn degrade(&mut self) -> Result<String, SystemError> {
        let Some(up) = &mut self.up else {
            return Err(self.options.error("fail a drive", "the system is not set up"));
        };
        let (count, lost) = (up.file_systems.len(), Self::fail_drives(up));
        lost.map_err(|error| self.options.error("fail a drive", error))?;
        Ok(format!("drive {VICTIM} of each of {count} file systems is missing"))
    }

    fn clean_up(&mut self, folder: &Path) -> Result<(), SystemError> {
        let clean = || {
            for at in mounted_in(folder, &self.options.name)? {
                rustix::mount::unmount(&at, UnmountFlags::empty())?;
            }
            Ok(())
        };
        clean().map_err(|error: Failure| self.options.error("clean up after the run", error))
    }

    fn tear_down(&mut self) -> Result<(), SystemError> {
        let Some(mut up) = self.up.take() else { return Ok(()) };
        Self::remove(&mut up).map_err(|error| self.options.error("tear down", error))
    }
}

impl Drop for Btrfs {
    fn drop(&mut self) {
        let _ = self.tear_down();
    }
}
