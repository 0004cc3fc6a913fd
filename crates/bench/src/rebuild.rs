//! `bench rebuild`: how fast what a lost drive held is written to the others, beside what the drives themselves allow, and what users
//! notice meanwhile.
//!
//! The bound is measured on the same drives right before the pool is made: the reads and writes that a rebuild must do, pieces of one column each
//! from as many drives as there are data columns and one to the drive that has none, as many at once, and nothing computed.
//!
//! Must not know: how the engine rebuilds.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::{DriveSource, Pool, Tuning};
pub use format::Scheme;
use format::limits::BLOCK_BYTES;
use reactor::{Buffer, Drive, Io, Reactor};
use serde::Serialize;

pub use crate::drives::Drives;
use crate::engine_bench::BenchError;
use crate::sample::Recorder;
use crate::users::{Operation, Users, filled, wrong_in};
use crate::{file_pool, memory_pool};

/// Bytes of a piece of the bound.
const PIECE: u64 = 1 << 20;
/// Pieces under way at once.
const PIECES_AT_ONCE: u64 = 4;
/// Share of what the pool takes that the volume has.
const FILL: f64 = 0.7;
/// Where the bound's pieces begin on each drive, and how many bytes of it they may touch.
const BOUND_FROM: u64 = 16 << 20;
const BOUND_BYTES: u64 = 512 << 20;
/// Users' reads under way while their latency is measured.
const USERS: u32 = 4;
/// How long it is measured before the drive is lost.
const QUIET: Duration = Duration::from_secs(2);
/// How often is looked how far the rebuild is.
const LOOK: Duration = Duration::from_millis(2);

/// What is measured.
#[derive(Clone, Debug)]
pub struct Options {
    /// Protection of the pool.
    pub scheme: Scheme,
    /// Drives, more than the scheme has columns.
    pub count: usize,
    /// What they are.
    pub drives: Drives,
    /// Bytes of each, if they are made.
    pub drive_bytes: u64,
    /// How often the bound is measured; the best counts.
    pub rounds: u32,
}

/// What was measured.
#[derive(Clone, Debug, Serialize)]
pub struct Rebuilt {
    /// Protection of the pool, k+m.
    pub scheme: String,
    /// Drives before one was lost.
    pub drives: usize,
    /// Bytes of columns that were written anew.
    pub bytes: u64,
    /// Bytes of these a second, while nobody uses the pool.
    pub bytes_per_s: f64,
    /// Bytes a second of the same reads and writes with nothing computed.
    pub bound_bytes_per_s: f64,
    /// Share of the bound that was reached.
    pub share: f64,
    /// Bytes a second while users read.
    pub bytes_per_s_used: f64,
    /// 99th percentile of users' reads of 4 KiB before the loss, in microseconds.
    pub quiet_p99_us: f64,
    /// The same while the second drive was rebuilt.
    pub rebuilding_p99_us: f64,
    /// Users' reads under way.
    pub users: u32,
    /// Blocks that did not hold what was written.
    pub wrong: u64,
}

/// What a caller is told while it goes on.
pub type Tell<'a> = &'a mut dyn FnMut(&str);

/// Measures.
///
/// # Errors
/// When the drives cannot be had, a pool cannot be made of them, or an operation fails.
pub fn run(options: &Options, tell: Tell<'_>) -> Result<Rebuilt, BenchError> {
    file_pool::on_a_reactor(async |_| {
        let opened = options.drives.open(options.count, options.drive_bytes)?;
        let drives = &opened.drives;
        tell("measuring the drives");
        let mut bound = 0.0_f64;
        for _ in 0..options.rounds {
            bound = bound.max(raw(drives, options.scheme).await?);
        }
        let tuning = Tuning::default();
        let pool = memory_pool::pool_tuned(drives, options.scheme, None, Vec::new(), tuning).await?;
        let rebuilt = measure(&pool, options, bound, tell).await?;
        pool.close().await?;
        Ok(rebuilt)
    })
}

/// Bytes of columns a second that the drives allow to be read and written as a rebuild does it.
async fn raw(drives: &[Arc<dyn DriveSource>], scheme: Scheme) -> Result<f64, BenchError> {
    let opened: Vec<Rc<dyn Drive>> = drives.iter().skip(1).map(|source| source.open()).collect();
    let data = usize::from(scheme.data());
    let smallest = opened.iter().map(|drive| drive.properties().size).min().unwrap_or(0);
    let pieces = (smallest.saturating_sub(BOUND_FROM).min(BOUND_BYTES) / PIECE).max(1);
    // What is read must have been written: files have holes else.
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
            // Which drive has no column of it goes round.
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
        (0..PIECES_AT_ONCE).map(|_| reactor.spawn(work(opened.clone(), next.clone()))).collect();
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

async fn measure(pool: &Pool, options: &Options, bound: f64, tell: Tell<'_>) -> Result<Rebuilt, BenchError> {
    let capacity = pool.status().await?.space.capacity_blocks;
    // Two drives go, one after the other: what is left takes the volume still.
    let left = options.count.saturating_sub(2).max(usize::from(options.scheme.width())) as f64;
    #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let blocks = (capacity as f64 * FILL * left / options.count as f64) as u64;
    let size = blocks * BLOCK_BYTES;
    tell("filling the volume");
    let volume = filled(pool, "rebuilt", size).await?;
    pool.checkpoint().await?;

    tell("rebuilding while nobody uses the pool");
    let (bytes, seconds) = lose(pool, 0).await?;
    tell("reading before the next loss");
    let reading = Users::start((&volume, Operation::Reads, USERS));
    reading.count_from_now();
    Reactor::current().sleep(QUIET).await;
    let quiet = reading.end().await?;
    let can_lose_another = options.count > usize::from(options.scheme.width()) + 1;
    let (mut bytes_used, mut seconds_used, mut during) = (0, 0.0, Recorder::new());
    if can_lose_another {
        tell("rebuilding while users read");
        let reading = Users::start((&volume, Operation::Reads, USERS));
        reading.count_from_now();
        (bytes_used, seconds_used) = lose(pool, 1).await?;
        during = reading.end().await?;
    }
    tell("reading everything");
    let wrong = wrong_in(&volume, |_| {}).await? + quiet.wrong + during.wrong;
    #[allow(clippy::cast_precision_loss)]
    let rate = |bytes: u64, seconds: f64| if seconds > 0.0 { bytes as f64 / seconds } else { 0.0 };
    Ok(Rebuilt {
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

/// Takes a drive out of use, and waits until all that it held is on others. Gives how much that was, and seconds.
async fn lose(pool: &Pool, index: u16) -> engine::Result<(u64, f64)> {
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
        Reactor::current().sleep(LOOK).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_lost_is_written_anew_and_measured() {
        let place = tempfile::tempdir().unwrap();
        for drives in [Drives::Memory, Drives::Files(place.path().into())] {
            let options = Options {
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
