//! Other storage systems on the drives of a run, set up as their own documentation recommends, for
//! comparison with Gabion.
//!
//! Invariants: a drive is used only if its contents may be overwritten and no other program uses
//! it; everything created is removed however a run ends. Each system is optional and reports its
//! missing requirements.

mod btrfs;
mod md;
mod minio;
mod nbdkit;
mod s3_peer;
mod s3_server;
mod storage_daemon;
#[cfg(test)]
mod tests;
mod versitygw;

use std::path::{Path, PathBuf};

use crate::bounds::Layout;
use crate::load::Target;
use crate::program::{self, ProgramError};
use crate::suite::Workload;
use crate::system::{Requirements, System, SystemError, TargetExtent, file_size, is_device};

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// A storage system to compare with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Name as a target.
    pub name: &'static str,
    /// Description.
    pub title: &'static str,
    /// Options and their descriptions.
    pub options: &'static [(&'static str, &'static str)],
    /// Debian packages or other sources of its programs.
    pub packages: &'static str,
    /// The kind of requests that it serves.
    pub workload: Workload,
}

const FILL: (&str, &str) = ("fill", "used share of the space in percent, default 50");
const POOLS: (&str, &str) = ("pools", "number of pools, default from the suite");

/// All supported systems.
pub const PEERS: [Peer; 6] = [
    Peer {
        name: "btrfs",
        title: "files on btrfs, raid5 or raid6 over the drives, with its checksums",
        options: &[FILL, POOLS],
        packages: "Debian: btrfs-progs",
        workload: Workload::Blocks,
    },
    Peer {
        name: "qemu-storage-daemon",
        title: "independent drives, exported by QEMU's storage daemon, without protection or checksums",
        options: &[("by", "nbd (default) or vhost")],
        packages: "Debian: qemu-system-common",
        workload: Workload::Blocks,
    },
    Peer {
        name: "nbdkit",
        title: "independent drives, exported by nbdkit through the page cache, without protection or checksums",
        options: &[],
        packages: "Debian: nbdkit",
        workload: Workload::Blocks,
    },
    Peer {
        name: "md",
        title: "Linux md, RAID 5 or 6 over the drives; in a virtual machine if this kernel lacks md",
        options: &[
            FILL,
            POOLS,
            ("chunk", "chunk size in KiB, default 64"),
            ("guest", "in a virtual machine: auto (default), always or never"),
            ("kernel", "folder with the guest kernel, default /var/lib/gabion/guest"),
        ],
        packages: "Debian: mdadm; for a VM also qemu-system-x86, busybox-static and an unpacked kernel",
        workload: Workload::Blocks,
    },
    Peer {
        name: "minio",
        title: "MinIO, one XFS file system per drive, erasure coded",
        options: &[("parity", "drives of a set that may fail, default from the suite")],
        packages: "Debian: xfsprogs; go install github.com/minio/minio@latest",
        workload: Workload::Objects,
    },
    Peer {
        name: "versitygw",
        title: "versitygw, files on btrfs raid0 over the drives, without protection",
        options: &[],
        packages: "Debian: btrfs-progs; go install github.com/versity/versitygw/cmd/versitygw@latest",
        workload: Workload::Objects,
    },
];

impl Peer {
    /// Finds a system by name.
    pub fn find(name: &str) -> Option<Self> {
        PEERS.into_iter().find(|peer| peer.name == name)
    }

    /// True if it has this option.
    pub fn has(self, key: &str) -> bool {
        self.options.iter().any(|(option, _)| *option == key)
    }

    /// Returns the missing requirement with these options, if any.
    pub fn missing_requirement(self, options: &str) -> Option<String> {
        let missing = match self.name {
            "btrfs" => btrfs::missing_requirement(),
            "md" => md::missing_requirement(&parse(options)),
            "minio" => minio::missing_requirement(),
            "versitygw" => versitygw::missing_requirement(),
            name => (!program::is_installed(name)).then(|| format!("{name} is not installed")),
        };
        missing.map(|what| format!("{what} ({})", self.packages))
    }

    /// Opens the system as the target `name`. `overwrite` permits overwriting the drives.
    ///
    /// # Errors
    /// If an option is invalid.
    pub fn open(self, name: &str, options: &str, overwrite: bool) -> Result<Box<dyn System>, SystemError> {
        let given = PeerOptions { name: name.into(), overwrite, list: parse(options) };
        let opened: Result<Box<dyn System>, String> = match self.name {
            "btrfs" => btrfs::Btrfs::new(given).map(|system| Box::new(system) as Box<dyn System>),
            "md" => md::Md::new(given).map(|system| Box::new(system) as Box<dyn System>),
            "minio" => minio::open(given).map(|system| Box::new(system) as Box<dyn System>),
            "versitygw" => versitygw::open(given).map(|system| Box::new(system) as Box<dyn System>),
            "nbdkit" => nbdkit::Nbdkit::new(given).map(|system| Box::new(system) as Box<dyn System>),
            _ => storage_daemon::StorageDaemon::new(given).map(|system| Box::new(system) as Box<dyn System>),
        };
        let wrong = |option| {
            let known: Vec<String> =
                self.options.iter().map(|(key, what)| format!("{key} ({what})")).collect();
            let known = if known.is_empty() { "none".into() } else { known.join(", ") };
            format!("unknown option '{option}' of '{}'; known options: {known}", self.name)
        };
        opened.map_err(|option| SystemError::new(name, "parse its options", wrong(option)))
    }
}

/// The user's options for a system.
struct PeerOptions {
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

impl PeerOptions {
    /// Passes each option to `take`; the first one that it rejects is the error.
    fn each(&self, mut take: impl FnMut(&str, &str) -> Option<()>) -> Result<(), String> {
        for (key, value) in &self.list {
            take(key, value).ok_or_else(|| format!("{key}={value}"))?;
        }
        Ok(())
    }

    fn error(&self, doing: &'static str, error: impl Into<Failure>) -> SystemError {
        SystemError::new(&self.name, doing, error)
    }

    /// Checks that the drives may be overwritten. Returns the size of the smallest.
    fn take(&self, drives: &[PathBuf]) -> Result<u64, Failure> {
        if !self.overwrite {
            return Err("it would overwrite the drives; use --overwrite to permit it".into());
        }
        let sizes = drives.iter().map(|path| free_size(path)).collect::<Result<Vec<u64>, Failure>>()?;
        sizes.into_iter().min().ok_or_else(|| "it needs drives; specify them with --lab or --drives".into())
    }
}

/// Returns the size of an unused drive in bytes.
fn free_size(path: &Path) -> Result<u64, Failure> {
    let bytes = file_size(path)?;
    if is_device(path) && crate::lab::is_claimed(path) {
        return Err(format!("{} is in use by another program", path.display()).into());
    }
    Ok(bytes)
}

/// Parses a whole number from 1 to `most`.
fn number(value: &str, most: u64) -> Option<u64> {
    value.parse().ok().filter(|value| (1..=most).contains(value))
}

/// Returns the data and parity columns of a scheme k+m that a RAID level supports.
fn columns(requirements: &Requirements<'_>) -> Result<(u32, u32), Failure> {
    let scheme = requirements.scheme.ok_or("the suite has no scheme")?;
    let layout = Layout::parse(scheme, 1, 1)?;
    if layout.data < 2 || !(1..=2).contains(&layout.parity) {
        return Err(format!("it supports RAID 5 and 6, not {scheme}").into());
    }
    Ok((layout.data, layout.parity))
}

/// Groups of drives as wide as the scheme, as a RAID level uses them.
struct Groups<'a> {
    drives: Vec<&'a [PathBuf]>,
    layout: Layout,
}

impl<'a> Groups<'a> {
    fn new(requirements: &Requirements<'a>, pools: u32) -> Result<Self, Failure> {
        let (data, parity) = columns(requirements)?;
        let drives = requirements.groups(pools)?;
        let (each, width) = (drives.first().map_or(0, |group| group.len()), (data + parity) as usize);
        if each != width {
            return Err(format!("{data}+{parity} needs {width} drives per pool, and there are {each}").into());
        }
        let all = u32::try_from(width * drives.len()).unwrap_or(u32::MAX);
        Ok(Self { drives, layout: Layout { drives: all, data, parity, pools } })
    }

    /// Returns the drives per group.
    fn width(&self) -> usize {
        (self.layout.data + self.layout.parity) as usize
    }
}

/// Returns the layout of independent drives.
fn independent_drives(drives: usize) -> Layout {
    let drives = u32::try_from(drives).unwrap_or(u32::MAX);
    Layout { drives, data: 1, parity: 0, pools: drives }
}

/// Rounds down to whole MiB.
fn round_to_mib(bytes: u64) -> u64 {
    bytes >> 20 << 20
}

fn target_extent(target: Target, bytes: u64) -> TargetExtent {
    TargetExtent { target, bytes }
}

/// Adds a failure of the removal to the failure that caused it.
fn with_left(error: Failure, removed: Result<(), Failure>) -> Failure {
    match removed {
        Ok(()) => error,
        Err(left) => format!("{error}; and {left}").into(),
    }
}

fn interrupted(stop: &std::sync::atomic::AtomicBool) -> Result<(), ProgramError> {
    if stop.load(std::sync::atomic::Ordering::Relaxed) { Err(ProgramError::Interrupted) } else { Ok(()) }
}
