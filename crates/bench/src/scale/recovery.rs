//! `bench recovery`: the time to open a pool on files after a crash. Opening replays all records
//! since the last checkpoint.

use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use engine::{OpenOptions, Tuning};
use format::limits::BLOCK_BYTES;
use serde::Serialize;

use super::load;
use crate::bench_error::BenchError;
use crate::{file_pool, memory_pool};

/// Writes in flight.
const DEPTH: u32 = 64;
/// Bytes of the volume per byte of log: few enough that changes of the map do not trigger an early
/// checkpoint.
const SPREAD: u64 = 4;
/// Zone size in bytes: as on drives of a terabyte, so that few zones are opened and none triggers a
/// checkpoint.
const ZONE: u64 = 64 << 20;
/// Zones per drive. Most of the file is never written.
const ZONES: u64 = 128;

/// Parameters of the benchmark.
#[derive(Clone, Debug)]
pub struct RecoveryOptions {
    /// Directory for the files of five drives, deleted at the end.
    pub directory: PathBuf,
    /// Bytes of blocks to write before the crash, without a checkpoint.
    pub log_bytes: u64,
}

/// Result of the benchmark.
#[derive(Clone, Debug, Serialize)]
pub struct Recovery {
    /// Bytes of blocks written since the last checkpoint.
    pub log_bytes: u64,
    /// Replayed records.
    pub records: u64,
    /// Seconds to open the pool.
    pub seconds: f64,
    /// Blocks with wrong contents.
    pub wrong: u64,
}

/// Runs the benchmark.
///
/// # Errors
/// If the files cannot be created or an operation fails.
pub fn measure_recovery(
    options: &RecoveryOptions,
    progress: impl FnMut(f64),
) -> Result<Recovery, BenchError> {
    let directory = tempfile::tempdir_in(&options.directory)?;
    let scheme = memory_pool::scheme();
    let bytes = options.log_bytes / u64::from(scheme.data()) * 2 + ZONES * ZONE;
    let files = file_pool::make(directory.path(), scheme.width().into(), bytes)?;
    let tuning = Tuning { checkpoint_bytes: u64::MAX, ..Tuning::default() };
    file_pool::on_a_reactor(async |reactor| {
        let drives = file_pool::open(&files)?;
        let pool = memory_pool::pool_tuned(&drives, scheme, Some(ZONE), Vec::new(), tuning).await?;
        pool.create_volume("crashing", options.log_bytes * SPREAD, 4096, 0).await?;
        let volume = Rc::new(pool.open_volume("crashing").await?.attach());
        pool.checkpoint().await?;
        load::write(&volume, options.log_bytes / BLOCK_BYTES, DEPTH, progress).await?;
        volume.flush().await?;
        // The crash: the pool is not closed.
        reactor.shut_down();
        Ok(())
    })?;
    file_pool::on_a_reactor(async |_| {
        let drives = file_pool::open(&files)?;
        let start = Instant::now();
        let opening = OpenOptions {
            tuning,
            reactors: Vec::new(),
            nonce: 2,
            now: Arc::new(|| 0),
            state_store: None,
            accept_stale: false,
        };
        let (pool, report) = engine::open(&drives, &opening).await?;
        let seconds = start.elapsed().as_secs_f64();
        let volume = pool.open_volume("crashing").await?.attach();
        let (_, wrong) = load::verify(&volume, options.log_bytes / BLOCK_BYTES).await?;
        pool.close().await?;
        Ok(Recovery { log_bytes: options.log_bytes, records: report.replayed as u64, seconds, wrong })
    })
}
