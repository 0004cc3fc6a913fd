//! Overwriting blocks, a given number of them under way, and what is measured meanwhile.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};

use engine::{AttachedVolume, Pool};
use format::limits::{BLOCK, BLOCK_BYTES};
use reactor::{Buffer, Reactor};

use super::draw::Draw;
use super::result::{Amplification, Window};
use super::{Options, seconds};
use crate::marks::mark;
use crate::sample::Recorder;

/// Blocks that are overwritten, from window to window.
pub(super) struct Load {
    volume: Rc<AttachedVolume>,
    queue_depth: u32,
    draw: Rc<RefCell<Draw>>,
}

/// What the tasks of a window share.
struct Shared {
    volume: Rc<AttachedVolume>,
    draw: Rc<RefCell<Draw>>,
    recorder: RefCell<Recorder>,
    left: Cell<u64>,
    ended: Cell<Instant>,
    longest_pause: Cell<Duration>,
}

impl Load {
    pub(super) fn new(volume: &Rc<AttachedVolume>, blocks: u64, options: &Options) -> Self {
        let draw = Draw::new(options.distribution, blocks, options.seed);
        Self { volume: volume.clone(), queue_depth: options.queue_depth, draw: Rc::new(RefCell::new(draw)) }
    }

    /// Overwrites `blocks` blocks. `written` says how often the volume will have been written then.
    pub(super) async fn window(&self, pool: &Pool, blocks: u64, written: f64) -> engine::Result<Window> {
        let before = Amplification::counted(&pool.status().await?);
        let start = Instant::now();
        let shared = Rc::new(Shared {
            volume: self.volume.clone(),
            draw: self.draw.clone(),
            recorder: RefCell::new(Recorder::new()),
            left: Cell::new(blocks),
            ended: Cell::new(start),
            longest_pause: Cell::default(),
        });
        let reactor = Reactor::current();
        let tasks: Vec<_> =
            (0..self.queue_depth).map(|_| reactor.spawn(shared.clone().work(reactor.clone()))).collect();
        for task in tasks {
            task.await?;
        }
        let seconds = seconds(start);
        let amplification = Amplification::counted(&pool.status().await?).since(&before);
        Ok(Window::new(
            written,
            seconds,
            &shared.recorder.borrow(),
            shared.longest_pause.get(),
            amplification,
        ))
    }
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
            self.volume.write(offset, &buffer.span()).await?;
            let end = Instant::now();
            self.recorder.borrow_mut().record(u64::try_from((end - start).as_nanos()).unwrap_or(u64::MAX));
            let pause = end - self.ended.replace(end);
            self.longest_pause.set(self.longest_pause.get().max(pause));
            reactor.yield_now().await;
        }
        Ok(())
    }
}
