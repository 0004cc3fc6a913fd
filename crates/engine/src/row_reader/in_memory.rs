//! Reads of drives that are memory of this process: verified while they are copied.
//!
//! A drive that moves data by itself leaves it in memory, where it is verified; here the processor copies, and would have to fetch
//! the copy once more. Always true: a run counts as read only if every block of it arrived with its CRC; otherwise nothing is said
//! of the drive, and the run is read like any other, which accuses and mends. So nothing depends on this.
#![allow(unsafe_code)]

use codec::copy_crc32c_blocks;
use format::limits::BLOCK;
use reactor::{Span, Window};

use super::{BlockRun, RowReader};

/// Blocks that are copied before their sums are compared.
const STEP: usize = 64;

impl RowReader {
    /// Copies a run to `into` from a drive that is memory. True if all of it is there and verified; false if it must be read.
    pub(crate) fn copy_run(&self, run: BlockRun, crcs: &[u32], into: &Span) -> bool {
        let Some(cell) = self.segments.borrow().cell(run.address) else { return false };
        let verified =
            self.drives.with_window(cell.drive, cell.offset, into.len(), |window| copy(window, crcs, into));
        verified.unwrap_or(false)
    }
}

/// Copies blocks, and compares the sum of each copy.
fn copy(window: Window<'_>, crcs: &[u32], into: &Span) -> bool {
    assert!(window.len() == into.len() && into.len() == crcs.len() * BLOCK, "shape of a read");
    let mut sums = [0; STEP];
    for (crcs, at) in crcs.chunks(STEP).zip((0..).step_by(STEP * BLOCK)) {
        let Some(sums) = sums.get_mut(..crcs.len()) else { return false };
        // SAFETY: window and span are as long as there are sums, the step lies within, and they belong to different owners. Others
        // change what they hold as devices do, and only the copies are summed, as they were written.
        unsafe {
            copy_crc32c_blocks(window.as_ptr().add(at), into.as_ptr().add(at), BLOCK, sums);
        }
        if sums != crcs {
            return false;
        }
    }
    true
}

#[cfg(test)]
#[path = "in_memory_tests.rs"]
mod tests;
