//! Blocks that are written anywhere in a volume, and read again.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};

use engine::AttachedVolume;
use format::limits::{BLOCK, BLOCK_BYTES};
use reactor::{Buffer, Reactor};
use rustix::time::{ClockId, clock_gettime};

use crate::churn::{Distribution, Draw};
use crate::marks::{mark, wrong_blocks};
use crate::sample::Recorder;

/// How often is told how far it is.
const TELL: Duration = Duration::from_millis(200);

/// What came of writing.
pub(super) struct Written {
    pub(super) seconds: f64,
    pub(super) recorder: Recorder,
    /// The longest time between the ends of two writes.
    pub(super) longest_pause: Duration,
    /// The longest time that this thread computed between the ends of two writes: what others on the machine took from it is not in it.
    pub(super) longest_busy: Duration,
}

/// What the tasks share.
struct Shared {
    volume: Rc<AttachedVolume>,
    draw: RefCell<Draw>,
    recorder: RefCell<Recorder>,
    left: Cell<u64>,
    failed: Cell<bool>,
    ended: Cell<(Instant, Duration)>,
    longest_pause: Cell<Duration>,
    longest_busy: Cell<Duration>,
}

/// The blocks that are written, in this order; again from the start each time.
fn draw(volume: &AttachedVolume) -> Draw {
    Draw::new(Distribution::Uniform, volume.size() / BLOCK_BYTES, 1)
}

/// Processor time of this thread.
fn busy() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let seconds = Duration::from_secs(u64::try_from(time.tv_sec).unwrap_or(0));
    seconds + Duration::from_nanos(u64::try_from(time.tv_nsec).unwrap_or(0))
}

/// Writes `count` blocks, `depth` of them under way.
pub(super) async fn write(
    volume: &Rc<AttachedVolume>,
    count: u64,
    depth: u32,
    mut tell: impl FnMut(f64),
) -> engine::Result<Written> {
    let start = Instant::now();
    let shared = Rc::new(Shared {
        volume: volume.clone(),
        draw: RefCell::new(draw(volume)),
        recorder: RefCell::new(Recorder::new()),
        left: Cell::new(count),
        failed: Cell::new(false),
        ended: Cell::new((start, busy())),
        longest_pause: Cell::default(),
        longest_busy: Cell::default(),
    });
    let reactor = Reactor::current();
    let tasks: Vec<_> = (0..depth).map(|_| reactor.spawn(shared.clone().work(reactor.clone()))).collect();
    while shared.left.get() > 0 && !shared.failed.get() {
        #[allow(clippy::cast_precision_loss)]
        tell(1.0 - shared.left.get() as f64 / count as f64);
        reactor.sleep(TELL).await;
    }
    for task in tasks {
        task.await?;
    }
    let seconds = start.elapsed().as_secs_f64();
    let recorder = shared.recorder.replace(Recorder::new());
    Ok(Written {
        seconds,
        recorder,
        longest_pause: shared.longest_pause.get(),
        longest_busy: shared.longest_busy.get(),
    })
}

impl Shared {
    async fn work(self: Rc<Self>, reactor: Reactor) -> engine::Result<()> {
        let mut buffer = Buffer::new(BLOCK);
        buffer.as_mut_slice().fill(0xA5);
        while let Some(left) = self.left.get().checked_sub(1) {
            self.left.set(left);
            let offset = self.draw.borrow_mut().next() * BLOCK_BYTES;
            mark(buffer.as_mut_slice(), offset);
            let start = Instant::now();
            let written = self.volume.write(offset, &buffer.span()).await;
            if written.is_err() {
                self.failed.set(true);
                return written;
            }
            let (now, busy) = (Instant::now(), busy());
            self.recorder.borrow_mut().record(u64::try_from((now - start).as_nanos()).unwrap_or(u64::MAX));
            let (before, busy_before) = self.ended.replace((now, busy));
            self.longest_pause.set(self.longest_pause.get().max(now - before));
            self.longest_busy.set(self.longest_busy.get().max(busy.saturating_sub(busy_before)));
            reactor.yield_now().await;
        }
        Ok(())
    }
}

/// Reads the first `count` blocks that [`write`] wrote. Gives how many a second, and how many are wrong.
pub(super) async fn read_again(volume: &AttachedVolume, count: u64) -> engine::Result<(f64, u64)> {
    let mut draw = draw(volume);
    let buffer = Buffer::new(BLOCK);
    let mut wrong = 0;
    let start = Instant::now();
    for _ in 0..count {
        let offset = draw.next() * BLOCK_BYTES;
        volume.read(offset, &buffer.span()).await?;
        wrong += wrong_blocks(buffer.as_slice(), offset);
    }
    #[allow(clippy::cast_precision_loss)]
    Ok((count as f64 / start.elapsed().as_secs_f64(), wrong))
}
