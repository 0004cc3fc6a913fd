//! Sums of columns times field elements, 64 bytes per instruction: the kernel of encoding and
//! decoding.
//!
//! Owns the order of memory accesses: each byte of the inputs is loaded once for up to four
//! outputs. A multiplication is one `gf2p8affineqb` (GFNI's affine instruction works for any field
//! polynomial; its own multiplication is limited to 0x11B). Must not know whether it encodes or
//! decodes.
#![allow(unsafe_code)]
#![allow(
    clippy::indexing_slicing,
    clippy::needless_range_loop,
    reason = "indices below const lengths, of several arrays at once: the loops are unrolled without bounds checks"
)]

use std::arch::x86_64::*;
use std::ops::Range;

use super::affine::AFFINE;
use crate::MAX_COLUMNS;
use crate::matrix::Matrix;
use crate::passes::{Pass, for_each_pass};

/// Bytes of a vector.
const VECTOR: usize = 64;
/// Minimum number of bytes of a long column.
const LONG_COLUMN_MIN: usize = 16 << 10;

/// Computes output r = the sum over c of matrix(r, c) * input c, for a part of each column.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,gfni")]
pub(crate) fn combine(matrix: &Matrix, inputs: &[&[u8]], outputs: &mut [&mut [u8]], part: Range<usize>) {
    let streamed = for_each_pass(matrix, inputs, outputs, part, |pass| {
        match (pass.outputs(), pass.first_row_is_xor()) {
            (1, true) => combine_rows::<1, true>(pass),
            (2, true) => combine_rows::<2, true>(pass),
            (3, true) => combine_rows::<3, true>(pass),
            (4, true) => combine_rows::<4, true>(pass),
            (1, false) => combine_rows::<1, false>(pass),
            (2, false) => combine_rows::<2, false>(pass),
            (3, false) => combine_rows::<3, false>(pass),
            _ => combine_rows::<4, false>(pass),
        }
    });
    if streamed {
        // Streaming stores are weakly ordered: they must be globally visible before the function
        // returns.
        _mm_sfence();
    }
}

/// Runs one pass for M outputs; with XOR_FIRST, the first output is the plain XOR of the inputs.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,gfni")]
fn combine_rows<const M: usize, const XOR_FIRST: bool>(mut pass: Pass<'_, '_>) {
    let outputs: [*mut u8; M] = std::array::from_fn(|r| pass.target(r));
    let done = match pass.sources().len() {
        1 if M <= 2 => fixed_inputs::<1, M, XOR_FIRST>(&pass, outputs),
        2 if M <= 2 => fixed_inputs::<2, M, XOR_FIRST>(&pass, outputs),
        3 if M <= 2 => fixed_inputs::<3, M, XOR_FIRST>(&pass, outputs),
        4 if M <= 2 => fixed_inputs::<4, M, XOR_FIRST>(&pass, outputs),
        5 if M <= 2 => fixed_inputs::<5, M, XOR_FIRST>(&pass, outputs),
        6 if M <= 2 => fixed_inputs::<6, M, XOR_FIRST>(&pass, outputs),
        7 if M <= 2 => fixed_inputs::<7, M, XOR_FIRST>(&pass, outputs),
        8 if M <= 2 => fixed_inputs::<8, M, XOR_FIRST>(&pass, outputs),
        9 if M <= 2 => fixed_inputs::<9, M, XOR_FIRST>(&pass, outputs),
        10 if M <= 2 => fixed_inputs::<10, M, XOR_FIRST>(&pass, outputs),
        _ if M == 1 => any_inputs::<M, XOR_FIRST, 2>(&pass, outputs),
        _ => any_inputs::<M, XOR_FIRST, 4>(&pass, outputs),
    };
    if done < pass.part().end {
        tail(&pass, outputs, done);
    }
}

/// Processes the common shapes, K inputs and one or two outputs. Returns the offset at which it
/// stopped, less than a step before the end of the part.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,gfni")]
fn fixed_inputs<const K: usize, const M: usize, const XOR_FIRST: bool>(
    pass: &Pass<'_, '_>,
    outputs: [*mut u8; M],
) -> usize {
    if XOR_FIRST && pass.part().len() >= LONG_COLUMN_MIN {
        long_column_steps::<K, M>(pass, outputs)
    } else {
        steps::<K, M, XOR_FIRST, 2>(pass, outputs)
    }
}

/// Does the same as [`fixed_inputs`] for long columns, which are limited by the L2 cache or memory.
/// The fastest variants were measured on Zen 5: longer runs for two outputs; for one output, which
/// needs little arithmetic, the loop with shorter steps unless it streams. Not inlined, because
/// saving its registers would slow down short columns.
#[inline(never)]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,gfni")]
fn long_column_steps<const K: usize, const M: usize>(pass: &Pass<'_, '_>, outputs: [*mut u8; M]) -> usize {
    match (M, pass.streams()) {
        (1, false) => any_inputs::<M, true, 2>(pass, outputs),
        (1, true) => steps::<K, M, true, 4>(pass, outputs),
        _ => steps::<K, M, true, 8>(pass, outputs),
    }
}

/// Processes steps of `UNROLL` vectors, with all coefficients in registers.
///
/// Only this kernel uses streaming stores, because it loads only the inputs: a load waits for a
/// pending streaming store with the same low 12 address bits, and loads from a table or an array of
/// addresses meet such a store every 4096 bytes. That made the kernel below 2.5 times as slow (Zen
/// 5).
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,gfni")]
fn steps<const K: usize, const M: usize, const XOR_FIRST: bool, const UNROLL: usize>(
    pass: &Pass<'_, '_>,
    outputs: [*mut u8; M],
) -> usize {
    let mut inputs = [std::ptr::null(); K];
    for (input, source) in inputs.iter_mut().zip(pass.sources()) {
        *input = source;
    }
    let mut factors = [[_mm512_setzero_si512(); M]; K];
    for r in usize::from(XOR_FIRST)..M {
        for (factors, &element) in factors.iter_mut().zip(pass.factors(r)) {
            factors[r] = broadcast(element);
        }
    }
    let (part, stream) = (pass.part(), pass.streams());
    let mut at = part.start;
    while at + UNROLL * VECTOR <= part.end {
        let mut sums = [[_mm512_setzero_si512(); UNROLL]; M];
        for j in 0..K {
            // SAFETY: the vectors end at or before the part's end, and so within the column.
            let data = unsafe { load::<UNROLL>(inputs[j].add(at)) };
            for r in 0..M {
                add_product(&mut sums[r], &data, (!XOR_FIRST || r > 0).then_some(factors[j][r]));
            }
        }
        for r in 0..M {
            // SAFETY: as above; a pass that streams has aligned outputs.
            unsafe { store(outputs[r].add(at), &sums[r], stream) };
        }
        at += UNROLL * VECTOR;
    }
    at
}

/// Processes any number of inputs: coefficients are loaded again in every step, so steps are
/// longer. Returns the offset at which it stopped, less than a step before the end of the part.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,gfni")]
fn any_inputs<const M: usize, const XOR_FIRST: bool, const UNROLL: usize>(
    pass: &Pass<'_, '_>,
    outputs: [*mut u8; M],
) -> usize {
    let mut factors = [[0u64; MAX_COLUMNS]; M];
    for r in 0..M {
        for (factor, &element) in factors[r].iter_mut().zip(pass.factors(r)) {
            *factor = AFFINE[usize::from(element)];
        }
    }
    let part = pass.part();
    let mut at = part.start;
    while at + UNROLL * VECTOR <= part.end {
        let mut sums = [[_mm512_setzero_si512(); UNROLL]; M];
        for (j, input) in pass.sources().enumerate() {
            // SAFETY: the vectors end at or before the part's end, and so within the column.
            let data = unsafe { load::<UNROLL>(input.add(at)) };
            for r in 0..M {
                let factor = _mm512_set1_epi64(factors[r][j].cast_signed());
                add_product(&mut sums[r], &data, (!XOR_FIRST || r > 0).then_some(factor));
            }
        }
        for r in 0..M {
            // SAFETY: as above.
            unsafe { store(outputs[r].add(at), &sums[r], false) };
        }
        at += UNROLL * VECTOR;
    }
    at
}

/// Processes the rest of a part from `at` on, one vector at a time, the last one masked.
#[cold]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,gfni")]
fn tail<const M: usize>(pass: &Pass<'_, '_>, outputs: [*mut u8; M], mut at: usize) {
    let end = pass.part().end;
    while at < end {
        let mask = !0u64 >> (VECTOR - (end - at).min(VECTOR));
        let mut sums = [[_mm512_setzero_si512()]; M];
        for (j, input) in pass.sources().enumerate() {
            // SAFETY: only the bytes of the mask are read, which end at or before the part's end.
            let data = unsafe { _mm512_maskz_loadu_epi8(mask, input.add(at).cast()) };
            for r in 0..M {
                add_product(&mut sums[r], &[data], Some(broadcast(pass.factors(r)[j])));
            }
        }
        for r in 0..M {
            // SAFETY: only the bytes of the mask are written.
            unsafe { _mm512_mask_storeu_epi8(outputs[r].add(at).cast(), mask, sums[r][0]) };
        }
        at += VECTOR;
    }
}

/// Returns the matrix of an element in all eight words of a vector.
#[inline]
#[target_feature(enable = "avx512f")]
fn broadcast(element: u8) -> __m512i {
    _mm512_set1_epi64(AFFINE[usize::from(element)].cast_signed())
}

/// Adds the data, times the coefficient if there is one.
#[inline]
#[target_feature(enable = "avx512f,gfni")]
fn add_product<const U: usize>(sums: &mut [__m512i; U], data: &[__m512i; U], factor: Option<__m512i>) {
    for u in 0..U {
        let product = match factor {
            Some(factor) => _mm512_gf2p8affine_epi64_epi8::<0>(data[u], factor),
            None => data[u],
        };
        sums[u] = _mm512_xor_si512(sums[u], product);
    }
}

/// Loads U vectors.
///
/// # Safety
/// U vectors from `address` on are valid for reads.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn load<const U: usize>(address: *const u8) -> [__m512i; U] {
    let mut data = [_mm512_setzero_si512(); U];
    for (u, vector) in data.iter_mut().enumerate() {
        // SAFETY: the caller's contract.
        *vector = unsafe { _mm512_loadu_si512(address.add(u * VECTOR).cast()) };
    }
    data
}

/// Stores U vectors.
///
/// # Safety
/// U vectors from `address` on are valid for writes; with `stream`, they are aligned.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn store<const U: usize>(address: *mut u8, data: &[__m512i; U], stream: bool) {
    for (u, &vector) in data.iter().enumerate() {
        // SAFETY: the caller's contract.
        unsafe {
            let address = address.add(u * VECTOR).cast();
            if stream { _mm512_stream_si512(address, vector) } else { _mm512_storeu_si512(address, vector) }
        }
    }
}
