//! A large volume that is written anywhere, with little memory for its map.

use std::rc::Rc;

use engine::{Pool, Tuning};
use serde::Serialize;

use super::load;
use crate::engine_bench::BenchError;
use crate::memory_pool;

/// Writes kept under way.
const DEPTH: u32 = 32;
/// Bytes of a zone: small, for as many segments as real drives have.
const ZONE: u64 = 1 << 20;
/// Bytes of the map for each MiB that has ever been written to: a leaf.
const LEAF: u64 = 4096;

/// What is measured.
#[derive(Clone, Copy, Debug)]
pub struct MapOptions {
    /// Bytes of the volume.
    pub volume_bytes: u64,
    /// Memory for the map.
    pub map_bytes: u64,
    /// Bytes of each of five memory drives.
    pub drive_bytes: usize,
    /// Blocks that are written.
    pub writes: u64,
}

/// What was measured.
#[derive(Clone, Debug, Serialize)]
pub struct MapCost {
    /// Bytes of the volume.
    pub volume_bytes: u64,
    /// Memory for the map.
    pub map_bytes: u64,
    /// Memory that the nodes of the map took at the end.
    pub map_used_bytes: u64,
    /// What the leaves alone would take if all were in memory that the volume may have.
    pub map_whole_bytes: u64,
    /// Blocks that were written.
    pub writes: u64,
    /// Writes kept under way.
    pub queue_depth: u32,
    /// Writes a second.
    pub iops: f64,
    /// Median time of a write, in microseconds.
    pub p50_us: f64,
    /// 99.9th percentile, in microseconds.
    pub p999_us: f64,
    /// The longest time in which no write ended, in milliseconds.
    pub longest_pause_ms: f64,
    /// The same in processor time of the thread: without what others on the machine took.
    pub longest_busy_ms: f64,
    /// Checkpoints meanwhile.
    pub checkpoints: u64,
    /// Blocks of the map that were written for each block of users'.
    pub map_per_write: f64,
    /// Reads of what was written a second, one at a time.
    pub reads_per_s: f64,
    /// Blocks that did not hold what was written.
    pub wrong: u64,
}

/// Measures.
///
/// # Errors
/// When the pool cannot be made or an operation fails.
pub fn measure_map(options: &MapOptions, tell: impl FnMut(f64)) -> Result<MapCost, BenchError> {
    let scheme = memory_pool::scheme();
    let drives =
        memory_pool::drives(usize::from(scheme.width()), options.drive_bytes).map_err(BenchError::Memory)?;
    let reactor = memory_pool::reactor();
    let result = reactor.run(async {
        let tuning = Tuning { map_bytes: options.map_bytes, ..Tuning::default() };
        let pool = memory_pool::pool_tuned(&drives, scheme, Some(ZONE), Vec::new(), tuning).await?;
        let cost = measure(&pool, options, tell).await?;
        pool.close().await?;
        Ok(cost)
    });
    reactor.shut_down();
    result
}

async fn measure(pool: &Pool, options: &MapOptions, tell: impl FnMut(f64)) -> engine::Result<MapCost> {
    pool.create_volume("large", options.volume_bytes, 4096, 0).await?;
    let volume = Rc::new(pool.open_volume("large").await?.attach());
    let written = load::write(&volume, options.writes, DEPTH, tell).await?;
    let status = pool.status().await?;
    let sum = |of: fn(&engine::ShardCounters) -> u64| status.shards.iter().map(of).sum::<u64>();
    let (reads_per_s, wrong) = load::read_again(&volume, options.writes / 10).await?;
    #[allow(clippy::cast_precision_loss)]
    Ok(MapCost {
        volume_bytes: options.volume_bytes,
        map_bytes: options.map_bytes,
        map_used_bytes: sum(|shard| shard.map_nodes) * LEAF,
        map_whole_bytes: options.volume_bytes.div_ceil(LEAF * 256) * LEAF,
        writes: options.writes,
        queue_depth: DEPTH,
        iops: options.writes as f64 / written.seconds,
        p50_us: written.recorder.percentile_us(0.5),
        p999_us: written.recorder.percentile_us(0.999),
        longest_pause_ms: written.longest_pause.as_secs_f64() * 1e3,
        longest_busy_ms: written.longest_busy.as_secs_f64() * 1e3,
        checkpoints: sum(|shard| shard.checkpoints),
        map_per_write: sum(|shard| shard.log.map_blocks) as f64 / sum(|shard| shard.log.user_blocks) as f64,
        reads_per_s,
        wrong,
    })
}
