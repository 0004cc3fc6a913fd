//! The interface of a measured storage system.
//!
//! Invariant: drives that are mounted or held by another program are rejected.

mod external;

use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use serde::{Deserialize, Serialize};

use crate::bounds::Layout;
use crate::lab;
use crate::load::Target;
use crate::network::NetworkPath;
use crate::suite::Workload;

pub use external::ExternalSystem;

/// The description of a system.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SystemInfo {
    /// Name in tables.
    pub name: String,
    /// Description of the system and its configuration.
    pub what: String,
    /// Guarantees of the system.
    #[serde(alias = "promises")]
    pub guarantees: Guarantees,
    /// True if it uses the run's drives exclusively: other systems must wait until it is torn down.
    pub takes_drives: bool,
    /// True if it creates what it offers for the run: a job overwrites nothing of anyone.
    #[serde(default)]
    pub own_contents: bool,
    /// True if it can fail a drive on request.
    pub degrades: bool,
    /// Its layout on the drives, which determines the bounds; `None` if unknown.
    #[serde(default)]
    pub layout: Option<Layout>,
    /// A short remark that is shown with each of its figures.
    #[serde(default)]
    pub remark: Option<String>,
    /// The network to a system on other hosts; `None` for one on this host.
    #[serde(default)]
    pub network: Option<NetworkPath>,
    /// True if its processors and drives are on other hosts, where they are not observed.
    #[serde(default)]
    pub is_remote: bool,
}

impl SystemInfo {
    /// True if jobs may write to it without the permission to overwrite.
    pub fn is_writable(&self) -> bool {
        self.takes_drives || self.own_contents
    }
}

/// The guarantees of a system.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Guarantees {
    /// Durability: when data is safe.
    pub flush: String,
    /// Integrity: the data that is verified.
    pub checksums: String,
    /// Redundancy: the failures without data loss.
    pub protection: String,
}

/// The requirements of a run.
#[derive(Clone, Debug)]
pub struct Requirements<'a> {
    /// Maximum number of concurrent instances.
    pub instances: u32,
    /// Maximum bytes per instance.
    pub instance_bytes: Option<u64>,
    /// Number of targets of the run that exist at the same time, and may share the space of one
    /// cluster.
    pub concurrent_targets: u32,
    /// The run's drives.
    pub drives: &'a [PathBuf],
    /// Protection scheme of the suite, as k+m.
    pub scheme: Option<&'a str>,
    /// Number of pools of the suite.
    pub pools: u32,
    /// Processors per virtual machine in the suite's document, if it uses virtual machines.
    pub machine_cpus: Option<u32>,
    /// The kind of requests of the suite.
    pub workload: Workload,
    /// A folder for files and logs.
    pub folder: &'a Path,
    /// Set to interrupt the run.
    pub stop: &'a AtomicBool,
}

impl<'a> Requirements<'a> {
    /// Returns the drives of each of `pools` pools.
    ///
    /// # Errors
    /// If there are too few drives.
    pub fn groups(&self, pools: u32) -> Result<Vec<&'a [PathBuf]>, String> {
        let each = self.drives.len() / pools.max(1) as usize;
        if each == 0 {
            let drives = self.drives.len();
            return Err(format!(
                "{pools} pools need more drives than {drives}; specify them with --lab or --drives"
            ));
        }
        Ok(self.drives.chunks(each).take(pools.max(1) as usize).collect())
    }

    /// Returns the maximum number of instances per pool.
    pub fn share(&self, pools: u32) -> u32 {
        self.instances.div_ceil(pools.max(1)).max(1)
    }
}

/// A target of I/O and its size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetExtent {
    /// The target.
    pub target: Target,
    /// Size in bytes.
    pub bytes: u64,
}

/// A failed operation of a system.
#[derive(Debug, thiserror::Error)]
#[error("{system}: {operation}: {source}")]
pub struct SystemError {
    /// The system.
    pub system: String,
    /// The operation.
    pub operation: &'static str,
    /// The cause.
    pub source: Box<dyn std::error::Error + Send + Sync>,
}

impl SystemError {
    /// Returns the error of an operation of `system`.
    pub fn new(
        system: &str,
        operation: &'static str,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        Self { system: system.into(), operation, source: source.into() }
    }
}

/// A storage system to measure. Dropping it tears it down.
pub trait System: Send {
    /// Returns its description.
    fn info(&self) -> SystemInfo;

    /// True if it serves this kind of requests.
    fn serves(&self, workload: Workload) -> bool {
        workload == Workload::Blocks
    }

    /// Sets it up for a run.
    ///
    /// # Errors
    /// If that fails; nothing is left behind.
    fn set_up(&mut self, requirements: &Requirements<'_>) -> Result<(), SystemError>;

    /// Returns the targets for the instances.
    fn targets(&self) -> Vec<TargetExtent>;

    /// Returns its processes.
    fn processes(&self) -> Vec<u32>;

    /// Returns processes that only carry load, such as virtual machines.
    fn load_processes(&self) -> Vec<u32> {
        Vec::new()
    }

    /// Fails a drive of each of its pools and describes the change.
    ///
    /// # Errors
    /// If it cannot fail a drive.
    fn degrade(&mut self) -> Result<String, SystemError>;

    /// Removes everything that a killed run left behind, as recorded in its folder.
    ///
    /// # Errors
    /// If anything remains.
    fn clean_up(&mut self, _folder: &Path) -> Result<(), SystemError> {
        Ok(())
    }

    /// Removes everything it created.
    ///
    /// # Errors
    /// If anything remains.
    fn tear_down(&mut self) -> Result<(), SystemError>;
}

/// True if `path` is a block device.
pub(crate) fn is_device(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|data| data.file_type().is_block_device())
}

/// Returns the size of a file or block device that is not mounted.
pub(crate) fn file_size(path: &Path) -> Result<u64, Box<dyn std::error::Error + Send + Sync>> {
    use std::io::{Seek, SeekFrom};
    if let Some(user) = lab::user_of(path)? {
        return Err(format!("{} is in use by {user}", path.display()).into());
    }
    let at = |error: std::io::Error| format!("{}: {error}", path.display());
    let bytes = std::fs::File::open(path).map_err(at)?.seek(SeekFrom::End(0)).map_err(at)?;
    if bytes == 0 {
        return Err(format!("the size of {} is zero", path.display()).into());
    }
    Ok(bytes)
}

/// Interleaves the targets of all pools, so that few instances are spread over all pools.
pub fn interleave(pools: Vec<Vec<TargetExtent>>) -> Vec<TargetExtent> {
    let longest = pools.iter().map(Vec::len).max().unwrap_or(0);
    (0..longest)
        .flat_map(|index| pools.iter().filter_map(move |extents| extents.get(index).cloned()))
        .collect()
}
