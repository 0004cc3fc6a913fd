//! Volumes whose blocks say what they are, and who uses them until he is stopped.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Instant;

use engine::{AttachedVolume, Pool};
use format::limits::{BLOCK, BLOCK_BYTES};
use reactor::{Buffer, Reactor, Task};
use serde::Serialize;

use crate::churn::{Distribution, Draw};
use crate::marks::{mark, wrong_blocks};
use crate::sample::Recorder;

/// Bytes that are written or read at once where all of a volume is.
const PIECE_BYTES: usize = 1 << 20;

/// What operations are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Operation {
    /// 4 KiB, at random.
    Reads,
    /// The same.
    Writes,
}

/// A new volume, every block of it written.
pub(crate) async fn filled(pool: &Pool, name: &str, bytes: u64) -> engine::Result<Rc<AttachedVolume>> {
    pool.create_volume(name, bytes, 4096, 0).await?;
    let volume = Rc::new(pool.open_volume(name).await?.attach());
    fill(&volume, |_| {}).await?;
    Ok(volume)
}

/// Writes every block once, in order; says after each piece what share is done.
pub(crate) async fn fill(volume: &AttachedVolume, mut tell: impl FnMut(f64)) -> engine::Result<()> {
    let mut buffer = Buffer::new(PIECE_BYTES);
    buffer.as_mut_slice().fill(0x5A);
    for (offset, length) in pieces(volume) {
        mark(buffer.as_mut_slice(), offset);
        volume.write(offset, &buffer.span().slice(0..length)).await?;
        tell(share(volume, offset, length));
    }
    volume.flush().await
}

/// Reads every block; says after each piece what share is done. Gives how many are not what was written there.
pub(crate) async fn wrong_in(volume: &AttachedVolume, mut tell: impl FnMut(f64)) -> engine::Result<u64> {
    let buffer = Buffer::new(PIECE_BYTES);
    let mut wrong = 0;
    for (offset, length) in pieces(volume) {
        volume.read(offset, &buffer.span().slice(0..length)).await?;
        wrong += wrong_blocks(buffer.as_slice().get(..length).unwrap_or_default(), offset);
        tell(share(volume, offset, length));
    }
    Ok(wrong)
}

/// All of a volume, piece by piece: where each begins, and its bytes.
fn pieces(volume: &AttachedVolume) -> impl Iterator<Item = (u64, usize)> + use<> {
    let size = volume.size();
    let length = move |offset| usize::try_from(size - offset).unwrap_or(PIECE_BYTES).min(PIECE_BYTES);
    (0..size).step_by(PIECE_BYTES).map(move |offset| (offset, length(offset)))
}

/// What share of a volume lies before the end of a piece.
#[allow(clippy::cast_precision_loss)]
fn share(volume: &AttachedVolume, offset: u64, length: usize) -> f64 {
    (offset + length as u64) as f64 / volume.size() as f64
}

/// A volume, what is done with it, and how much of that is under way.
pub(crate) type Use<'a> = (&'a Rc<AttachedVolume>, Operation, u32);

/// Who uses a volume.
pub(crate) struct Users {
    shared: Rc<Using>,
    tasks: Vec<Task<engine::Result<()>>>,
}

struct Using {
    volume: Rc<AttachedVolume>,
    operation: Operation,
    draw: RefCell<Draw>,
    recorder: RefCell<Recorder>,
    counts: Cell<bool>,
    stop: Cell<bool>,
}

impl Users {
    pub(crate) fn start((volume, operation, depth): Use<'_>) -> Self {
        let shared = Rc::new(Using {
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

    /// Stops, and gives what was counted.
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

impl Using {
    async fn work(self: Rc<Self>, reactor: Reactor) -> engine::Result<()> {
        let mut buffer = Buffer::new(BLOCK);
        buffer.as_mut_slice().fill(0xA5);
        while !self.stop.get() {
            let offset = self.draw.borrow_mut().next() * BLOCK_BYTES;
            let start = Instant::now();
            match self.operation {
                Operation::Reads => self.volume.read(offset, &buffer.span()).await?,
                Operation::Writes => {
                    mark(buffer.as_mut_slice(), offset);
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
