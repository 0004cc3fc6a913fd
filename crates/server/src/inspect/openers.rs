//! Processes that have drives open for writing, as far as this process may look into others.
//!
//! Always true: nothing here waits for a file system that does not answer.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, StatxFlags};

use super::Sameness;

/// Everything that processes of this host have open for writing and that a drive could be.
#[derive(Debug, Default)]
pub(crate) struct Openers {
    /// Processes by drive, each named once.
    of: BTreeMap<Sameness, BTreeMap<u32, String>>,
}

impl Openers {
    /// Looks at all processes once. Processes of other users are left out where this one may not look into them.
    pub(crate) fn scan() -> Self {
        let mut openers = Self::default();
        for process in numbers(Path::new("/proc")) {
            let place = PathBuf::from(format!("/proc/{process}"));
            for descriptor in numbers(&place.join("fd")) {
                // It may be closed, and the process gone, at any moment.
                let Some(drive) = which(&place.join(format!("fd/{descriptor}"))) else { continue };
                if is_for_writing(&place.join(format!("fdinfo/{descriptor}"))) {
                    let names = openers.of.entry(drive).or_default();
                    names.entry(process).or_insert_with(|| name_of(&place));
                }
            }
        }
        openers
    }

    /// Other processes that have a drive open for writing: number and name.
    pub(super) fn others(&self, drive: Sameness) -> impl Iterator<Item = (u32, &str)> {
        let all = self.of.get(&drive).into_iter().flatten();
        all.filter(|(process, _)| **process != std::process::id())
            .map(|(process, name)| (*process, name.as_str()))
    }

    /// True if this process has it open for writing.
    pub(super) fn is_own(&self, drive: Sameness) -> bool {
        self.of.get(&drive).is_some_and(|processes| processes.contains_key(&std::process::id()))
    }
}

/// The entries of a directory that are numbers; none if it cannot be read.
fn numbers(directory: &Path) -> Vec<u32> {
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect()
}

/// Which drive a descriptor of a process is open on, if that could be one.
fn which(descriptor: &Path) -> Option<Sameness> {
    // Without this flag a file on a server that is gone would keep us waiting for as long.
    let flags = AtFlags::STATX_DONT_SYNC;
    let found = rustix::fs::statx(CWD, descriptor, flags, StatxFlags::TYPE | StatxFlags::INO).ok()?;
    match FileType::from_raw_mode(found.stx_mode.into()) {
        FileType::BlockDevice => {
            Some(Sameness::Device(rustix::fs::makedev(found.stx_rdev_major, found.stx_rdev_minor)))
        }
        FileType::RegularFile => {
            Some(Sameness::File(rustix::fs::makedev(found.stx_dev_major, found.stx_dev_minor), found.stx_ino))
        }
        _ => None,
    }
}

/// True if a descriptor may be written to (proc_pid_fdinfo(5)).
fn is_for_writing(info: &Path) -> bool {
    let Ok(text) = fs::read_to_string(info) else { return false };
    let flags = text.lines().find_map(|line| line.strip_prefix("flags:"));
    let flags = flags.and_then(|flags| u32::from_str_radix(flags.trim(), 8).ok()).unwrap_or(0);
    // One that only names a file (O_PATH) says O_RDONLY here.
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

    /// A process that has a file open, until it is dropped.
    struct Holder(std::process::Child);

    impl Holder {
        /// `how` is the shell's redirection, as in `>>`.
        fn of(path: &Path, how: &str) -> Self {
            let mut child = Command::new("sh")
                .args(["-c", &format!("exec 3{how}\"$0\"; exec cat")])
                .arg(path)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            // It is what it is to be, and has opened the file, when it repeats what it is told.
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
    fn processes_that_write_are_named_and_those_that_read_are_not() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        drop(File::create(&path).unwrap());
        let same = crate::inspect::which(&path).unwrap();
        let reader = Holder::of(&path, "<");
        assert_eq!(Openers::scan().others(same).count(), 0);
        let writer = Holder::of(&path, ">>");
        let openers = Openers::scan();
        let [(process, name)] = openers.others(same).collect::<Vec<_>>()[..] else { panic!("{openers:?}") };
        assert_eq!((process, name), (writer.0.id(), "cat"));
        assert!(!openers.is_own(same));
        drop((reader, writer));
        let own = File::options().append(true).open(&path).unwrap();
        let openers = Openers::scan();
        assert!(openers.is_own(same) && openers.others(same).count() == 0, "{openers:?}");
        drop(own);
        assert!(!Openers::scan().is_own(same));
    }
}
