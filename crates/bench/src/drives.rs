//! The drives of a benchmark pool: zram devices, memory, temporary files, or given devices.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use engine::DriveSource;
use tempfile::TempDir;

use crate::bench_error::BenchError;
use crate::zram::{self, ZramDevice};
use crate::{file_pool, memory_pool};

/// The kind of drives to run on.
#[derive(Clone, Debug)]
pub enum Drives {
    /// New zram devices filled with random bytes, removed at the end.
    Zram,
    /// Memory drives of this process, which no kernel is involved in.
    Memory,
    /// New files in this directory, deleted at the end.
    Files(PathBuf),
    /// These devices or files. Their contents are lost.
    Paths(Vec<PathBuf>),
}

/// Open drives. Dropping this deletes temporary files and devices.
pub(crate) struct OpenDrives {
    pub(crate) drives: Vec<Arc<dyn DriveSource>>,
    _directory: Option<TempDir>,
    /// Dropped after the drives.
    _devices: Vec<ZramDevice>,
}

impl Drives {
    /// Returns zram devices where this process can create them, else memory drives.
    pub fn fastest() -> Self {
        if zram::is_available() { Self::Zram } else { Self::Memory }
    }

    /// Creates `count` drives of `bytes` bytes, unless paths are given, and opens them.
    pub(crate) fn open(&self, count: usize, bytes: u64) -> Result<OpenDrives, BenchError> {
        let (mut directory, mut devices) = (None, Vec::new());
        let drives = match self {
            Self::Paths(paths) => file_pool::open(paths)?,
            Self::Files(parent) => {
                let directory = directory.insert(tempfile::tempdir_in(parent)?);
                file_pool::open(&file_pool::make(directory.path(), count, bytes)?)?
            }
            Self::Memory => {
                let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
                memory_pool::drives(count, bytes).map_err(BenchError::Memory)?
            }
            Self::Zram => {
                for _ in 0..count {
                    devices.push(ZramDevice::create(bytes).map_err(BenchError::Zram)?);
                }
                file_pool::open(&devices.iter().map(ZramDevice::path).collect::<Vec<_>>())?
            }
        };
        Ok(OpenDrives { drives, _directory: directory, _devices: devices })
    }
}

impl fmt::Display for Drives {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Zram => f.write_str("zram devices"),
            Self::Memory => f.write_str("memory drives"),
            Self::Files(directory) => write!(f, "files in {}", directory.display()),
            Self::Paths(paths) => write!(f, "{} given drives", paths.len()),
        }
    }
}
