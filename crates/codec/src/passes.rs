//! The division of a SIMD kernel's work into passes: outputs and parts of the columns.
//!
//! Owns the sizes, which were measured (comparison/README.md). Always true: every byte of every
//! output is in exactly one pass. Must not know about instructions.
#![allow(clippy::indexing_slicing, reason = "rows are below the matrix' rows, and chunks within their slice")]

use std::ops::Range;

use crate::matrix::Matrix;

/// Maximum number of outputs of a pass. The registers have no room for the sums of more.
pub(crate) const MAX_OUTPUTS: usize = 4;
/// If there are more outputs than one pass computes, the inputs are processed in parts of this many
/// bytes, so that they are still in the L1 cache in the next pass.
const TILE: usize = 1024;
/// Minimum number of bytes of inputs and outputs for streaming stores: the size of an L2 cache. For
/// columns in the L2 cache, plain stores are up to twice as fast; for larger ones, streaming stores
/// are never slower and up to a third faster.
const STREAM_MIN: usize = 1 << 20;
/// Alignment of streaming stores: that of the largest vector.
const ALIGNMENT: usize = 64;

/// One pass over a part of the inputs, for up to [`MAX_OUTPUTS`] outputs. Every column is at least
/// as long as the end of the part.
pub(crate) struct Pass<'p, 'o> {
    matrix: &'p Matrix,
    /// The matrix row of the first output.
    first: usize,
    inputs: &'p [&'p [u8]],
    outputs: &'p mut [&'o mut [u8]],
    part: Range<usize>,
    stream: bool,
}

impl<'p> Pass<'p, '_> {
    /// Returns the number of outputs: 1 to [`MAX_OUTPUTS`].
    pub(crate) fn outputs(&self) -> usize {
        self.outputs.len()
    }

    /// Returns the start of each input.
    pub(crate) fn sources(&self) -> impl ExactSizeIterator<Item = *const u8> {
        self.inputs.iter().map(|input| input.as_ptr())
    }

    /// Returns the start of output `output` of the pass.
    pub(crate) fn target(&mut self, output: usize) -> *mut u8 {
        self.outputs[output].as_mut_ptr()
    }

    /// Returns the coefficients of the inputs in output `output` of the pass.
    pub(crate) fn factors(&self, output: usize) -> &'p [u8] {
        self.matrix.row(self.first + output)
    }

    /// Returns true if the first output is the plain XOR.
    pub(crate) fn first_row_is_xor(&self) -> bool {
        self.first == 0 && self.matrix.first_row_is_xor()
    }

    /// Returns the part, in bytes from the start of each column.
    pub(crate) fn part(&self) -> Range<usize> {
        self.part.clone()
    }

    /// Returns true if streaming stores are faster. The outputs are then aligned to 64 bytes.
    pub(crate) fn streams(&self) -> bool {
        self.stream
    }
}

/// Calls `pass` for each pass over a part of the columns. Returns true if the passes use streaming
/// stores, which requires a fence afterwards.
///
/// # Panics
/// In the cases of [`Matrix::check`].
#[inline(always)]
pub(crate) fn for_each_pass(
    matrix: &Matrix,
    inputs: &[&[u8]],
    outputs: &mut [&mut [u8]],
    part: Range<usize>,
    mut pass: impl FnMut(Pass<'_, '_>),
) -> bool {
    matrix.check(inputs, outputs, &part);
    let large = (inputs.len() + outputs.len()) * part.len() > STREAM_MIN;
    let stream =
        large && outputs.iter().all(|output| output[part.start..].as_ptr().addr().is_multiple_of(ALIGNMENT));
    let tile = if outputs.len() > MAX_OUTPUTS { TILE } else { part.len() };
    let mut from = part.start;
    while from < part.end {
        let to = part.end.min(from + tile);
        let mut first = 0;
        for outputs in outputs.chunks_mut(MAX_OUTPUTS) {
            let made = outputs.len();
            pass(Pass { matrix, first, inputs, outputs, part: from..to, stream });
            first += made;
        }
        from = to;
    }
    stream
}
