//! Blocks that are written anywhere in a volume, and read again.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Instant;

use engine::AttachedVolume;
use format::limits::{BLOCK, BLOCK_BYTES};
use reactor::Buffer;

use crate::churn::{Distribution, Draw};
use crate::marks::wrong_blocks;
use crate::overwrite::{Clock, Overwritten, overwrite};

/// The blocks that are written, in this order; again from the start each time.
fn draw(volume: &AttachedVolume) -> Draw {
    Draw::new(Distribution::Uniform, volume.size() / BLOCK_BYTES, 1)
}

/// Writes `count` blocks, `depth` of them under way.
pub(super) async fn write(
    volume: &Rc<AttachedVolume>,
    count: u64,
    depth: u32,
    mut tell: impl FnMut(f64),
) -> engine::Result<Overwritten> {
    let draw = Rc::new(RefCell::new(draw(volume)));
    overwrite(volume, &draw, (count, depth), Clock::TimeAndProcessor, Some(&mut tell)).await
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
