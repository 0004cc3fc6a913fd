//! Users of drives: the open pools of this daemon, and processes that have drives open for writing,
//! as far as this process may inspect them.
//!
//! Invariant: nothing here waits for a file system that does not respond.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, StatxFlags};

use super::DriveKey;

/// Drives of the open pools of this daemon: the name of the pool for each.
pub(crate) type PoolDrives = BTreeMap<DriveKey, String>;

/// The block devices and files that processes of this host have open for writing.
#[derive(Debug, Default)]
pub(crate) struct Openers {
    /// Process names by process number, for each drive.
    by_drive: BTreeMap<DriveKey, BTreeMap<u32, String>>,
    in_pools: PoolDrives,
}

impl Openers {
    /// Scans all processes once. Processes that this one may not inspect are omitted.
    pub(crate) fn scan(in_pools: PoolDrives) -> Self {
        let mut openers = Self { in_pools, ..Self::default() };
        for process in numbers(Path::new("/proc")) {
            let directory = PathBuf::from(format!("/proc/{process}"));
            for descriptor in numbers(&directory.join("fd")) {
                // The descriptor may be closed, and the process may end, at any time.
                let Some(drive) = key_of_open(&directory.join(format!("fd/{descriptor}"))) else { continue };
                if is_for_writing(&directory.join(format!("fdinfo/{descriptor}"))) {
                    let names = openers.by_drive.entry(drive).or_default();
                    names.entry(process).or_insert_with(|| name_of(&directory));
                }
            }
        }
        openers
    }

    /// Returns the numbers and names of other processes that have a drive open for writing.
    pub(super) fn others(&self, drive: DriveKey) -> impl Iterator<Item = (u32, &str)> {
        let all = self.by_drive.get(&drive).into_iter().flatten();
        all.filter(|(process, _)| **process != std::process::id())
            .map(|(process, name)| (*process, name.as_str()))
    }

    /// Returns the name of the open pool that a drive belongs to.
    pub(super) fn pool_of(&self, drive: DriveKey) -> Option<&str> {
        self.in_pools.get(&drive).map(String::as_str)
    }

    /// Returns true if this process has the drive open for writing.
    pub(super) fn is_own(&self, drive: DriveKey) -> bool {
        self.by_drive.get(&drive).is_some_and(|processes| processes.contains_key(&std::process::id()))
    }
}

/// Returns the numeric entries of a directory; none if it cannot be read.
fn numbers(directory: &Path) -> Vec<u32> {
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect()
}

/// Returns the key of the block device or file that a descriptor of a process refers to.
fn key_of_open(descriptor: &Path) -> Option<DriveKey> {
    // Without this flag, a file on an unreachable file server would block the thread.
    let flags = AtFlags::STATX_DONT_SYNC;
    let status = rustix::fs::statx(CWD, descriptor, flags, StatxFlags::TYPE | StatxFlags::INO).ok()?;
    match FileType::from_raw_mode(status.stx_mode.into()) {
        FileType::BlockDevice => {
            Some(DriveKey::Device(rustix::fs::makedev(status.stx_rdev_major, status.stx_rdev_minor)))
        }
        FileType::RegularFile => Some(DriveKey::File(
            rustix::fs::makedev(status.stx_dev_major, status.stx_dev_minor),
            status.stx_ino,
        )),
        _ => None,
    }
}

/// Returns true if a descriptor is open for writing (proc_pid_fdinfo(5)).
fn is_for_writing(info: &Path) -> bool {
    let Ok(text) = fs::read_to_string(info) else { return false };
    let flags = text.lines().find_map(|line| line.strip_prefix("flags:"));
    let flags = flags.and_then(|flags| u32::from_str_radix(flags.trim(), 8).ok()).unwrap_or(0);
    // A descriptor with O_PATH shows O_RDONLY here.
    flags & rustix::fs::OFlags::ACCMODE.bits() != rustix::fs::OFlags::RDONLY.bits()
}

fn name_of(process: &Path) -> String {
    fs::read_to_string(process.join("comm"))
        .map_or_else(|_| "unknown".into(), |name| name.trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::process::{Command, Stdio};

    use super::*;

    /// A process that has a file open, killed on drop.
    struct Holder(std::process::Child);

    impl Holder {
        /// Starts the process; `redirection` is the shell's, as in `>>`.
        fn of(path: &Path, redirection: &str) -> Self {
            let mut child = Command::new("sh")
                .args(["-c", &format!("exec 3{redirection}\"$0\"; exec cat")])
                .arg(path)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            // The shell has opened the file and become `cat` once the input is echoed.
            std::io::Write::write_all(child.stdin.as_mut().unwrap(), b"x").unwrap();
            std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut [0]).unwrap();
            Self(child)
        }
    }

    impl Drop for Holder {
        fn drop(&mut self) {
            self.0.kill().unwrap();
            self.0.wait().unwrap();
        }
    }

    #[test]
    fn only_processes_with_write_access_are_listed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        drop(File::create(&path).unwrap());
        let key = crate::inspect::drive_key(&path).unwrap();
        let reader = Holder::of(&path, "<");
        assert_eq!(Openers::scan(PoolDrives::new()).others(key).count(), 0);
        let writer = Holder::of(&path, ">>");
        let openers = Openers::scan(PoolDrives::new());
        let [(process, name)] = openers.others(key).collect::<Vec<_>>()[..] else { panic!("{openers:?}") };
        assert_eq!((process, name), (writer.0.id(), "cat"));
        assert!(!openers.is_own(key));
        drop((reader, writer));
        let own = File::options().append(true).open(&path).unwrap();
        assert!(Openers::scan(PoolDrives::new()).is_own(key));
        // A program that another test starts has the file open between its fork and its exec.
        let is_forked = || Openers::scan(PoolDrives::new()).others(key).count() > 0;
        assert!((0..1000).any(|_| !is_forked()), "{:?}", Openers::scan(PoolDrives::new()));
        drop(own);
        assert!(!Openers::scan(PoolDrives::new()).is_own(key));
    }
}
