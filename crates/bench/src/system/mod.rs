//! What is measured: the trait behind which every system stands.
//!
//! Always true: what is mounted or held is refused. Must not know: any system.

mod given;

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use serde::{Deserialize, Serialize};

use crate::bounds::Layout;
use crate::lab;
use crate::load::Target;

pub use given::Given;

/// What a system says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SystemInfo {
    /// Its name in tables.
    pub name: String,
    /// What it is and how it is set up.
    pub what: String,
    /// What it promises for what it does.
    pub promises: Guarantees,
    /// It takes the run's drives for itself: others must wait until it is taken down.
    pub takes_drives: bool,
    /// It can lose a drive on request.
    pub degrades: bool,
    /// How it lies on the drives, which bounds depend on; nothing if that is not known.
    #[serde(default)]
    pub layout: Option<Layout>,
    /// What must be said beside each of its figures, in a few words.
    #[serde(default)]
    pub remark: Option<String>,
}

/// What a figure is worth.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Guarantees {
    /// When data is safe.
    pub flush: String,
    /// What is verified.
    pub checksums: String,
    /// What may be lost.
    pub protection: String,
}

/// What a run wants of a system.
#[derive(Clone, Debug)]
pub struct Requirements<'a> {
    /// Instances that will work at the same time, at most.
    pub instances: u32,
    /// Bytes for each, at most.
    pub instance_bytes: Option<u64>,
    /// The run's drives.
    pub drives: &'a [PathBuf],
    /// Protection that the suite asks for, as k+m.
    pub scheme: Option<&'a str>,
    /// Pools side by side that the suite asks for.
    pub pools: u32,
    /// Processors of each machine of the suite's document, if it is about machines.
    pub machine_cpus: Option<u32>,
    /// A folder for files and logs.
    pub folder: &'a Path,
    /// Set when it is to end early.
    pub stop: &'a AtomicBool,
}

impl<'a> Requirements<'a> {
    /// The drives of each of `pools` pools.
    ///
    /// # Errors
    /// When there are too few.
    pub fn groups(&self, pools: u32) -> Result<Vec<&'a [PathBuf]>, String> {
        let each = self.drives.len() / pools.max(1) as usize;
        if each == 0 {
            let drives = self.drives.len();
            return Err(format!(
                "{pools} pools need more drives than {drives}: name them with --lab or --drives"
            ));
        }
        Ok(self.drives.chunks(each).take(pools.max(1) as usize).collect())
    }

    /// Instances that work on each of `pools` pools at most.
    pub fn share(&self, pools: u32) -> u32 {
        self.instances.div_ceil(pools.max(1)).max(1)
    }
}

/// A place that instances work on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetExtent {
    /// Where fio finds it.
    pub target: Target,
    /// Its bytes.
    pub bytes: u64,
}

/// Something that was wrong with a system.
#[derive(Debug, thiserror::Error)]
#[error("{system}: {doing}: {source}")]
pub struct SystemError {
    /// Which.
    pub system: String,
    /// What it was to do.
    pub doing: &'static str,
    /// Why it failed.
    pub source: Box<dyn std::error::Error + Send + Sync>,
}

impl SystemError {
    /// An error of the system `system` in `doing` something.
    pub fn new(
        system: &str,
        doing: &'static str,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        Self { system: system.into(), doing, source: source.into() }
    }
}

/// A system under measurement. Dropping one takes it down.
pub trait System: Send {
    /// What it says of itself.
    fn about(&self) -> SystemInfo;

    /// Makes it ready for a run.
    ///
    /// # Errors
    /// Why that cannot be; nothing is left behind then.
    fn set_up(&mut self, wish: &Requirements<'_>) -> Result<(), SystemError>;

    /// Where the instances work.
    fn spots(&self) -> Vec<TargetExtent>;

    /// Its processes.
    fn processes(&self) -> Vec<u32>;

    /// Processes that only carry the load, as machines do.
    fn loads(&self) -> Vec<u32> {
        Vec::new()
    }

    /// Loses a drive of each of its pools; says what was done.
    ///
    /// # Errors
    /// When it cannot.
    fn degrade(&mut self) -> Result<String, SystemError>;

    /// Takes away what a run that was killed has left, of which there are notes in its folder.
    ///
    /// # Errors
    /// What is left, and why.
    fn clean_up(&mut self, _folder: &Path) -> Result<(), SystemError> {
        Ok(())
    }

    /// Takes away what was made.
    ///
    /// # Errors
    /// What is left, and why.
    fn tear_down(&mut self) -> Result<(), SystemError>;
}

/// Bytes of a file or block device that nobody has mounted.
pub(crate) fn file_size(path: &Path) -> Result<u64, Box<dyn std::error::Error + Send + Sync>> {
    use std::io::{Seek, SeekFrom};
    if let Some(user) = lab::user_of(path)? {
        return Err(format!("{} is in use by {user}", path.display()).into());
    }
    let at = |error: std::io::Error| format!("{}: {error}", path.display());
    let bytes = std::fs::File::open(path).map_err(at)?.seek(SeekFrom::End(0)).map_err(at)?;
    if bytes == 0 {
        return Err(format!("{} has no bytes", path.display()).into());
    }
    Ok(bytes)
}

/// The first place of each pool, the second of each, and so on: few instances are spread over all pools.
pub fn interleave(pools: Vec<Vec<TargetExtent>>) -> Vec<TargetExtent> {
    let longest = pools.iter().map(Vec::len).max().unwrap_or(0);
    (0..longest).flat_map(|index| pools.iter().filter_map(move |spots| spots.get(index).cloned())).collect()
}
