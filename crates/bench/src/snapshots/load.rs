//! Write load on a busy volume, and random reads.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};

use engine::AttachedVolume;
use format::limits::{BLOCK, BLOCK_BYTES};
use reactor::{Buffer, Reactor, Task};

use super::draw;
use crate::block_stamps::{stamp, wrong_blocks};
use crate::draw::Draw;
use crate::sample::Recorder;

/// Tasks that overwrite blocks of a volume until they are stopped.
pub(super) struct Writers {
    shared: Rc<Writing>,
    tasks: Vec<Task<engine::Result<()>>>,
}

struct Writing {
    volume: Rc<AttachedVolume>,
    draw: RefCell<Draw>,
    count: Cell<u64>,
    last: Cell<Instant>,
    longest_pause: Cell<Duration>,
    stop: Cell<bool>,
}

impl Writers {
    pub(super) fn start(volume: &Rc<AttachedVolume>, depth: u32) -> Self {
        let shared = Rc::new(Writing {
            volume: volume.clone(),
            draw: RefCell::new(draw(volume)),
            count: Cell::new(0),
            last: Cell::new(Instant::now()),
            longest_pause: Cell::default(),
            stop: Cell::new(false),
        });
        let reactor = Reactor::current();
        let tasks = (0..depth).map(|_| reactor.spawn(shared.clone().work(reactor.clone()))).collect();
        Self { shared, tasks }
    }

    /// Waits until `more` further writes have completed, or one has failed.
    pub(super) async fn ended(&self, more: u64) {
        let until = self.shared.count.get() + more;
        while self.shared.count.get() < until && !self.shared.stop.get() {
            Reactor::current().yield_now().await;
        }
    }

    /// Resets the longest pause.
    pub(super) fn begin_window(&self) {
        self.shared.longest_pause.set(Duration::ZERO);
    }

    /// Returns the longest time between two completions since the last reset.
    pub(super) fn longest_pause(&self) -> Duration {
        self.shared.longest_pause.get()
    }

    pub(super) fn count(&self) -> u64 {
        self.shared.count.get()
    }

    pub(super) async fn stop(self) -> engine::Result<()> {
        self.shared.stop.set(true);
        for task in self.tasks {
            task.await?;
        }
        Ok(())
    }
}

impl Writing {
    async fn work(self: Rc<Self>, reactor: Reactor) -> engine::Result<()> {
        let mut buffer = Buffer::new(BLOCK);
        buffer.as_mut_slice().fill(0xA5);
        while !self.stop.get() {
            let offset = self.draw.borrow_mut().next() * BLOCK_BYTES;
            stamp(buffer.as_mut_slice(), offset);
            let written = self.volume.write(offset, &buffer.span()).await;
            if written.is_err() {
                self.stop.set(true);
                return written;
            }
            let now = Instant::now();
            let pause = now - self.last.replace(now);
            self.longest_pause.set(self.longest_pause.get().max(pause));
            self.count.set(self.count.get() + 1);
            reactor.yield_now().await;
        }
        Ok(())
    }
}

/// State shared by the tasks of a read job.
struct Reading {
    volume: Rc<AttachedVolume>,
    draw: RefCell<Draw>,
    recorder: RefCell<Recorder>,
    until: Instant,
}

/// Reads random blocks for `length` at queue depth `depth`. Returns the number of reads and of
/// wrong blocks.
pub(super) async fn read(
    volume: &Rc<AttachedVolume>,
    depth: u32,
    length: Duration,
) -> engine::Result<(u64, u64)> {
    let shared = Rc::new(Reading {
        volume: volume.clone(),
        draw: RefCell::new(draw(volume)),
        recorder: RefCell::new(Recorder::new()),
        until: Instant::now() + length,
    });
    let reactor = Reactor::current();
    let tasks: Vec<_> =
        (0..depth).map(|_| reactor.spawn(shared.clone().work(reactor.clone(), depth > 1))).collect();
    for task in tasks {
        task.await?;
    }
    let recorder = shared.recorder.borrow();
    Ok((recorder.count(), recorder.wrong))
}

impl Reading {
    async fn work(self: Rc<Self>, reactor: Reactor, yields: bool) -> engine::Result<()> {
        let buffer = Buffer::new(BLOCK);
        loop {
            let offset = self.draw.borrow_mut().next() * BLOCK_BYTES;
            let start = Instant::now();
            self.volume.read(offset, &buffer.span()).await?;
            let end = Instant::now();
            {
                let mut recorder = self.recorder.borrow_mut();
                recorder.record(u64::try_from((end - start).as_nanos()).unwrap_or(u64::MAX));
                recorder.wrong += wrong_blocks(buffer.as_slice(), offset);
            }
            if end >= self.until {
                return Ok(());
            }
            if yields {
                reactor.yield_now().await;
            }
        }
    }
}
