//! How the SIMD kernels divide their work: which outputs and which part of the columns go into one pass.
//!
//! Owns the sizes that were measured (comparison/README.md). Every byte of every output is in exactly one pass.
//! Must not know any instruction.
#![allow(clippy::indexing_slicing, reason = "rows are below the matrix' rows, and chunks within their slice")]

use std::ops::Range;

use crate::matrix::Matrix;

/// How many outputs a pass makes. More do not fit in the registers with their vectors of sums.
pub(crate) const MOST: usize = 4;
/// With more outputs than one pass makes, the inputs are walked in parts of this many bytes, which are still in
/// the first cache when the next pass comes.
const TILE: usize = 1024;
/// From so many bytes of inputs and outputs on, the outputs are written past the caches. It is the size of a
/// second-level cache: where the columns are in it plain stores are up to twice as fast, and with larger ones
/// streaming stores are never slower and up to a third faster.
const STREAM: usize = 1 << 20;
/// Streaming stores want their vector's alignment; this is the largest vector's.
const ALIGNMENT: usize = 64;

/// One pass over a part of the inputs, for up to [`MOST`] outputs. All columns reach at least to the part's end.
pub(crate) struct Pass<'p, 'o> {
    matrix: &'p Matrix,
    /// The matrix' row for the first output.
    first: usize,
    inputs: &'p [&'p [u8]],
    outputs: &'p mut [&'o mut [u8]],
    part: Range<usize>,
    stream: bool,
}

impl<'p> Pass<'p, '_> {
    /// How many outputs it makes: 1 to [`MOST`].
    pub(crate) fn outputs(&self) -> usize {
        self.outputs.len()
    }

    /// Where each input starts.
    pub(crate) fn sources(&self) -> impl ExactSizeIterator<Item = *const u8> {
        self.inputs.iter().map(|input| input.as_ptr())
    }

    /// Where output `output` of the pass starts.
    pub(crate) fn target(&mut self, output: usize) -> *mut u8 {
        self.outputs[output].as_mut_ptr()
    }

    /// The factors of the inputs in output `output` of the pass.
    pub(crate) fn factors(&self, output: usize) -> &'p [u8] {
        self.matrix.row(self.first + output)
    }

    /// Whether the first output is the plain sum.
    pub(crate) fn sums_first(&self) -> bool {
        self.first == 0 && self.matrix.sums_first()
    }

    /// The part, in bytes from the start of each column.
    pub(crate) fn part(&self) -> Range<usize> {
        self.part.clone()
    }

    /// Whether writing past the caches is faster. If so, the outputs are aligned to 64 bytes.
    pub(crate) fn streams(&self) -> bool {
        self.stream
    }
}

/// Calls `pass` for all that there is to do in a part of the columns. Gives whether these passes were told to
/// stream, which needs a fence after.
///
/// # Panics
/// As [`Matrix::check`].
#[inline(always)]
pub(crate) fn for_each_pass(
    matrix: &Matrix,
    inputs: &[&[u8]],
    outputs: &mut [&mut [u8]],
    part: Range<usize>,
    mut pass: impl FnMut(Pass<'_, '_>),
) -> bool {
    matrix.check(inputs, outputs, &part);
    let large = (inputs.len() + outputs.len()) * part.len() > STREAM;
    let stream =
        large && outputs.iter().all(|output| output[part.start..].as_ptr().addr().is_multiple_of(ALIGNMENT));
    let tile = if outputs.len() > MOST { TILE } else { part.len() };
    let mut from = part.start;
    while from < part.end {
        let to = part.end.min(from + tile);
        let mut first = 0;
        for outputs in outputs.chunks_mut(MOST) {
            let made = outputs.len();
            pass(Pass { matrix, first, inputs, outputs, part: from..to, stream });
            first += made;
        }
        from = to;
    }
    stream
}
