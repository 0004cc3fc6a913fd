//! What is measured while blocks are overwritten.

use std::cell::RefCell;
use std::rc::Rc;

use engine::{AttachedVolume, Pool};

use super::Options;
use super::draw::Draw;
use super::result::{Amplification, Window};
use crate::overwrite::{Clock, overwrite};

/// Blocks that are overwritten, from window to window.
pub(super) struct Load {
    volume: Rc<AttachedVolume>,
    queue_depth: u32,
    draw: Rc<RefCell<Draw>>,
}

impl Load {
    pub(super) fn new(volume: &Rc<AttachedVolume>, blocks: u64, options: &Options) -> Self {
        let draw = Draw::new(options.distribution, blocks, options.seed);
        Self { volume: volume.clone(), queue_depth: options.queue_depth, draw: Rc::new(RefCell::new(draw)) }
    }

    /// Overwrites `blocks` blocks. `written` says how often the volume will have been written then.
    pub(super) async fn window(&self, pool: &Pool, blocks: u64, written: f64) -> engine::Result<Window> {
        let before = Amplification::counted(&pool.status().await?);
        let load = (blocks, self.queue_depth);
        let done = overwrite(&self.volume, &self.draw, load, Clock::Time, None).await?;
        let amplification = Amplification::counted(&pool.status().await?).since(&before);
        Ok(Window::new(written, done.seconds, &done.recorder, done.longest_pause, amplification))
    }
}
