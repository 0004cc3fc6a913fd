//! `bench snapshots`: what snapshots cost. How fast they are taken and deleted, how long a busy volume's writes pause while one is taken, and
//! how much slower a block is read that lies many snapshots below.
//!
//! One reactor core, memory drives, everything on, as in `bench engine`. The parts run on pools of their own. Every read is looked at.
//!
//! Must not know: how the engine keeps snapshots.

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

use crate::engine_bench::BenchError;
use crate::{block_stamps, memory_pool};

/// Bytes of each memory drive, for each byte of a volume.
const DRIVE: u64 = 8;
/// Zones that a volume's bytes would fill.
const ZONES: u64 = 128;

/// What is measured.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Bytes of each volume, a multiple of 1 MiB; a memory drive has eight times as many.
    pub volume_bytes: u64,
    /// Snapshots that are taken and deleted.
    pub snapshots: u32,
    /// Blocks that are overwritten between one snapshot and the next.
    pub changes: u32,
    /// How long each job of reads runs in each round, in seconds.
    pub seconds: f64,
    /// How often each of them is run, in turns; medians count.
    pub rounds: u32,
}

/// What was measured.
#[derive(Clone, Debug, Serialize)]
pub struct Snapshots {
    /// Taking and deleting.
    pub rates: Rates,
    /// What a busy volume notices.
    pub pause: Pause,
    /// Reads through snapshots.
    pub depths: Vec<Depth>,
    /// Blocks that did not hold what was written; anything but 0 makes all of it worthless.
    pub wrong: u64,
}

/// Measures; tells before each part what it is.
///
/// # Errors
/// When a pool cannot be made or an operation fails.
pub fn run(options: &Options, mut tell: impl FnMut(&str)) -> Result<Snapshots, BenchError> {
    let reactor = memory_pool::reactor();
    let result = reactor.run(async {
        tell("taking and deleting snapshots");
        let rates = on_a_pool(options, async |pool| rates::measure(&pool, options).await).await?;
        tell("taking snapshots of a busy volume");
        let pause = on_a_pool(options, async |pool| pause::measure(&pool, options).await).await?;
        tell("reading through snapshots");
        let (depths, wrong) = on_a_pool(options, async |pool| depth::measure(&pool, options).await).await?;
        Ok(Snapshots { rates, pause, depths, wrong })
    });
    reactor.shut_down();
    result
}

/// A fresh pool for a part.
async fn on_a_pool<T>(
    options: &Options,
    part: impl AsyncFnOnce(Pool) -> engine::Result<T>,
) -> Result<T, BenchError> {
    let scheme = memory_pool::scheme();
    let bytes = usize::try_from(options.volume_bytes * DRIVE).unwrap_or(usize::MAX);
    let drives = memory_pool::drives(usize::from(scheme.width()), bytes).map_err(BenchError::Memory)?;
    // As many segments as drives of the usual sizes have.
    let zone = (options.volume_bytes / ZONES).next_power_of_two().clamp(64 << 10, 1 << 20);
    let pool = memory_pool::pool_on(&drives, scheme, Some(zone), Vec::new()).await?;
    let result = part(pool.clone()).await?;
    pool.close().await?;
    Ok(result)
}

/// A new volume, every block of it written.
async fn filled(pool: &Pool, name: &str, options: &Options) -> engine::Result<Rc<AttachedVolume>> {
    crate::volume_load::filled(pool, name, options.volume_bytes).await
}

/// Overwrites blocks, one after the other.
async fn change(volume: &AttachedVolume, draw: &mut crate::churn::Draw, blocks: u32) -> engine::Result<()> {
    let mut buffer = Buffer::new(4096);
    buffer.as_mut_slice().fill(0xA5);
    for _ in 0..blocks {
        let offset = draw.next() * BLOCK_BYTES;
        block_stamps::stamp(buffer.as_mut_slice(), offset);
        volume.write(offset, &buffer.span()).await?;
    }
    Ok(())
}

/// A uniform draw of a volume's blocks.
fn draw(volume: &AttachedVolume) -> crate::churn::Draw {
    crate::churn::Draw::new(crate::churn::Distribution::Uniform, volume.size() / BLOCK_BYTES, 1)
}

#[cfg(test)]
mod tests;
