//! The overwrite load of `bench churn`.

use std::cell::RefCell;
use std::rc::Rc;

use engine::{AttachedVolume, Pool};

use super::ChurnOptions;
use super::result::{Amplification, ChurnWindow};
use crate::draw::Draw;
use crate::overwrite::{OverwriteClock, overwrite};

/// An overwrite load with a random sequence that continues from window to window.
pub(super) struct ChurnLoad {
    volume: Rc<AttachedVolume>,
    queue_depth: u32,
    draw: Rc<RefCell<Draw>>,
}

impl ChurnLoad {
    pub(super) fn new(volume: &Rc<AttachedVolume>, blocks: u64, options: &ChurnOptions) -> Self {
        let draw = Draw::new(options.distribution, blocks, options.seed);
        Self { volume: volume.clone(), queue_depth: options.queue_depth, draw: Rc::new(RefCell::new(draw)) }
    }

    /// Overwrites `blocks` blocks. `written` is the number of overwrites of the whole volume by the
    /// end of the window.
    pub(super) async fn run_window(
        &self,
        pool: &Pool,
        blocks: u64,
        written: f64,
    ) -> engine::Result<ChurnWindow> {
        let before = Amplification::counted(&pool.status().await?);
        let load = (blocks, self.queue_depth);
        let done = overwrite(&self.volume, &self.draw, load, OverwriteClock::Time, None).await?;
        let amplification = Amplification::counted(&pool.status().await?).since(&before);
        Ok(ChurnWindow::new(written, done.seconds, &done.recorder, done.longest_pause, amplification))
    }
}
