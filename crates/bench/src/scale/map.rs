//! `bench map`: random writes to a large volume with little memory for its map.

use std::rc::Rc;

use engine::{Pool, Tuning};
use serde::Serialize;

use super::load;
use crate::bench_error::BenchError;
use crate::memory_pool;

/// Writes in flight.
const DEPTH: u32 = 32;
/// Zone size in bytes: small, for as many segments as real drives have.
const ZONE: u64 = 1 << 20;
/// Bytes of a leaf of the map, which covers 1 MiB of the volume.
const LEAF: u64 = 4096;

/// Parameters of the benchmark.
#[derive(Clone, Copy, Debug)]
pub struct MapOptions {
    /// Bytes of the volume.
    pub volume_bytes: u64,
    /// Memory limit of the map, in bytes.
    pub map_bytes: u64,
    /// Bytes of each of five memory drives.
    pub drive_bytes: usize,
    /// Number of blocks to write.
    pub writes: u64,
}

/// Result of the benchmark.
#[derive(Clone, Debug, Serialize)]
pub struct MapCost {
    /// Bytes of the volume.
    pub volume_bytes: u64,
    /// Memory limit of the map, in bytes.
    pub map_bytes: u64,
    /// Memory of the map's nodes at the end, in bytes.
    pub map_used_bytes: u64,
    /// Memory that all leaves of the volume would need, in bytes.
    pub map_whole_bytes: u64,
    /// Number of written blocks.
    pub writes: u64,
    /// Writes in flight.
    pub queue_depth: u32,
    /// Writes per second.
    pub iops: f64,
    /// Median write latency in microseconds.
    pub p50_us: f64,
    /// 99.9th percentile of the write latency, in microseconds.
    pub p999_us: f64,
    /// Longest time without a completed write, in milliseconds.
    pub longest_pause_ms: f64,
    /// The same in processor time of the thread, which excludes time taken by other programs.
    pub longest_busy_ms: f64,
    /// Checkpoints during the run.
    pub checkpoints: u64,
    /// Map blocks written per user block.
    pub map_per_write: f64,
    /// Reads per second at queue depth 1.
    pub reads_per_s: f64,
    /// Blocks with wrong contents.
    pub wrong: u64,
}

/// Runs the benchmark.
///
/// # Errors
/// If the pool cannot be created or an operation fails.
pub fn measure_map(options: &MapOptions, progress: impl FnMut(f64)) -> Result<MapCost, BenchError> {
    let scheme = memory_pool::scheme();
    let drives =
        memory_pool::drives(usize::from(scheme.width()), options.drive_bytes).map_err(BenchError::Memory)?;
    let reactor = memory_pool::reactor();
    let result = reactor.run(async {
        let tuning = Tuning { map_bytes: options.map_bytes, ..Tuning::default() };
        let pool = memory_pool::pool_tuned(&drives, scheme, Some(ZONE), Vec::new(), tuning).await?;
        let cost = measure(&pool, options, progress).await?;
        pool.close().await?;
        Ok(cost)
    });
    reactor.shut_down();
    result
}

async fn measure(pool: &Pool, options: &MapOptions, progress: impl FnMut(f64)) -> engine::Result<MapCost> {
    pool.create_volume("large", options.volume_bytes, 4096, 0).await?;
    let volume = Rc::new(pool.open_volume("large").await?.attach());
    let written = load::write(&volume, options.writes, DEPTH, progress).await?;
    let status = pool.status().await?;
    let sum = |of: fn(&engine::ShardCounters) -> u64| status.shards.iter().map(of).sum::<u64>();
    let (reads_per_s, wrong) = load::verify(&volume, options.writes / 10).await?;
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
