//! Carry-less multiplication: folding of sums forward in a message, and reduction to a checksum
//! state.
//!
//! The method is that of Gopal et al., "Fast CRC Computation for Generic Polynomials Using
//! PCLMULQDQ Instruction" (Intel, 2009): 128 bits are folded d bits forward in the message by
//! multiplying their halves with x^(d + 64) and x^d mod P, and adding the result to the data at
//! that position. The last 128 bits are reduced by the `crc32` instruction instead of Gopal's
//! Barrett reduction.
//!
//! Owns the constants. Must not access memory.

use std::arch::x86_64::*;

use crate::polynomial::times_x;

/// Bytes of a vector.
pub(super) const VECTOR: usize = 64;
/// Vectors that are summed in parallel, to hide the latency of the multiplication.
pub(super) const LANES: usize = 4;
/// The truth table of a ^ b ^ c.
const XOR: i32 = 0x96;

/// Returns x^n mod P, bits reversed: bit 31 is the coefficient of x^0.
pub(super) const fn power_of_x(n: u32) -> u32 {
    let mut power = 1 << 31;
    let mut i = 0;
    while i < n {
        power = times_x(power);
        i += 1;
    }
    power
}

/// The factors of the low and the high half of 128 bits that fold them forward by some distance.
#[derive(Clone, Copy)]
pub(super) struct FoldDistance(u64, u64);

impl FoldDistance {
    /// Returns the factors for a number of bytes, at least 8. Products of reflected operands are
    /// multiplied by x, and a 32-bit factor in a 64-bit operand by x^32: hence 33 is subtracted.
    const fn bytes(distance: usize) -> Self {
        let bits = distance as u32 * 8;
        Self(power_of_x(bits + 64 - 33) as u64, power_of_x(bits - 33) as u64)
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    pub(super) fn in_all_lanes(self) -> __m512i {
        _mm512_broadcast_i32x4(_mm_set_epi64x(self.1.cast_signed(), self.0.cast_signed()))
    }
}

const ONE: FoldDistance = FoldDistance::bytes(VECTOR);
/// Folds a vector onto the second vector after it.
pub(super) const TWO: FoldDistance = FoldDistance::bytes(2 * VECTOR);
/// Folds a vector of a lane onto the next vector of the lane.
pub(super) const FOUR: FoldDistance = FoldDistance::bytes(LANES * VECTOR);
/// Folds the first, second and third 128 bits of a vector onto the last. The factors of the last
/// 128 bits are zero, since they stay.
const FOLD_WITHIN_VECTOR: [i64; 8] = {
    let (first, second, third) = (FoldDistance::bytes(48), FoldDistance::bytes(32), FoldDistance::bytes(16));
    let [a, b, c] = [first.0, second.0, third.0];
    let [d, e, f] = [first.1, second.1, third.1];
    [a as i64, d as i64, b as i64, e as i64, c as i64, f as i64, 0, 0]
};
/// Adds the state to the first 32 bits of the data that follow it.
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn add_state(first: __m512i, state: u32) -> __m512i {
    _mm512_xor_si512(first, _mm512_zextsi128_si512(_mm_cvtsi32_si128(state.cast_signed())))
}

/// Folds a sum forward onto `data`.
#[inline]
#[target_feature(enable = "avx512f,vpclmulqdq")]
pub(super) fn fold(sum: __m512i, ahead: __m512i, data: __m512i) -> __m512i {
    let low = _mm512_clmulepi64_epi128::<0x00>(sum, ahead);
    let high = _mm512_clmulepi64_epi128::<0x11>(sum, ahead);
    _mm512_ternarylogic_epi64::<XOR>(low, high, data)
}

/// Merges the sums of four consecutive vectors into one at the position of the last.
#[inline]
#[target_feature(enable = "avx512f,vpclmulqdq")]
pub(super) fn merge_lanes(sums: [__m512i; LANES]) -> __m512i {
    let two = TWO.in_all_lanes();
    let (third, fourth) = (fold(sums[0], two, sums[2]), fold(sums[1], two, sums[3]));
    fold(third, ONE.in_all_lanes(), fourth)
}

/// Returns the state after the 64 bytes of `sum`.
#[inline]
#[target_feature(enable = "avx512f,avx512vl,vpclmulqdq,sse4.2")]
pub(super) fn reduce(sum: __m512i) -> u32 {
    let [a, b, c, d, e, f, g, h] = FOLD_WITHIN_VECTOR;
    let within = _mm512_setr_epi64(a, b, c, d, e, f, g, h);
    let low = _mm512_clmulepi64_epi128::<0x00>(sum, within);
    let high = _mm512_clmulepi64_epi128::<0x11>(sum, within);
    let moved = _mm512_ternarylogic_epi64::<XOR>(low, high, _mm512_maskz_mov_epi64(0b1100_0000, sum));
    let half = _mm256_xor_si256(_mm512_castsi512_si256(moved), _mm512_extracti64x4_epi64::<1>(moved));
    let last = _mm_xor_si128(_mm256_castsi256_si128(half), _mm256_extracti128_si256::<1>(half));
    let state = _mm_crc32_u64(0, _mm_cvtsi128_si64(last).cast_unsigned());
    _mm_crc32_u64(state, _mm_extract_epi64::<1>(last).cast_unsigned()) as u32
}

/// Returns the carry-less product of two 32-bit values.
#[inline]
#[target_feature(enable = "sse2,pclmulqdq")]
pub(super) fn multiply(a: u64, b: u64) -> u64 {
    let (a, b) = (_mm_cvtsi64_si128(a.cast_signed()), _mm_cvtsi64_si128(b.cast_signed()));
    _mm_cvtsi128_si64(_mm_clmulepi64_si128::<0>(a, b)).cast_unsigned()
}

#[cfg(test)]
mod tests;
