//! Blocks that are overwritten, a given number of them under way, until so many were begun.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};

use engine::AttachedVolume;
use format::limits::{BLOCK, BLOCK_BYTES};
use reactor::{Buffer, Reactor};
use rustix::time::{ClockId, clock_gettime};

use crate::churn::Draw;
use crate::marks::mark;
use crate::sample::Recorder;

/// How often is told how far it is.
const TELL: Duration = Duration::from_millis(200);

/// What came of it.
pub(crate) struct Overwritten {
    /// Until the last write ended.
    pub(crate) seconds: f64,
    pub(crate) recorder: Recorder,
    /// The longest time between the ends of two writes.
    pub(crate) longest_pause: Duration,
    /// The longest time that this thread computed between the ends of two writes: what others on the machine took from it is not in it.
    pub(crate) longest_busy: Duration,
}

/// What the tasks share.
struct Shared {
    volume: Rc<AttachedVolume>,
    draw: Rc<RefCell<Draw>>,
    recorder: RefCell<Recorder>,
    left: Cell<u64>,
    failed: Cell<bool>,
    clock: Clock,
    ended: Cell<(Instant, Duration)>,
    longest_pause: Cell<Duration>,
    longest_busy: Cell<Duration>,
}

/// Whether processor time is taken too, which costs a call of the system for each write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Clock {
    Time,
    TimeAndProcessor,
}

/// Overwrites `count` blocks as they are drawn, `depth` of them under way; says now and then what share was begun.
pub(crate) async fn overwrite(
    volume: &Rc<AttachedVolume>,
    draw: &Rc<RefCell<Draw>>,
    (count, depth): (u64, u32),
    clock: Clock,
    tell: Option<&mut dyn FnMut(f64)>,
) -> engine::Result<Overwritten> {
    let start = Instant::now();
    let shared = Rc::new(Shared {
        volume: volume.clone(),
        draw: draw.clone(),
        recorder: RefCell::new(Recorder::new()),
        left: Cell::new(count),
        failed: Cell::new(false),
        clock,
        ended: Cell::new((start, clock.busy())),
        longest_pause: Cell::default(),
        longest_busy: Cell::default(),
    });
    let reactor = Reactor::current();
    let tasks: Vec<_> = (0..depth).map(|_| reactor.spawn(shared.clone().work(reactor.clone()))).collect();
    if let Some(tell) = tell {
        while shared.left.get() > 0 && !shared.failed.get() {
            #[allow(clippy::cast_precision_loss)]
            tell(1.0 - shared.left.get() as f64 / count as f64);
            reactor.sleep(TELL).await;
        }
    }
    for task in tasks {
        task.await?;
    }
    Ok(Overwritten {
        seconds: (shared.ended.get().0 - start).as_secs_f64(),
        recorder: shared.recorder.replace(Recorder::new()),
        longest_pause: shared.longest_pause.get(),
        longest_busy: shared.longest_busy.get(),
    })
}

impl Shared {
    /// One write after the other, until enough were begun.
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
            self.ended(start);
            reactor.yield_now().await;
        }
        Ok(())
    }

    /// A write that began then has ended.
    fn ended(&self, start: Instant) {
        let (now, busy) = (Instant::now(), self.clock.busy());
        self.recorder.borrow_mut().record(u64::try_from((now - start).as_nanos()).unwrap_or(u64::MAX));
        let (before, busy_before) = self.ended.replace((now, busy));
        self.longest_pause.set(self.longest_pause.get().max(now - before));
        self.longest_busy.set(self.longest_busy.get().max(busy.saturating_sub(busy_before)));
    }
}

impl Clock {
    /// Processor time of this thread so far, if it is taken.
    fn busy(self) -> Duration {
        if self == Self::Time {
            return Duration::ZERO;
        }
        let time = clock_gettime(ClockId::ThreadCPUTime);
        let seconds = Duration::from_secs(u64::try_from(time.tv_sec).unwrap_or(0));
        seconds + Duration::from_nanos(u64::try_from(time.tv_nsec).unwrap_or(0))
    }
}
