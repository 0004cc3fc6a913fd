//! Other systems on the run's own drives, each as its own documentation says it is best set up: what Gabion is measured beside.
//!
//! Always true: a drive is taken only if its contents may be destroyed and nobody uses it; whatever was made is taken away again,
//! however a run ends. Each is optional, and says what it lacks. Must not know: Gabion.

mod btrfs;
mod md;
mod nbdkit;
mod storage_daemon;
#[cfg(test)]
mod tests;

use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use crate::bounds::Layout;
use crate::load::Target;
use crate::program::{self, ProgramError};
use crate::system::{Requirements, System, SystemError, TargetExtent, file_size};

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// A system that others have made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its name as a target.
    pub name: &'static str,
    /// What it is.
    pub title: &'static str,
    /// The options that it has, and what they are.
    pub options: &'static [(&'static str, &'static str)],
    /// Debian's packages with what it takes.
    pub packages: &'static str,
}

const FILL: (&str, &str) = ("fill", "how much of the room is used, in percent, 50 unless told");
const POOLS: (&str, &str) = ("pools", "pools side by side, as many as the suite says unless told");

/// All of them.
pub const PEERS: [Peer; 4] = [
    Peer {
        name: "btrfs",
        title: "files on btrfs, raid5 or raid6 over the drives, with its checksums",
        options: &[FILL, POOLS],
        packages: "btrfs-progs",
    },
    Peer {
        name: "qemu-storage-daemon",
        title: "each drive by itself, exported by QEMU's storage daemon, without protection or checksums",
        options: &[("by", "nbd (unless told) or vhost")],
        packages: "qemu-system-common",
    },
    Peer {
        name: "nbdkit",
        title: "each drive by itself, exported by nbdkit through the page cache, without protection or checksums",
        options: &[],
        packages: "nbdkit",
    },
    Peer {
        name: "md",
        title: "Linux md, RAID 5 or 6 over the drives; within a virtual machine where this kernel has none",
        options: &[
            FILL,
            POOLS,
            ("chunk", "KiB of a drive before the next one's turn, 64 unless told"),
            ("guest", "in a virtual machine: auto (unless told), always or never"),
            ("kernel", "the folder with the machine's kernel, /var/lib/gabion/guest unless told"),
        ],
        packages: "mdadm; for a machine qemu-system-x86, busybox-static and an unpacked kernel",
    },
];

impl Peer {
    /// The one of that name.
    pub fn find(name: &str) -> Option<Self> {
        PEERS.into_iter().find(|peer| peer.name == name)
    }

    /// True if it has that option.
    pub fn has(self, key: &str) -> bool {
        self.options.iter().any(|(option, _)| *option == key)
    }

    /// What it lacks here with these options, if anything.
    pub fn lacks(self, options: &str) -> Option<String> {
        let missing = match self.name {
            "btrfs" => btrfs::lacks(),
            "md" => md::lacks(&parse(options)),
            name => (!program::is_installed(name)).then(|| format!("{name} is not installed")),
        };
        missing.map(|what| format!("{what} (Debian: {})", self.packages))
    }

    /// It as a target called `name`. `overwrite` says that the drives' contents may be destroyed.
    ///
    /// # Errors
    /// When an option is not understood.
    pub fn open(self, name: &str, options: &str, overwrite: bool) -> Result<Box<dyn System>, SystemError> {
        let given = Given { name: name.into(), overwrite, list: parse(options) };
        let opened: Result<Box<dyn System>, String> = match self.name {
            "btrfs" => btrfs::Btrfs::new(given).map(|system| Box::new(system) as Box<dyn System>),
            "md" => md::Md::new(given).map(|system| Box::new(system) as Box<dyn System>),
            "nbdkit" => nbdkit::Nbdkit::new(given).map(|system| Box::new(system) as Box<dyn System>),
            _ => storage_daemon::StorageDaemon::new(given).map(|system| Box::new(system) as Box<dyn System>),
        };
        let wrong = |option| {
            let known: Vec<String> =
                self.options.iter().map(|(key, what)| format!("{key} ({what})")).collect();
            let known = if known.is_empty() { "none".into() } else { known.join(", ") };
            format!("'{option}' is no option of '{}', which has {known}", self.name)
        };
        opened.map_err(|option| SystemError::new(name, "reading its options", wrong(option)))
    }
}

/// What a user said of a peer.
struct Given {
    name: String,
    overwrite: bool,
    list: Vec<(String, String)>,
}

fn parse(options: &str) -> Vec<(String, String)> {
    let parts = options.split(',').filter(|option| !option.is_empty());
    parts
        .map(|option| option.split_once('=').unwrap_or((option, "")))
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect()
}

impl Given {
    /// Hands each option to `take`; the first that it does not take is the error.
    fn each(&self, mut take: impl FnMut(&str, &str) -> Option<()>) -> Result<(), String> {
        for (key, value) in &self.list {
            take(key, value).ok_or_else(|| format!("{key}={value}"))?;
        }
        Ok(())
    }

    fn error(&self, doing: &'static str, error: impl Into<Failure>) -> SystemError {
        SystemError::new(&self.name, doing, error)
    }

    /// Makes sure that the drives may be taken; gives the size of the smallest.
    fn take(&self, drives: &[PathBuf]) -> Result<u64, Failure> {
        if !self.overwrite {
            return Err("it would overwrite the drives: say --overwrite if that may be".into());
        }
        let sizes = drives.iter().map(|path| free_size(path)).collect::<Result<Vec<u64>, Failure>>()?;
        sizes.into_iter().min().ok_or_else(|| "it needs drives: name them with --lab or --drives".into())
    }
}

/// Bytes of a drive that nobody uses.
fn free_size(path: &Path) -> Result<u64, Failure> {
    let bytes = file_size(path)?;
    if is_device(path) && crate::lab::is_claimed(path) {
        return Err(format!("{} is in use by a pool or another program", path.display()).into());
    }
    Ok(bytes)
}

pub(crate) fn is_device(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|data| data.file_type().is_block_device())
}

/// A whole number from 1 on.
fn number(value: &str, most: u64) -> Option<u64> {
    value.parse().ok().filter(|value| (1..=most).contains(value))
}

/// Columns of data and of parity of a scheme k+m, as far as RAID levels have them.
fn columns(wish: &Requirements<'_>) -> Result<(u32, u32), Failure> {
    let scheme = wish.scheme.ok_or("the suite has no scheme")?;
    let layout = Layout::parse(scheme, 1, 1)?;
    if layout.data < 2 || !(1..=2).contains(&layout.parity) {
        return Err(format!("it has RAID 5 and 6, and no {scheme}").into());
    }
    Ok((layout.data, layout.parity))
}

/// Groups of drives as a RAID level has them: as wide as the scheme.
struct Groups<'a> {
    drives: Vec<&'a [PathBuf]>,
    layout: Layout,
}

impl<'a> Groups<'a> {
    fn new(wish: &Requirements<'a>, pools: u32) -> Result<Self, Failure> {
        let (data, parity) = columns(wish)?;
        let drives = wish.groups(pools)?;
        let (each, width) = (drives.first().map_or(0, |group| group.len()), (data + parity) as usize);
        if each != width {
            return Err(
                format!("{data}+{parity} takes {width} drives for each pool, and there are {each}").into()
            );
        }
        let all = u32::try_from(width * drives.len()).unwrap_or(u32::MAX);
        Ok(Self { drives, layout: Layout { drives: all, data, parity, pools } })
    }

    /// Drives of each.
    fn width(&self) -> usize {
        (self.layout.data + self.layout.parity) as usize
    }
}

/// Each drive by itself.
fn bare(drives: usize) -> Layout {
    let drives = u32::try_from(drives).unwrap_or(u32::MAX);
    Layout { drives, data: 1, parity: 0, pools: drives }
}

/// Whole MiB.
fn whole(bytes: u64) -> u64 {
    bytes >> 20 << 20
}

fn spot(target: Target, bytes: u64) -> TargetExtent {
    TargetExtent { target, bytes }
}

fn interrupted(stop: &std::sync::atomic::AtomicBool) -> Result<(), ProgramError> {
    if stop.load(std::sync::atomic::Ordering::Relaxed) { Err(ProgramError::Interrupted) } else { Ok(()) }
}
