//! Overwrites blocks at a fixed queue depth until a given number of writes has been submitted.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};

use engine::AttachedVolume;
use format::limits::{BLOCK, BLOCK_BYTES};
use reactor::{Buffer, Reactor};
use rustix::time::{ClockId, clock_gettime};

use crate::block_stamps::stamp;
use crate::draw::Draw;
use crate::sample::Recorder;

/// Interval of progress reports.
const REPORT_INTERVAL: Duration = Duration::from_millis(200);

/// The result of an overwrite run.
pub(crate) struct OverwriteResult {
    /// Seconds until the last write completed.
    pub(crate) seconds: f64,
    pub(crate) recorder: Recorder,
    /// Longest time between two completions.
    pub(crate) longest_pause: Duration,
    /// Longest processor time of this thread between two completions, which excludes time taken by
    /// other programs.
    pub(crate) longest_busy: Duration,
}

/// State shared by the tasks.
struct OverwriteState {
    volume: Rc<AttachedVolume>,
    draw: Rc<RefCell<Draw>>,
    recorder: RefCell<Recorder>,
    left: Cell<u64>,
    failed: Cell<bool>,
    clock: OverwriteClock,
    ended: Cell<(Instant, Duration)>,
    longest_pause: Cell<Duration>,
    longest_busy: Cell<Duration>,
}

/// The clocks to read. Processor time costs a system call per write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OverwriteClock {
    Time,
    TimeAndProcessor,
}

/// Overwrites `count` blocks in drawn order at queue depth `depth`. Calls `progress` regularly with
/// the share of submitted writes.
pub(crate) async fn overwrite(
    volume: &Rc<AttachedVolume>,
    draw: &Rc<RefCell<Draw>>,
    (count, depth): (u64, u32),
    clock: OverwriteClock,
    progress: Option<&mut dyn FnMut(f64)>,
) -> engine::Result<OverwriteResult> {
    let start = Instant::now();
    let shared = Rc::new(OverwriteState {
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
    if let Some(progress) = progress {
        while shared.left.get() > 0 && !shared.failed.get() {
            #[allow(clippy::cast_precision_loss)]
            progress(1.0 - shared.left.get() as f64 / count as f64);
            reactor.sleep(REPORT_INTERVAL).await;
        }
    }
    for task in tasks {
        task.await?;
    }
    Ok(OverwriteResult {
        seconds: (shared.ended.get().0 - start).as_secs_f64(),
        recorder: shared.recorder.replace(Recorder::new()),
        longest_pause: shared.longest_pause.get(),
        longest_busy: shared.longest_busy.get(),
    })
}

impl OverwriteState {
    /// Writes one block after the other until enough are submitted.
    async fn work(self: Rc<Self>, reactor: Reactor) -> engine::Result<()> {
        let mut buffer = Buffer::new(BLOCK);
        buffer.as_mut_slice().fill(0xA5);
        while let Some(left) = self.left.get().checked_sub(1) {
            self.left.set(left);
            let offset = self.draw.borrow_mut().next() * BLOCK_BYTES;
            stamp(buffer.as_mut_slice(), offset);
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

    /// Records a completion.
    fn ended(&self, start: Instant) {
        let (now, busy) = (Instant::now(), self.clock.busy());
        self.recorder.borrow_mut().record(u64::try_from((now - start).as_nanos()).unwrap_or(u64::MAX));
        let (before, busy_before) = self.ended.replace((now, busy));
        self.longest_pause.set(self.longest_pause.get().max(now - before));
        self.longest_busy.set(self.longest_busy.get().max(busy.saturating_sub(busy_before)));
    }
}

impl OverwriteClock {
    /// Returns the processor time of this thread, or zero if it is not measured.
    fn busy(self) -> Duration {
        if self == Self::Time {
            return Duration::ZERO;
        }
        let time = clock_gettime(ClockId::ThreadCPUTime);
        let seconds = Duration::from_secs(u64::try_from(time.tv_sec).unwrap_or(0));
        seconds + Duration::from_nanos(u64::try_from(time.tv_nsec).unwrap_or(0))
    }
}
