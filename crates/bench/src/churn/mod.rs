//! `bench churn`: steady-state random overwrite of a pool, which shows the cost of garbage
//! collection.
//!
//! One reactor core, memory drives, all checks on, as in `bench engine`. A volume with the given
//! share of the pool's capacity is overwritten in blocks of 4 KiB and measured in windows of a
//! quarter of its size. The same load on the new pool, before any cleaning, is the reference. At
//! the end every block is read and verified.

mod analytic;
mod load;
mod result;

use std::rc::Rc;

use engine::{Pool, PoolStatus};
pub use format::Scheme;
use format::limits::BLOCK_BYTES;

pub use analytic::greedy_amplification;
pub use result::{Amplification, Churn, ChurnWindow};

use crate::bench_error::BenchError;
use crate::draw::Distribution;
use crate::memory_pool;
use crate::volume_load::{fill, wrong_in};
use load::ChurnLoad;

/// Windows per overwrite of the volume.
const WINDOWS: u32 = 4;
/// Maximum relative difference in write amplification between two overwrites of a settled pool.
const SETTLED: f64 = 0.03;
/// Zone size in bytes: small, so that drives of a gigabyte have as many segments as real ones and
/// pay as small a share for reserves.
const ZONE: u64 = 1 << 20;

/// Parameters of the benchmark.
#[derive(Clone, Copy, Debug)]
pub struct ChurnOptions {
    /// Protection scheme of the pool.
    pub scheme: Scheme,
    /// Bytes of each memory drive.
    pub drive_bytes: usize,
    /// Size of the volume as a share of the pool's capacity, between 0 and 1.
    pub fill: f64,
    /// Distribution of the overwrites.
    pub distribution: Distribution,
    /// Number of overwrites of the whole volume.
    pub overwrites: u32,
    /// Writes in flight.
    pub queue_depth: u32,
    /// Seed of the random sequence.
    pub seed: u64,
}

/// A progress report.
#[derive(Clone, Copy, Debug)]
pub enum ChurnStep<'a> {
    /// The volume is being filled: share done.
    Filling(f64),
    /// A window was measured.
    Measured(&'a ChurnWindow),
    /// Every block is being verified: share done.
    Verifying(f64),
}

/// Runs the benchmark.
///
/// # Errors
/// If the pool cannot be created or an operation fails, for example when the volume does not fit.
pub fn run(options: &ChurnOptions, mut progress: impl FnMut(ChurnStep<'_>)) -> Result<Churn, BenchError> {
    let drives = memory_pool::drives(usize::from(options.scheme.width()), options.drive_bytes)
        .map_err(BenchError::Memory)?;
    let reactor = memory_pool::reactor();
    let result = reactor.run(async {
        let pool = memory_pool::pool_on(&drives, options.scheme, Some(ZONE), Vec::new()).await?;
        let churn = measure(&pool, options, &mut progress).await?;
        pool.close().await?;
        Ok(churn)
    });
    reactor.shut_down();
    result
}

async fn measure(
    pool: &Pool,
    options: &ChurnOptions,
    progress: &mut impl FnMut(ChurnStep<'_>),
) -> Result<Churn, BenchError> {
    let status = pool.status().await?;
    let size = blocks(status.space.capacity_blocks, options.fill) * BLOCK_BYTES;
    let raw = data_bytes(&status);
    pool.create_volume("churn", size, 4096, 0).await?;
    let volume = Rc::new(pool.open_volume("churn").await?.attach());
    let load = ChurnLoad::new(&volume, size / BLOCK_BYTES, options);

    let fresh = load.run_window(pool, size / BLOCK_BYTES / u64::from(WINDOWS), 0.0).await?;
    fill(&volume, |share| progress(ChurnStep::Filling(share))).await?;
    let mut windows = Vec::new();
    for number in 1..=options.overwrites * WINDOWS {
        let written = f64::from(number) / f64::from(WINDOWS);
        let window = load.run_window(pool, size / BLOCK_BYTES / u64::from(WINDOWS), written).await?;
        progress(ChurnStep::Measured(&window));
        windows.push(window);
    }
    let status = pool.status().await?;
    let wrong = wrong_in(&volume, |share| progress(ChurnStep::Verifying(share))).await?;
    let (last, before) = (last_overwrite(&windows, 0), last_overwrite(&windows, 1));
    #[allow(clippy::cast_precision_loss)]
    let raw_fill = size as f64 / raw as f64;
    let change = |before: &ChurnWindow, last: &ChurnWindow| {
        (last.amplification.total() / before.amplification.total() - 1.0).abs()
    };
    Ok(Churn {
        scheme: options.scheme.to_string(),
        distribution: options.distribution,
        fill: options.fill,
        raw_fill,
        drive_bytes: options.drive_bytes as u64,
        volume_bytes: size,
        queue_depth: options.queue_depth,
        settled: matches!((&before, &last), (Some(before), Some(last)) if change(before, last) <= SETTLED),
        fresh,
        steady: last.unwrap_or_default(),
        windows,
        greedy: greedy_amplification(options.fill),
        greedy_raw: greedy_amplification(raw_fill),
        segments: status.shards.first().map(|shard| shard.segments).unwrap_or_default(),
        wrong,
    })
}

/// Returns the data capacity of the pool's drives without parity, including the pool's own
/// reserves.
fn data_bytes(status: &PoolStatus) -> u64 {
    status.space.zones / u64::from(status.scheme.width())
        * status.zone_bytes
        * u64::from(status.scheme.data())
}

#[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn blocks(all: u64, share: f64) -> u64 {
    (all as f64 * share) as u64
}

/// Returns the merged windows of the last overwrite of the volume, or of the one `earlier`
/// overwrites before.
fn last_overwrite(windows: &[ChurnWindow], earlier: usize) -> Option<ChurnWindow> {
    ChurnWindow::merged(windows.rchunks_exact(WINDOWS as usize).nth(earlier)?)
}

#[cfg(test)]
mod tests;
