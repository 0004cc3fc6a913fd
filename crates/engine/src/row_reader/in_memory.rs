//! Reads from in-memory drives: copied and verified in one pass.
//!
//! A device writes the data to memory by DMA, where it is verified. On an in-memory drive the
//! processor copies the data, and computing the CRCs during the copy avoids a second pass. Always
//! true: a run counts as read only if every block matches its CRC. Otherwise the run is read again
//! on the normal path, which records errors and repairs. Correctness does not depend on this
//! module.
#![allow(unsafe_code)]

use codec::copy_crc32c_blocks;
use format::limits::BLOCK;
use reactor::{ReadWindow, Span};

use super::{BlockRun, RowReader};

/// Blocks copied before their CRCs are compared.
const STEP: usize = 64;

impl RowReader {
    /// Copies a run to `into` from an in-memory drive. Returns false if the run must be read
    /// normally.
    pub(crate) fn copy_run(&self, run: BlockRun, crcs: &[u32], into: &Span) -> bool {
        let Some(cell) = self.segments.borrow().cell(run.address) else { return false };
        let verified =
            self.drives.with_window(cell.drive, cell.offset, into.len(), |window| copy(window, crcs, into));
        verified.unwrap_or(false)
    }
}

/// Copies blocks and compares the CRC of each copy.
fn copy(window: ReadWindow<'_>, crcs: &[u32], into: &Span) -> bool {
    assert!(window.len() == into.len() && into.len() == crcs.len() * BLOCK, "buffer and CRCs match the run");
    let mut sums = [0; STEP];
    for (crcs, at) in crcs.chunks(STEP).zip((0..).step_by(STEP * BLOCK)) {
        let Some(sums) = sums.get_mut(..crcs.len()) else { return false };
        // SAFETY: window and span both have `crcs.len()` blocks, the step is within these bounds,
        // and the two belong to different owners. Others may modify the memory concurrently, as a
        // device does; CRCs are computed only over the bytes written to the copy.
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
