//! Random writes to a volume, and reads that verify them.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Instant;

use engine::AttachedVolume;
use format::limits::{BLOCK, BLOCK_BYTES};
use reactor::Buffer;

use crate::block_stamps::wrong_blocks;
use crate::draw::{Distribution, Draw};
use crate::overwrite::{OverwriteClock, OverwriteResult, overwrite};

/// Returns the fixed random sequence of blocks.
fn draw(volume: &AttachedVolume) -> Draw {
    Draw::new(Distribution::Uniform, volume.size() / BLOCK_BYTES, 1)
}

/// Writes `count` blocks at queue depth `depth`.
pub(super) async fn write(
    volume: &Rc<AttachedVolume>,
    count: u64,
    depth: u32,
    mut progress: impl FnMut(f64),
) -> engine::Result<OverwriteResult> {
    let draw = Rc::new(RefCell::new(draw(volume)));
    overwrite(volume, &draw, (count, depth), OverwriteClock::TimeAndProcessor, Some(&mut progress)).await
}

/// Reads the first `count` blocks that [`write`] wrote. Returns reads per second and the number of
/// wrong blocks.
pub(super) async fn verify(volume: &AttachedVolume, count: u64) -> engine::Result<(f64, u64)> {
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
