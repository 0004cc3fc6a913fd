//! `bench snapshots`: the cost of snapshots. Rates of creation and deletion, the pause of a busy
//! volume's writes during a snapshot, and the latency of reads through many snapshots.
//!
//! One reactor core, memory drives, all checks on, as in `bench engine`. Each part runs on a pool
//! of its own. Every read is verified.

mod depth;
mod load;
mod pause;
mod rates;

use std::rc::Rc;

use engine::{AttachedVolume, Pool};
use format::limits::BLOCK_BYTES;
use reactor::Buffer;
use serde::Serialize;

pub use depth::Depth;
pub use pause::Pause;
pub use rates::Rates;

use crate::bench_error::BenchError;
use crate::{block_stamps, memory_pool};

/// Bytes of each memory drive per byte of a volume.
const DRIVE: u64 = 8;
/// Zones per volume size.
const ZONES: u64 = 128;

/// Parameters of the benchmark.
#[derive(Clone, Copy, Debug)]
pub struct SnapshotOptions {
    /// Bytes of each volume, a multiple of 1 MiB; a memory drive has eight times as many.
    pub volume_bytes: u64,
    /// Number of snapshots to create and delete.
    pub snapshots: u32,
    /// Blocks to overwrite between two snapshots.
    pub changes: u32,
    /// Seconds per read job and round.
    pub seconds: f64,
    /// Number of rounds; the jobs alternate, and medians count.
    pub rounds: u32,
}

/// Result of the benchmark.
#[derive(Clone, Debug, Serialize)]
pub struct Snapshots {
    /// Creation and deletion.
    pub rates: Rates,
    /// Pauses of a busy volume.
    pub pause: Pause,
    /// Reads through snapshots.
    pub depths: Vec<Depth>,
    /// Blocks with wrong contents. The result is invalid unless this is 0.
    pub wrong: u64,
}

/// Runs the benchmark. Calls `progress` with the name of each part.
///
/// # Errors
/// If a pool cannot be created or an operation fails.
pub fn run(options: &SnapshotOptions, mut progress: impl FnMut(&str)) -> Result<Snapshots, BenchError> {
    let reactor = memory_pool::reactor();
    let result = reactor.run(async {
        progress("creating and deleting snapshots");
        let rates = on_a_pool(options, async |pool| rates::measure(&pool, options).await).await?;
        progress("creating snapshots of a busy volume");
        let pause = on_a_pool(options, async |pool| pause::measure(&pool, options).await).await?;
        progress("reading through snapshots");
        let (depths, wrong) = on_a_pool(options, async |pool| depth::measure(&pool, options).await).await?;
        Ok(Snapshots { rates, pause, depths, wrong })
    });
    reactor.shut_down();
    result
}

/// Runs a part on a new pool.
async fn on_a_pool<T>(
    options: &SnapshotOptions,
    part: impl AsyncFnOnce(Pool) -> engine::Result<T>,
) -> Result<T, BenchError> {
    let scheme = memory_pool::scheme();
    let bytes = usize::try_from(options.volume_bytes * DRIVE).unwrap_or(usize::MAX);
    let drives = memory_pool::drives(usize::from(scheme.width()), bytes).map_err(BenchError::Memory)?;
    // As many segments as on drives of common sizes.
    let zone = (options.volume_bytes / ZONES).next_power_of_two().clamp(64 << 10, 1 << 20);
    let pool = memory_pool::pool_on(&drives, scheme, Some(zone), Vec::new()).await?;
    let result = part(pool.clone()).await?;
    pool.close().await?;
    Ok(result)
}

/// Creates a volume and writes every block of it.
async fn filled(pool: &Pool, name: &str, options: &SnapshotOptions) -> engine::Result<Rc<AttachedVolume>> {
    crate::volume_load::filled(pool, name, options.volume_bytes).await
}

/// Overwrites blocks, one after the other.
async fn change(volume: &AttachedVolume, draw: &mut crate::draw::Draw, blocks: u32) -> engine::Result<()> {
    let mut buffer = Buffer::new(4096);
    buffer.as_mut_slice().fill(0xA5);
    for _ in 0..blocks {
        let offset = draw.next() * BLOCK_BYTES;
        block_stamps::stamp(buffer.as_mut_slice(), offset);
        volume.write(offset, &buffer.span()).await?;
    }
    Ok(())
}

/// Returns a uniform random source of a volume's blocks.
fn draw(volume: &AttachedVolume) -> crate::draw::Draw {
    crate::draw::Draw::new(crate::draw::Distribution::Uniform, volume.size() / BLOCK_BYTES, 1)
}

#[cfg(test)]
mod tests;
