//! `bench engine`: the engine in one process, on one core.
//!
//! All production checks are on: checksums, parity, MACs, the log. A job keeps its queue depth of
//! operations in flight, each from a task of its own; every read is verified.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};

use engine::AttachedVolume;
use reactor::{Buffer, Reactor};

use crate::bench_error::BenchError;
use crate::block_stamps::{stamp, wrong_blocks};
use crate::drives::Drives;
use crate::sample::{Recorder, Sample, SampleLabel};
use crate::{file_pool, memory_pool};

/// Bytes of the volume.
const VOLUME: u64 = 1 << 30;
/// Bytes of each drive, with room for the writes of a job.
const DRIVE: u64 = 2 << 30;

/// A job of the benchmark.
#[derive(Clone, Copy, Debug)]
struct EngineJob {
    label: SampleLabel,
    write: bool,
    random: bool,
    lose_drive: bool,
}

const fn job(op: &'static str, block_bytes: u64, queue_depth: u32, write: bool, random: bool) -> EngineJob {
    EngineJob {
        label: SampleLabel { op, scheme: "4+1", block_bytes, queue_depth },
        write,
        random,
        lose_drive: false,
    }
}

const JOBS: [EngineJob; 8] = [
    job("random read", 4096, 64, false, true),
    EngineJob { lose_drive: true, ..job("random read, one drive lost", 4096, 64, false, true) },
    job("random write", 4096, 64, true, true),
    job("sequential write", 1 << 20, 16, true, false),
    job("sequential read", 1 << 20, 16, false, false),
    EngineJob { lose_drive: true, ..job("sequential read, one drive lost", 1 << 20, 16, false, false) },
    job("random read, one at a time", 4096, 1, false, true),
    job("random write, one at a time", 4096, 1, true, true),
];

/// Runs every job whose name contains `only` for `seconds`, on new drives; calls `done` with each
/// result.
///
/// # Errors
/// If a pool cannot be created or an operation fails.
pub fn run(
    drives: &Drives,
    seconds: f64,
    only: &str,
    mut done: impl FnMut(&Sample),
) -> Result<Vec<Sample>, BenchError> {
    let mut samples = Vec::new();
    for job in JOBS.into_iter().filter(|job| job.label.op.contains(only)) {
        let sample = run_job(job, drives, Duration::from_secs_f64(seconds))?;
        done(&sample);
        samples.push(sample);
    }
    Ok(samples)
}

fn run_job(job: EngineJob, drives: &Drives, length: Duration) -> Result<Sample, BenchError> {
    let Ok(scheme) = job.label.scheme.parse::<format::Scheme>() else {
        panic!("'{}' is a scheme", job.label.scheme)
    };
    let open = drives.open(usize::from(scheme.width()), DRIVE)?;
    file_pool::on_a_reactor(async |_| {
        let pool = memory_pool::pool(&open.drives, scheme).await?;
        pool.create_volume("bench", VOLUME, 4096, 0).await?;
        let volume = Rc::new(pool.open_volume("bench").await?.attach());
        if !job.write {
            fill(&volume).await?;
        }
        if job.lose_drive {
            pool.fail_drive(0).await?;
        }
        Ok(load(job, &volume, length).await?)
    })
}

async fn fill(volume: &AttachedVolume) -> engine::Result<()> {
    let mut buffer = Buffer::new(1 << 20);
    buffer.as_mut_slice().fill(0xA5);
    for offset in (0..VOLUME).step_by(1 << 20) {
        stamp(buffer.as_mut_slice(), offset);
        volume.write(offset, &buffer.span()).await?;
    }
    volume.flush().await
}

/// State shared by the tasks of a job.
struct EngineJobState {
    job: EngineJob,
    volume: Rc<AttachedVolume>,
    deadline: Instant,
    recorder: RefCell<Recorder>,
    next: Cell<u64>,
    random: Cell<u64>,
    /// Bytes that may still be written: the benchmark measures a fresh pool, not a full one.
    left: Cell<u64>,
}

/// Returns the maximum bytes that a job may write, so that the pool stays fresh.
fn max_write_bytes(job: EngineJob) -> u64 {
    match (job.write, job.label.queue_depth) {
        (false, _) => u64::MAX,
        // A single write of a block is mirrored with its header: four blocks on the drives.
        (true, 1) => DRIVE * 5 / 8,
        (true, _) => DRIVE * 5 / 2,
    }
}

async fn load(job: EngineJob, volume: &Rc<AttachedVolume>, length: Duration) -> engine::Result<Sample> {
    let start = Instant::now();
    let shared = Rc::new(EngineJobState {
        job,
        volume: volume.clone(),
        deadline: start + length,
        recorder: RefCell::new(Recorder::new()),
        next: Cell::new(0),
        random: Cell::new(0x9E37_79B9_7F4A_7C15),
        left: Cell::new(max_write_bytes(job)),
    });
    let reactor = Reactor::current();
    let tasks: Vec<_> =
        (0..job.label.queue_depth).map(|_| reactor.spawn(shared.clone().work(reactor.clone()))).collect();
    for task in tasks {
        task.await?;
    }
    let elapsed = start.elapsed().as_secs_f64();
    Ok(shared.recorder.borrow().sample(&job.label, elapsed))
}

impl EngineJobState {
    /// Runs one operation after the other until the time is up.
    async fn work(self: Rc<Self>, reactor: Reactor) -> engine::Result<()> {
        let length = self.job.label.block_bytes;
        let mut buffer = Buffer::new(usize::try_from(length).unwrap_or(0));
        buffer.as_mut_slice().fill(0xA5);
        loop {
            let offset = self.next_offset();
            if self.job.write {
                stamp(buffer.as_mut_slice(), offset);
            }
            let start = Instant::now();
            if self.job.write {
                self.volume.write(offset, &buffer.span()).await?;
            } else {
                self.volume.read(offset, &buffer.span()).await?;
            }
            let end = Instant::now();
            let nanos = u64::try_from((end - start).as_nanos()).unwrap_or(u64::MAX);
            {
                let mut recorder = self.recorder.borrow_mut();
                recorder.record(nanos);
                if !self.job.write {
                    recorder.wrong += wrong_blocks(buffer.as_slice(), offset);
                }
            }
            self.left.set(self.left.get().saturating_sub(length));
            if end >= self.deadline || self.left.get() == 0 {
                return Ok(());
            }
            if self.job.label.queue_depth > 1 {
                reactor.yield_now().await;
            }
        }
    }

    fn next_offset(&self) -> u64 {
        let length = self.job.label.block_bytes;
        let blocks = VOLUME / length;
        if !self.job.random {
            let next = self.next.get();
            self.next.set(next + 1);
            return next % blocks * length;
        }
        // xorshift64* (Vigna, 2016).
        let mut x = self.random.get();
        x ^= x >> 12;
        x ^= x << 25;
        x ^= x >> 27;
        self.random.set(x);
        let drawn = x.wrapping_mul(0x2545_F491_4F6C_DD1D);
        u64::try_from((u128::from(drawn) * u128::from(blocks)) >> 64).unwrap_or(0) * length
    }
}
