//! `bench rebuild`: the rebuild rate after a drive failure, compared with the limit of the drives,
//! and the latency of client reads during the rebuild.
//!
//! The limit is measured on the same drives just before the pool is created: the reads and writes
//! of a rebuild without its computation. Each piece reads one column from as many drives as there
//! are data columns and writes one to another drive, with as many pieces in flight as in a rebuild.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::{DriveSource, Pool, Tuning};
pub use format::Scheme;
use format::limits::BLOCK_BYTES;
use reactor::{Buffer, Drive, Io, Reactor};
use serde::Serialize;

use crate::bench_error::BenchError;
pub use crate::drives::Drives;
use crate::sample::Recorder;
use crate::volume_load::{BackgroundLoad, Operation, filled, wrong_in};
use crate::{file_pool, memory_pool};

/// Bytes per piece of the limit measurement.
const PIECE: u64 = 1 << 20;
/// Pieces in flight.
const PIECES_IN_FLIGHT: u64 = 4;
/// Size of the volume as a share of the pool's capacity.
const FILL: f64 = 0.7;
/// First byte, and maximum bytes, of the limit measurement on each drive.
const BOUND_FROM: u64 = 16 << 20;
const BOUND_BYTES: u64 = 512 << 20;
/// Client reads in flight while their latency is measured.
const USERS: u32 = 4;
/// Time of the latency measurement before the drive fails.
const BASELINE_TIME: Duration = Duration::from_secs(2);
/// Interval at which the rebuild's progress is polled.
const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// Parameters of the benchmark.
#[derive(Clone, Debug)]
pub struct RebuildOptions {
    /// Protection scheme of the pool.
    pub scheme: Scheme,
    /// Number of drives, more than the scheme has columns.
    pub count: usize,
    /// Kind of drives.
    pub drives: Drives,
    /// Bytes per drive, if they are created.
    pub drive_bytes: u64,
    /// Number of limit measurements; the best counts.
    pub rounds: u32,
}

/// Result of the benchmark.
#[derive(Clone, Debug, Serialize)]
pub struct RebuildResult {
    /// Protection scheme, k+m.
    pub scheme: String,
    /// Number of drives before the failure.
    pub drives: usize,
    /// Bytes of rebuilt columns.
    pub bytes: u64,
    /// Rebuild rate in bytes per second without client I/O.
    pub bytes_per_s: f64,
    /// Limit of the drives in bytes per second.
    pub bound_bytes_per_s: f64,
    /// Rebuild rate as a share of the limit.
    pub share: f64,
    /// Rebuild rate in bytes per second during client reads.
    pub bytes_per_s_used: f64,
    /// 99th percentile of client reads of 4 KiB before the failure, in microseconds.
    pub quiet_p99_us: f64,
    /// The same during the rebuild of the second drive.
    pub rebuilding_p99_us: f64,
    /// Client reads in flight.
    pub users: u32,
    /// Blocks with wrong contents.
    pub wrong: u64,
}

/// A callback that receives the name of each step.
pub type ProgressCallback<'a> = &'a mut dyn FnMut(&str);

/// Runs the benchmark.
///
/// # Errors
/// If the drives cannot be opened, the pool cannot be created, or an operation fails.
pub fn run(options: &RebuildOptions, progress: ProgressCallback<'_>) -> Result<RebuildResult, BenchError> {
    file_pool::on_a_reactor(async |_| {
        let opened = options.drives.open(options.count, options.drive_bytes)?;
        let drives = &opened.drives;
        progress("measuring the drives");
        let mut bound = 0.0_f64;
        for _ in 0..options.rounds {
            bound = bound.max(measure_limit(drives, options.scheme).await?);
        }
        let tuning = Tuning::default();
        let pool = memory_pool::pool_tuned(drives, options.scheme, None, Vec::new(), tuning).await?;
        let rebuilt = measure(&pool, options, bound, progress).await?;
        pool.close().await?;
        Ok(rebuilt)
    })
}

/// Returns the rate, in bytes per second, at which the drives can be read and written as in a
/// rebuild.
async fn measure_limit(drives: &[Arc<dyn DriveSource>], scheme: Scheme) -> Result<f64, BenchError> {
    let opened: Vec<Rc<dyn Drive>> = drives.iter().skip(1).map(|source| source.open()).collect();
    let data = usize::from(scheme.data());
    let smallest = opened.iter().map(|drive| drive.properties().size).min().unwrap_or(0);
    let pieces = (smallest.saturating_sub(BOUND_FROM).min(BOUND_BYTES) / PIECE).max(1);
    // The pieces are written first: otherwise reads of a sparse file would find holes.
    let fill = Buffer::new(usize::try_from(PIECE).unwrap_or(0));
    for drive in &opened {
        for piece in 0..pieces {
            drive.write(BOUND_FROM + piece * PIECE, &[fill.span()]).await.map_err(BenchError::Memory)?;
        }
        drive.flush().await.map_err(BenchError::Memory)?;
    }
    let next = Rc::new(Cell::new(0));
    let opened = Rc::new(opened);
    let start = Instant::now();
    let work = |opened: Rc<Vec<Rc<dyn Drive>>>, next: Rc<Cell<u64>>| async move {
        let buffers: Vec<Buffer> =
            (0..data).map(|_| Buffer::new(usize::try_from(PIECE).unwrap_or(0))).collect();
        loop {
            let piece = next.get();
            if piece >= pieces {
                return Ok(());
            }
            next.set(piece + 1);
            // The drive without a column of the piece rotates.
            let turn = usize::try_from(piece).unwrap_or(0);
            let at = |index: usize| opened.get((turn + index) % opened.len());
            let offset = BOUND_FROM + piece * PIECE;
            let reads: Vec<Io> = buffers
                .iter()
                .enumerate()
                .filter_map(|(index, buffer)| Some(at(index + 1)?.read(offset, &[buffer.span()])))
                .collect();
            for read in reads {
                read.await?;
            }
            if let (Some(drive), Some(buffer)) = (at(0), buffers.first()) {
                drive.write(offset, &[buffer.span()]).await?;
            }
        }
    };
    let reactor = Reactor::current();
    let tasks: Vec<_> =
        (0..PIECES_IN_FLIGHT).map(|_| reactor.spawn(work(opened.clone(), next.clone()))).collect();
    for task in tasks {
        let done: Result<(), reactor::IoError> = task.await;
        done.map_err(BenchError::Memory)?;
    }
    for drive in opened.iter() {
        drive.flush().await.map_err(BenchError::Memory)?;
    }
    #[allow(clippy::cast_precision_loss)]
    Ok((pieces * PIECE) as f64 / start.elapsed().as_secs_f64())
}

async fn measure(
    pool: &Pool,
    options: &RebuildOptions,
    bound: f64,
    progress: ProgressCallback<'_>,
) -> Result<RebuildResult, BenchError> {
    let capacity = pool.status().await?.space.capacity_blocks;
    // Two drives fail, one after the other: the remaining ones must still have room for the volume.
    let left = options.count.saturating_sub(2).max(usize::from(options.scheme.width())) as f64;
    #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let blocks = (capacity as f64 * FILL * left / options.count as f64) as u64;
    let size = blocks * BLOCK_BYTES;
    progress("filling the volume");
    let volume = filled(pool, "rebuilt", size).await?;
    pool.checkpoint().await?;

    progress("rebuilding without client I/O");
    let (bytes, seconds) = fail_and_rebuild(pool, 0).await?;
    progress("measuring read latency without a rebuild");
    let reading = BackgroundLoad::start((&volume, Operation::Reads, USERS));
    reading.count_from_now();
    Reactor::current().sleep(BASELINE_TIME).await;
    let quiet = reading.end().await?;
    let can_lose_another = options.count > usize::from(options.scheme.width()) + 1;
    let (mut bytes_used, mut seconds_used, mut during) = (0, 0.0, Recorder::new());
    if can_lose_another {
        progress("rebuilding during client reads");
        let reading = BackgroundLoad::start((&volume, Operation::Reads, USERS));
        reading.count_from_now();
        (bytes_used, seconds_used) = fail_and_rebuild(pool, 1).await?;
        during = reading.end().await?;
    }
    progress("verifying all blocks");
    let wrong = wrong_in(&volume, |_| {}).await? + quiet.wrong + during.wrong;
    #[allow(clippy::cast_precision_loss)]
    let rate = |bytes: u64, seconds: f64| if seconds > 0.0 { bytes as f64 / seconds } else { 0.0 };
    Ok(RebuildResult {
        scheme: options.scheme.to_string(),
        drives: options.count,
        bytes,
        bytes_per_s: rate(bytes, seconds),
        bound_bytes_per_s: bound,
        share: rate(bytes, seconds) / bound,
        bytes_per_s_used: rate(bytes_used, seconds_used),
        quiet_p99_us: quiet.percentile_us(0.99),
        rebuilding_p99_us: during.percentile_us(0.99),
        users: USERS,
        wrong,
    })
}

/// Fails a drive and waits until it is rebuilt. Returns the bytes rebuilt and the seconds.
async fn fail_and_rebuild(pool: &Pool, index: u16) -> engine::Result<(u64, f64)> {
    let start = Instant::now();
    pool.fail_drive(index).await?;
    loop {
        let status = pool.status().await?;
        if let Some(failure) = status.failure {
            return Err(failure);
        }
        if status.lost_drives() == 0 {
            return Ok((status.repair.bytes_done, start.elapsed().as_secs_f64()));
        }
        Reactor::current().sleep(POLL_INTERVAL).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rebuilds_are_measured_and_verified() {
        let place = tempfile::tempdir().unwrap();
        for drives in [Drives::Memory, Drives::Files(place.path().into())] {
            let options = RebuildOptions {
                scheme: Scheme::new(2, 1).unwrap(),
                count: 5,
                drives,
                drive_bytes: 128 << 20,
                rounds: 1,
            };
            let mut steps = Vec::new();
            let rebuilt = run(&options, &mut |step| steps.push(step.to_owned())).unwrap();
            assert_eq!((rebuilt.wrong, rebuilt.drives, steps.len()), (0, 5, 6), "{rebuilt:?}");
            assert!(rebuilt.bytes > 1 << 20 && rebuilt.bytes_per_s > 0.0, "{rebuilt:?}");
            assert!(rebuilt.bound_bytes_per_s > 0.0 && rebuilt.bytes_per_s_used > 0.0, "{rebuilt:?}");
            assert!(rebuilt.quiet_p99_us > 0.0 && rebuilt.rebuilding_p99_us > 0.0, "{rebuilt:?}");
        }
        assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 0);
    }
}
