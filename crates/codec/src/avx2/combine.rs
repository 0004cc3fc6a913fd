//! Sums of columns times field elements, 32 bytes per instruction.
//!
//! A multiplication consists of two `pshufb` look-ups of nibbles, as in Plank, Greenan and Miller,
//! "Screaming Fast Galois Field Arithmetic Using Intel SIMD Instructions" (FAST 2013). Must not
//! know whether it encodes or decodes.
#![allow(unsafe_code)]
#![allow(
    clippy::indexing_slicing,
    clippy::needless_range_loop,
    reason = "indices below const lengths, of several arrays at once: the loops are unrolled without bounds checks"
)]

use std::arch::x86_64::*;
use std::ops::Range;

use super::nibbles::NIBBLES;
use crate::matrix::Matrix;
use crate::passes::{Pass, for_each_pass};

/// Bytes of a vector.
const VECTOR: usize = 32;
/// Vectors of each column that are processed at once: with four outputs, 8 of the 16 registers are
/// sums.
const UNROLL: usize = 2;
/// Bytes of each column that a step processes.
const STEP: usize = UNROLL * VECTOR;

/// Computes output r = the sum over c of matrix(r, c) * input c, for a part of each column.
#[target_feature(enable = "avx2")]
pub(crate) fn combine(matrix: &Matrix, inputs: &[&[u8]], outputs: &mut [&mut [u8]], part: Range<usize>) {
    for_each_pass(matrix, inputs, outputs, part, |pass| match (pass.outputs(), pass.first_row_is_xor()) {
        (1, true) => combine_rows::<1, true>(pass),
        (2, true) => combine_rows::<2, true>(pass),
        (3, true) => combine_rows::<3, true>(pass),
        (4, true) => combine_rows::<4, true>(pass),
        (1, false) => combine_rows::<1, false>(pass),
        (2, false) => combine_rows::<2, false>(pass),
        (3, false) => combine_rows::<3, false>(pass),
        _ => combine_rows::<4, false>(pass),
    });
}

/// Runs one pass for M outputs; with XOR_FIRST, the first output is the plain XOR of the inputs.
///
/// Does not use streaming stores: its tables are in memory, and loads from them conflict with
/// streaming stores (see the AVX-512 kernel).
#[target_feature(enable = "avx2")]
fn combine_rows<const M: usize, const XOR_FIRST: bool>(mut pass: Pass<'_, '_>) {
    let outputs: [*mut u8; M] = std::array::from_fn(|r| pass.target(r));
    let part = pass.part();
    let mut at = part.start;
    while at + STEP <= part.end {
        let mut sums = [[_mm256_setzero_si256(); UNROLL]; M];
        for (j, input) in pass.sources().enumerate() {
            // SAFETY: the step ends at or before the part's end, and so within the column.
            let data = unsafe { load(input.add(at)) };
            add_products::<M, XOR_FIRST>(&mut sums, data, |r| pass.factors(r)[j]);
        }
        for (output, sums) in outputs.iter().zip(&sums) {
            // SAFETY: as above.
            unsafe { store(output.add(at), sums) };
        }
        at += STEP;
    }
    if at < part.end {
        tail(&pass, outputs, at);
    }
}

/// Processes the last bytes of a part, from `at` on and less than a step, through a local buffer.
#[cold]
#[target_feature(enable = "avx2")]
fn tail<const M: usize>(pass: &Pass<'_, '_>, outputs: [*mut u8; M], at: usize) {
    let length = pass.part().end - at;
    assert!(length <= STEP);
    let mut sums = [[_mm256_setzero_si256(); UNROLL]; M];
    let mut bytes = [0u8; STEP];
    for (j, input) in pass.sources().enumerate() {
        // SAFETY: `length` bytes of the input are left, and they fit into the buffer.
        let data = unsafe {
            input.add(at).copy_to_nonoverlapping(bytes.as_mut_ptr(), length);
            load(bytes.as_ptr())
        };
        add_products::<M, false>(&mut sums, data, |r| pass.factors(r)[j]);
    }
    for (output, sums) in outputs.iter().zip(&sums) {
        // SAFETY: as above.
        unsafe {
            store(bytes.as_mut_ptr(), sums);
            output.add(at).copy_from_nonoverlapping(bytes.as_ptr(), length);
        }
    }
}

/// Adds the data times its coefficient to the sums of each output.
#[inline]
#[target_feature(enable = "avx2")]
fn add_products<const M: usize, const XOR_FIRST: bool>(
    sums: &mut [[__m256i; UNROLL]; M],
    data: [__m256i; UNROLL],
    factor: impl Fn(usize) -> u8,
) {
    let nibble = _mm256_set1_epi8(0x0F);
    let low = data.map(|data| _mm256_and_si256(data, nibble));
    let high = data.map(|data| _mm256_and_si256(_mm256_srli_epi64::<4>(data), nibble));
    for (r, sums) in sums.iter_mut().enumerate() {
        if XOR_FIRST && r == 0 {
            for u in 0..UNROLL {
                sums[u] = _mm256_xor_si256(sums[u], data[u]);
            }
            continue;
        }
        let (of_low, of_high) = tables(factor(r));
        for u in 0..UNROLL {
            let product =
                _mm256_xor_si256(_mm256_shuffle_epi8(of_low, low[u]), _mm256_shuffle_epi8(of_high, high[u]));
            sums[u] = _mm256_xor_si256(sums[u], product);
        }
    }
}

/// Returns the products of a coefficient with all low and all high nibbles, in both halves of a
/// vector.
#[inline]
#[target_feature(enable = "avx2")]
fn tables(factor: u8) -> (__m256i, __m256i) {
    let table = NIBBLES[usize::from(factor)].as_ptr();
    // SAFETY: a table is 32 bytes.
    let (low, high) = unsafe { (_mm_loadu_si128(table.cast()), _mm_loadu_si128(table.add(16).cast())) };
    (_mm256_broadcastsi128_si256(low), _mm256_broadcastsi128_si256(high))
}

/// Loads a step of data.
///
/// # Safety
/// A step's bytes from `address` on are valid for reads.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn load(address: *const u8) -> [__m256i; UNROLL] {
    // SAFETY: the caller's contract.
    unsafe { [_mm256_loadu_si256(address.cast()), _mm256_loadu_si256(address.add(VECTOR).cast())] }
}

/// Stores a step of data.
///
/// # Safety
/// A step's bytes from `address` on are valid for writes.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn store(address: *mut u8, data: &[__m256i; UNROLL]) {
    // SAFETY: the caller's contract.
    unsafe {
        _mm256_storeu_si256(address.cast(), data[0]);
        _mm256_storeu_si256(address.add(VECTOR).cast(), data[1]);
    }
}
