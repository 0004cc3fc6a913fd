//! How long an opening takes after a crash, with files as drives: everything that was written since the last checkpoint is read and replayed.

use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use engine::{OpenOptions, Tuning};
use format::limits::BLOCK_BYTES;
use serde::Serialize;

use super::load;
use crate::engine_bench::BenchError;
use crate::{file_pool, memory_pool};

/// Writes kept under way.
const DEPTH: u32 = 64;
/// Bytes of the volume for each byte of log: not so many that checkpoints come sooner, because much of the map has changed.
const SPREAD: u64 = 4;
/// Bytes of a zone: as drives of a terabyte have, of which few enough are opened that no checkpoint comes for that.
const ZONE: u64 = 64 << 20;
/// Zones of a drive. Most of the file is never written.
const ZONES: u64 = 128;

/// What is measured.
#[derive(Clone, Debug)]
pub struct RecoveryOptions {
    /// Where the files go that stand for five drives; they are deleted at the end.
    pub directory: PathBuf,
    /// Bytes that are written in blocks before the crash, with no checkpoint between.
    pub log_bytes: u64,
}

/// What was measured.
#[derive(Clone, Debug, Serialize)]
pub struct Recovery {
    /// Bytes of blocks that were written since the last checkpoint.
    pub log_bytes: u64,
    /// Records that were replayed.
    pub records: u64,
    /// Seconds until the pool was open again.
    pub seconds: f64,
    /// Blocks that did not hold what was written.
    pub wrong: u64,
}

/// Measures.
///
/// # Errors
/// When the files cannot be made, or an operation fails.
pub fn measure_recovery(options: &RecoveryOptions, tell: impl FnMut(f64)) -> Result<Recovery, BenchError> {
    let place = tempfile::tempdir_in(&options.directory)?;
    let scheme = memory_pool::scheme();
    let bytes = options.log_bytes / u64::from(scheme.data()) * 2 + ZONES * ZONE;
    let files = file_pool::make(place.path(), scheme.width().into(), bytes)?;
    let tuning = Tuning { checkpoint_bytes: u64::MAX, ..Tuning::default() };
    file_pool::on_a_reactor(async |reactor| {
        let drives = file_pool::open(&files)?;
        let pool = memory_pool::pool_tuned(&drives, scheme, Some(ZONE), Vec::new(), tuning).await?;
        pool.create_volume("crashing", options.log_bytes * SPREAD, 4096, 0).await?;
        let volume = Rc::new(pool.open_volume("crashing").await?.attach());
        pool.checkpoint().await?;
        load::write(&volume, options.log_bytes / BLOCK_BYTES, DEPTH, tell).await?;
        volume.flush().await?;
        // The crash: nothing is closed.
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
        let (_, wrong) = load::read_again(&volume, options.log_bytes / BLOCK_BYTES).await?;
        pool.close().await?;
        Ok(Recovery { log_bytes: options.log_bytes, records: report.replayed as u64, seconds, wrong })
    })
}
