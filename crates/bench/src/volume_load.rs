//! Volumes with verifiable blocks, and background load on them.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Instant;

use engine::{AttachedVolume, Pool};
use format::limits::{BLOCK, BLOCK_BYTES};
use reactor::{Buffer, Reactor, Task};
use serde::Serialize;

use crate::block_stamps::{stamp, wrong_blocks};
use crate::draw::{Distribution, Draw};
use crate::sample::Recorder;

/// Bytes per request when a whole volume is written or read.
const CHUNK_BYTES: usize = 1 << 20;

/// The operation of a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Operation {
    /// Random reads of 4 KiB.
    Reads,
    /// Random writes of 4 KiB.
    Writes,
}

/// Creates a volume and writes every block of it.
pub(crate) async fn filled(pool: &Pool, name: &str, bytes: u64) -> engine::Result<Rc<AttachedVolume>> {
    pool.create_volume(name, bytes, 4096, 0).await?;
    let volume = Rc::new(pool.open_volume(name).await?.attach());
    fill(&volume, |_| {}).await?;
    Ok(volume)
}

/// Writes every block once, in order. Calls `progress` with the share done after each piece.
pub(crate) async fn fill(volume: &AttachedVolume, mut progress: impl FnMut(f64)) -> engine::Result<()> {
    let mut buffer = Buffer::new(CHUNK_BYTES);
    buffer.as_mut_slice().fill(0x5A);
    for (offset, length) in chunks(volume) {
        stamp(buffer.as_mut_slice(), offset);
        volume.write(offset, &buffer.span().slice(0..length)).await?;
        progress(share(volume, offset, length));
    }
    volume.flush().await
}

/// Reads every block and returns the number of wrong ones. Calls `progress` with the share done
/// after each piece.
pub(crate) async fn wrong_in(volume: &AttachedVolume, mut progress: impl FnMut(f64)) -> engine::Result<u64> {
    let buffer = Buffer::new(CHUNK_BYTES);
    let mut wrong = 0;
    for (offset, length) in chunks(volume) {
        volume.read(offset, &buffer.span().slice(0..length)).await?;
        wrong += wrong_blocks(buffer.as_slice().get(..length).unwrap_or_default(), offset);
        progress(share(volume, offset, length));
    }
    Ok(wrong)
}

/// Iterates over a volume in pieces: the offset and length of each.
fn chunks(volume: &AttachedVolume) -> impl Iterator<Item = (u64, usize)> + use<> {
    let size = volume.size();
    let length = move |offset| usize::try_from(size - offset).unwrap_or(CHUNK_BYTES).min(CHUNK_BYTES);
    (0..size).step_by(CHUNK_BYTES).map(move |offset| (offset, length(offset)))
}

/// Returns the share of a volume before the end of a piece.
#[allow(clippy::cast_precision_loss)]
fn share(volume: &AttachedVolume, offset: u64, length: usize) -> f64 {
    (offset + length as u64) as f64 / volume.size() as f64
}

/// A volume, the operation and the queue depth.
pub(crate) type VolumeLoad<'a> = (&'a Rc<AttachedVolume>, Operation, u32);

/// A load that runs until it is stopped.
pub(crate) struct BackgroundLoad {
    shared: Rc<LoadState>,
    tasks: Vec<Task<engine::Result<()>>>,
}

struct LoadState {
    volume: Rc<AttachedVolume>,
    operation: Operation,
    draw: RefCell<Draw>,
    recorder: RefCell<Recorder>,
    counts: Cell<bool>,
    stop: Cell<bool>,
}

impl BackgroundLoad {
    pub(crate) fn start((volume, operation, depth): VolumeLoad<'_>) -> Self {
        let shared = Rc::new(LoadState {
            volume: volume.clone(),
            operation,
            draw: RefCell::new(Draw::new(Distribution::Uniform, volume.size() / BLOCK_BYTES, 1)),
            recorder: RefCell::new(Recorder::new()),
            counts: Cell::default(),
            stop: Cell::default(),
        });
        let reactor = Reactor::current();
        let tasks = (0..depth).map(|_| reactor.spawn(shared.clone().work(reactor.clone()))).collect();
        Self { shared, tasks }
    }

    pub(crate) fn count_from_now(&self) {
        self.shared.counts.set(true);
    }

    pub(crate) fn stop_counting(&self) {
        self.shared.counts.set(false);
        self.shared.stop.set(true);
    }

    /// Stops the load and returns its records.
    pub(crate) async fn end(self) -> engine::Result<Recorder> {
        self.stop_counting();
        self.stop().await
    }

    pub(crate) async fn stop(self) -> engine::Result<Recorder> {
        for task in self.tasks {
            task.await?;
        }
        Ok(self.shared.recorder.replace(Recorder::new()))
    }
}

impl LoadState {
    async fn work(self: Rc<Self>, reactor: Reactor) -> engine::Result<()> {
        let mut buffer = Buffer::new(BLOCK);
        buffer.as_mut_slice().fill(0xA5);
        while !self.stop.get() {
            let offset = self.draw.borrow_mut().next() * BLOCK_BYTES;
            let start = Instant::now();
            match self.operation {
                Operation::Reads => self.volume.read(offset, &buffer.span()).await?,
                Operation::Writes => {
                    stamp(buffer.as_mut_slice(), offset);
                    self.volume.write(offset, &buffer.span()).await?;
                }
            }
            let took = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
            self.ended(buffer.as_slice(), offset, took);
            reactor.yield_now().await;
        }
        Ok(())
    }

    fn ended(&self, bytes: &[u8], offset: u64, nanos: u64) {
        let mut recorder = self.recorder.borrow_mut();
        if self.operation == Operation::Reads {
            recorder.wrong += wrong_blocks(bytes, offset);
        }
        if self.counts.get() {
            recorder.record(nanos);
        }
    }
}
