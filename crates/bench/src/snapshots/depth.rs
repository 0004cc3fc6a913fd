//! Read latency of blocks that are many snapshots below the volume.

use std::rc::Rc;
use std::time::{Duration, Instant};

use engine::{AttachedVolume, Pool};
use format::limits::BLOCK_BYTES;
use serde::Serialize;

use super::{SnapshotOptions, change, draw, filled, load};

/// Numbers of snapshots above most blocks, measured in alternation.
const DEPTHS: [u32; 4] = [0, 1, 10, 100];
/// Reads in flight.
const QUEUE_DEPTHS: [u32; 2] = [64, 1];
/// One of this many blocks is overwritten after each snapshot, so that every layer has blocks
/// nearly everywhere.
const CHANGED: u64 = 100;

/// Random reads of 4 KiB from a volume with snapshots.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Depth {
    /// Snapshots of the volume.
    pub snapshots: u32,
    /// Reads in flight.
    pub queue_depth: u32,
    /// Reads per second: the median of the rounds.
    pub iops: f64,
    /// Latency relative to a volume without snapshots: the median of the rounds' ratios.
    pub times_longer: f64,
}

/// Returns the results, and the number of wrong blocks.
pub(super) async fn measure(pool: &Pool, options: &SnapshotOptions) -> engine::Result<(Vec<Depth>, u64)> {
    let mut volumes = Vec::new();
    let changes = u32::try_from(options.volume_bytes / BLOCK_BYTES / CHANGED).unwrap_or(u32::MAX);
    for depth in DEPTHS {
        let name = format!("below-{depth}");
        let volume = filled(pool, &name, options).await?;
        let mut draw = draw(&volume);
        for number in 0..depth {
            pool.snapshot_volume(&format!("{name}@{number}"), 0).await?;
            change(&volume, &mut draw, changes).await?;
        }
        volumes.push((depth, volume));
    }
    pool.checkpoint().await?;
    let mut lines = Vec::new();
    let mut wrong = 0;
    for queue_depth in QUEUE_DEPTHS {
        let (more, wrong_here) = alternate(&volumes, queue_depth, options).await?;
        lines.extend(more);
        wrong += wrong_here;
    }
    Ok((lines, wrong))
}

async fn alternate(
    volumes: &[(u32, Rc<AttachedVolume>)],
    queue_depth: u32,
    options: &SnapshotOptions,
) -> engine::Result<(Vec<Depth>, u64)> {
    let length = Duration::from_secs_f64(options.seconds);
    let mut rates: Vec<Vec<f64>> = vec![Vec::new(); volumes.len()];
    let mut wrong = 0;
    for _ in 0..options.rounds {
        for ((_, volume), rates) in volumes.iter().zip(&mut rates) {
            let start = Instant::now();
            let (count, wrong_here) = load::read(volume, queue_depth, length).await?;
            wrong += wrong_here;
            #[allow(clippy::cast_precision_loss)]
            rates.push(count as f64 / start.elapsed().as_secs_f64());
        }
    }
    let without = rates.first().cloned().unwrap_or_default();
    let line = |((depth, _), rates): (&(u32, _), &Vec<f64>)| Depth {
        snapshots: *depth,
        queue_depth,
        iops: median(rates.clone()),
        times_longer: median(without.iter().zip(rates).map(|(without, with)| without / with).collect()),
    };
    Ok((volumes.iter().zip(&rates).map(line).collect(), wrong))
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}
