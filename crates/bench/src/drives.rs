//! The drives of a benchmark pool: memory, temporary files, or given devices.

use std::path::PathBuf;
use std::sync::Arc;

use engine::DriveSource;
use tempfile::TempDir;

use crate::engine_bench::BenchError;
use crate::{file_pool, memory_pool};

/// The kind of drives to run on.
#[derive(Clone, Debug)]
pub enum Drives {
    /// Memory drives.
    Memory,
    /// New files in this directory, deleted at the end.
    Files(PathBuf),
    /// These devices or files. Their contents are lost.
    Paths(Vec<PathBuf>),
}

/// Open drives. Dropping this deletes temporary files.
pub(crate) struct OpenDrives {
    pub(crate) drives: Vec<Arc<dyn DriveSource>>,
    _directory: Option<TempDir>,
}

impl Drives {
    /// Creates `count` drives of `bytes` bytes, unless paths are given, and opens them. Must run on
    /// a reactor's thread.
    pub(crate) fn open(&self, count: usize, bytes: u64) -> Result<OpenDrives, BenchError> {
        let (drives, directory) = match self {
            Self::Paths(paths) => (file_pool::open(paths)?, None),
            Self::Files(directory) => {
                let directory = tempfile::tempdir_in(directory)?;
                (file_pool::open(&file_pool::make(directory.path(), count, bytes)?)?, Some(directory))
            }
            Self::Memory => {
                let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
                (memory_pool::drives(count, bytes).map_err(BenchError::Memory)?, None)
            }
        };
        Ok(OpenDrives { drives, _directory: directory })
    }
}
