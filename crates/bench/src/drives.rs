//! Which drives a benchmark of pools runs on: memory, files that it makes, or what it is given.

use std::path::PathBuf;
use std::sync::Arc;

use engine::DriveSource;
use tempfile::TempDir;

use crate::engine_bench::BenchError;
use crate::{file_pool, memory_pool};

/// What the drives are.
#[derive(Clone, Debug)]
pub enum Drives {
    /// Memory.
    Memory,
    /// New files in this directory, which are deleted at the end.
    Files(PathBuf),
    /// These devices or files, whose contents are lost.
    Paths(Vec<PathBuf>),
}

/// Drives that can be used; what was made for them is gone with this.
pub(crate) struct Opened {
    pub(crate) drives: Vec<Arc<dyn DriveSource>>,
    _place: Option<TempDir>,
}

impl Drives {
    /// Makes `count` drives of this many bytes, unless they are there, and opens them. On a reactor's thread.
    pub(crate) fn open(&self, count: usize, bytes: u64) -> Result<Opened, BenchError> {
        let (drives, place) = match self {
            Self::Paths(paths) => (file_pool::open(paths)?, None),
            Self::Files(directory) => {
                let place = tempfile::tempdir_in(directory)?;
                (file_pool::open(&file_pool::make(place.path(), count, bytes)?)?, Some(place))
            }
            Self::Memory => {
                let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
                (memory_pool::drives(count, bytes).map_err(BenchError::Memory)?, None)
            }
        };
        Ok(Opened { drives, _place: place })
    }
}
