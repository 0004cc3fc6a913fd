//! Carry-less multiplication: moving sums ahead in a message, and reducing them to a state.
//!
//! The method is Gopal et al., "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction" (Intel,
//! 2009): 128 bits are moved d bits ahead in the message by multiplying their halves with x^(d + 64) and x^d mod
//! P, and are then added to what is there. The last 128 bits go through the `crc32` instruction, which Gopal's
//! Barrett reduction predates.
//!
//! Owns the constants. Must not touch memory.

use std::arch::x86_64::*;

use crate::checksum::times_x;

/// Bytes of a vector.
pub(super) const VECTOR: usize = 64;
/// Vectors summed side by side, which hides the latency of the multiplication.
pub(super) const LANES: usize = 4;
/// The truth table of a ^ b ^ c.
const XOR: i32 = 0x96;

/// x^n mod P, bits reversed: bit 31 is the factor of x^0.
pub(super) const fn power_of_x(n: u32) -> u32 {
    let mut power = 1 << 31;
    let mut i = 0;
    while i < n {
        power = times_x(power);
        i += 1;
    }
    power
}

/// What moves 128 bits ahead by some distance: the factors of the low and the high half.
#[derive(Clone, Copy)]
pub(super) struct Ahead(u64, u64);

impl Ahead {
    /// By a number of bytes, 8 at least. Reflected operands' products come out multiplied by x, and a 32-bit
    /// factor in a 64-bit operand by x^32: hence the 33 less.
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

const ONE: Ahead = Ahead::bytes(VECTOR);
/// From a vector to the one after its next.
pub(super) const TWO: Ahead = Ahead::bytes(2 * VECTOR);
/// From a lane's vector to its next.
pub(super) const FOUR: Ahead = Ahead::bytes(LANES * VECTOR);
/// What moves the first, second and third 128 bits of a vector onto the last. Those stay: their factors are zero.
const WITHIN: [i64; 8] = {
    let (first, second, third) = (Ahead::bytes(48), Ahead::bytes(32), Ahead::bytes(16));
    let [a, b, c] = [first.0, second.0, third.0];
    let [d, e, f] = [first.1, second.1, third.1];
    [a as i64, d as i64, b as i64, e as i64, c as i64, f as i64, 0, 0]
};
/// The state belongs to the first 32 bits that follow it.
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn add_state(first: __m512i, state: u32) -> __m512i {
    _mm512_xor_si512(first, _mm512_zextsi128_si512(_mm_cvtsi32_si128(state.cast_signed())))
}

/// Moves a sum ahead and adds what is there.
#[inline]
#[target_feature(enable = "avx512f,vpclmulqdq")]
pub(super) fn fold(sum: __m512i, ahead: __m512i, there: __m512i) -> __m512i {
    let low = _mm512_clmulepi64_epi128::<0x00>(sum, ahead);
    let high = _mm512_clmulepi64_epi128::<0x11>(sum, ahead);
    _mm512_ternarylogic_epi64::<XOR>(low, high, there)
}

/// Four sums of vectors that lie one after the other, as one in the place of the last.
#[inline]
#[target_feature(enable = "avx512f,vpclmulqdq")]
pub(super) fn merge_lanes(sums: [__m512i; LANES]) -> __m512i {
    let two = TWO.in_all_lanes();
    let (third, fourth) = (fold(sums[0], two, sums[2]), fold(sums[1], two, sums[3]));
    fold(third, ONE.in_all_lanes(), fourth)
}

/// Two sums of vectors that lie one after the other, as one in the place of the last.
#[inline]
#[target_feature(enable = "avx512f,vpclmulqdq")]
pub(super) fn merge_two([first, second]: [__m512i; 2]) -> __m512i {
    fold(first, ONE.in_all_lanes(), second)
}

/// The state after the 64 bytes that `sum` stands for.
#[inline]
#[target_feature(enable = "avx512f,avx512vl,vpclmulqdq,sse4.2")]
pub(super) fn reduce(sum: __m512i) -> u32 {
    let [a, b, c, d, e, f, g, h] = WITHIN;
    let within = _mm512_setr_epi64(a, b, c, d, e, f, g, h);
    let low = _mm512_clmulepi64_epi128::<0x00>(sum, within);
    let high = _mm512_clmulepi64_epi128::<0x11>(sum, within);
    let moved = _mm512_ternarylogic_epi64::<XOR>(low, high, _mm512_maskz_mov_epi64(0b1100_0000, sum));
    let half = _mm256_xor_si256(_mm512_castsi512_si256(moved), _mm512_extracti64x4_epi64::<1>(moved));
    let last = _mm_xor_si128(_mm256_castsi256_si128(half), _mm256_extracti128_si256::<1>(half));
    let state = _mm_crc32_u64(0, _mm_cvtsi128_si64(last).cast_unsigned());
    _mm_crc32_u64(state, _mm_extract_epi64::<1>(last).cast_unsigned()) as u32
}

/// The carry-less product of two states' size.
#[inline]
#[target_feature(enable = "sse2,pclmulqdq")]
pub(super) fn multiply(a: u64, b: u64) -> u64 {
    let (a, b) = (_mm_cvtsi64_si128(a.cast_signed()), _mm_cvtsi64_si128(b.cast_signed()));
    _mm_cvtsi128_si64(_mm_clmulepi64_si128::<0>(a, b)).cast_unsigned()
}

#[cfg(test)]
mod tests;
