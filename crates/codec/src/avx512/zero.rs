//! Search for a nonzero byte, 256 bytes at a time.
//!
//! The first 64 bytes are tested separately, since most nonzero data is nonzero there.
#![allow(unsafe_code)]

use std::arch::x86_64::*;

/// Bytes of a vector.
const VECTOR: usize = 64;

/// Returns true if every byte is zero.
#[target_feature(enable = "avx512f,avx512bw")]
pub(crate) fn is_zero(data: &[u8]) -> bool {
    let (first, rest) = data.split_at(data.len().min(VECTOR));
    if !is_zero_vector(first) {
        return false;
    }
    let (groups, rest) = rest.as_chunks::<{ 4 * VECTOR }>();
    groups.iter().all(|group| is_zero_group(group))
        && rest.chunks(VECTOR).all(|vector| is_zero_vector(vector))
}

/// Tests up to 64 bytes.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn is_zero_vector(data: &[u8]) -> bool {
    debug_assert!(data.len() <= VECTOR);
    let mask = if data.is_empty() { 0 } else { !0u64 >> (VECTOR - data.len()) };
    // SAFETY: only the bytes of the mask are read, which are the slice's.
    let vector = unsafe { _mm512_maskz_loadu_epi8(mask, data.as_ptr().cast()) };
    _mm512_test_epi64_mask(vector, vector) == 0
}

#[inline]
#[target_feature(enable = "avx512f")]
fn is_zero_group(data: &[u8; 4 * VECTOR]) -> bool {
    // SAFETY: four vectors are as long as the array.
    let [a, b, c, d] =
        [0, 1, 2, 3].map(|i| unsafe { _mm512_loadu_si512(data.as_ptr().add(i * VECTOR).cast()) });
    let any = _mm512_or_si512(_mm512_or_si512(a, b), _mm512_or_si512(c, d));
    _mm512_test_epi64_mask(any, any) == 0
}
