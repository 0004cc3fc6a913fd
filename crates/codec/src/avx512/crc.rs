//! CRC-32C by carry-less multiplication of 64 bytes at a time, and fused with a copy.
//!
//! The method is Gopal et al., "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction" (Intel, 2009):
//! 128 bits are moved d bits ahead in the message by multiplying their halves with x^(d + 64) and x^d mod P, and are then
//! added to what is there. The last 128 bits go through the `crc32` instruction. A 4 KiB block is split between the
//! multiplier and that instruction, which are different units of the core, so that both work all the time (as Peter
//! Cawley's fast-crc32 does): a third of the block is summed in three chains of `crc32`.
//!
//! States are kept as the registers of the checksum are, that is, not inverted. Must not know what is checksummed.
#![allow(unsafe_code)]
#![allow(
    clippy::indexing_slicing,
    clippy::needless_range_loop,
    reason = "indices below const lengths, of several arrays at once: the loops unroll and check nothing"
)]

use std::arch::asm;
use std::arch::x86_64::*;
use std::ops::Range;

use crate::checksum::power_of_x;

/// Bytes of a vector.
const VECTOR: usize = 64;
/// Vectors summed side by side, which hides the latency of the multiplication.
const LANES: usize = 4;
/// Bytes of the block that has a kernel of its own.
const BLOCK: usize = 4096;
/// The block's vectors for the multiplier, which come first.
const FOLDED: usize = 43;
/// The words of each of three chains of `crc32` behind them: 43 vectors take 172 cycles on Zen 5, 56 words 168.
const CHAIN: usize = 56;
const _: () = assert!(FOLDED * VECTOR + 3 * CHAIN * 8 == BLOCK);

/// What moves 128 bits ahead by some distance: the factors of the low and the high half.
#[derive(Clone, Copy)]
struct Ahead(u64, u64);

impl Ahead {
    /// By a number of bytes, 8 at least. Reflected operands' products come out multiplied by x, and a 32-bit factor in a
    /// 64-bit operand by x^32: hence the 33 less.
    const fn bytes(distance: usize) -> Self {
        let bits = distance as u32 * 8;
        Self(power_of_x(bits + 64 - 33) as u64, power_of_x(bits - 33) as u64)
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn in_all_lanes(self) -> __m512i {
        _mm512_broadcast_i32x4(_mm_set_epi64x(self.1.cast_signed(), self.0.cast_signed()))
    }
}

const ONE: Ahead = Ahead::bytes(VECTOR);
const TWO: Ahead = Ahead::bytes(2 * VECTOR);
const FOUR: Ahead = Ahead::bytes(LANES * VECTOR);
/// What moves the first, second and third 128 bits of a vector onto the last. Those stay: their factors are zero.
const WITHIN: [i64; 8] = {
    let (first, second, third) = (Ahead::bytes(48), Ahead::bytes(32), Ahead::bytes(16));
    let [a, b, c] = [first.0, second.0, third.0];
    let [d, e, f] = [first.1, second.1, third.1];
    [a as i64, d as i64, b as i64, e as i64, c as i64, f as i64, 0, 0]
};
/// What moves a 32-bit state ahead by one, two and three chains.
const CHAINS: [u64; 3] = [
    power_of_x(64 * CHAIN as u32 - 33) as u64,
    power_of_x(128 * CHAIN as u32 - 33) as u64,
    power_of_x(192 * CHAIN as u32 - 33) as u64,
];

/// CRC-32C of what gave `crc` followed by `data`.
#[target_feature(enable = "avx512f,avx512vl,vpclmulqdq,pclmulqdq,sse4.2")]
pub(crate) fn crc32c_append(crc: u32, data: &[u8]) -> u32 {
    append(crc, data, false)
}

/// CRC-32C of each `size` bytes.
#[target_feature(enable = "avx512f,avx512vl,vpclmulqdq,pclmulqdq,sse4.2")]
pub(crate) fn crc32c_blocks(data: &[u8], size: usize, crcs: &mut [u32]) {
    let last = crcs.len().saturating_sub(1);
    for (i, (crc, block)) in crcs.iter_mut().zip(data.chunks_exact(size)).enumerate() {
        *crc = append(0, block, i < last);
    }
}

/// As [`crc32c_append`]. If `more` data lies behind that will be needed next, it is fetched into the cache.
#[inline]
#[target_feature(enable = "avx512f,avx512vl,vpclmulqdq,pclmulqdq,sse4.2")]
fn append(crc: u32, data: &[u8], more: bool) -> u32 {
    let (blocks, rest) = data.as_chunks::<BLOCK>();
    let mut state = !crc;
    for (i, data) in blocks.iter().enumerate() {
        let ahead = more || i + 1 < blocks.len();
        state = if ahead { block::<true>(state, data) } else { block::<false>(state, data) };
    }
    if rest.is_empty() {
        return !state;
    }
    let (vectors, rest) = rest.split_at(whole_lanes(rest.len()));
    // SAFETY: a slice is valid for reads of its length.
    let state = unsafe {
        lanes::<false>(state, vectors.as_ptr(), std::ptr::null_mut(), vectors.len(), std::ptr::null())
    };
    !words(state, rest)
}

/// Copies `length` bytes and gives the CRC-32C of the copy. Meanwhile as many bytes from `next` on are fetched into the
/// first cache: whatever address it is, nothing is read there that the program could notice.
///
/// # Safety
/// `source` is valid for reads and `destination` for writes of `length` bytes, and they do not overlap. Others may be
/// writing to the source.
#[target_feature(enable = "avx512f,avx512vl,vpclmulqdq,pclmulqdq,sse4.2")]
pub(crate) unsafe fn copy_crc32c(
    source: *const u8,
    destination: *mut u8,
    length: usize,
    next: *const u8,
) -> u32 {
    let most = whole_lanes(length);
    // SAFETY: the caller's contract; `most` is at most `length`.
    unsafe {
        let state = lanes::<true>(!0, source, destination, most, next);
        if most == length {
            return !state;
        }
        // The rest is copied first, and then only the copy is looked at.
        source.add(most).copy_to_nonoverlapping(destination.add(most), length - most);
        !words(state, std::slice::from_raw_parts(destination.add(most), length - most))
    }
}

/// How many of so many bytes [`lanes`] is for.
fn whole_lanes(length: usize) -> usize {
    length - length % (LANES * VECTOR)
}

/// A state and 4096 bytes more. With AHEAD the 4096 bytes behind them are fetched into the first cache, which takes a third
/// off the time of the next block if it is in memory, and adds a fifteenth if it is not.
#[inline]
#[target_feature(enable = "avx512f,avx512vl,vpclmulqdq,pclmulqdq,sse4.2")]
fn block<const AHEAD: bool>(state: u32, data: &[u8; BLOCK]) -> u32 {
    const STEPS: usize = FOLDED / LANES - 1;
    const EACH: usize = CHAIN / STEPS;
    const FETCHED: usize = BLOCK / VECTOR / STEPS;
    let vector = |i: usize| {
        debug_assert!((i + 1) * VECTOR <= BLOCK);
        // SAFETY: i is below FOLDED in all that follows.
        unsafe { _mm512_loadu_si512(data.as_ptr().add(i * VECTOR).cast()) }
    };
    let word = |chain: usize, i: usize| {
        let at = FOLDED * VECTOR + (chain * CHAIN + i) * 8;
        debug_assert!(at + 8 <= BLOCK);
        // SAFETY: chain is below 3 and i below CHAIN in all that follows.
        u64::from_le(unsafe { data.as_ptr().add(at).cast::<u64>().read_unaligned() })
    };
    let fetch = |vectors: Range<usize>| {
        for i in vectors {
            _mm_prefetch::<_MM_HINT_T0>(data.as_ptr().wrapping_add(BLOCK + i * VECTOR).cast());
        }
    };
    let four = FOUR.in_all_lanes();
    let mut sums = [add_state(vector(0), state), vector(1), vector(2), vector(3)];
    let mut chains = [0u64; 3];
    for step in 1..=STEPS {
        for lane in 0..LANES {
            sums[lane] = fold(sums[lane], four, vector(step * LANES + lane));
        }
        for i in 0..EACH {
            for chain in 0..3 {
                chains[chain] = _mm_crc32_u64(chains[chain], word(chain, (step - 1) * EACH + i));
            }
        }
        if AHEAD {
            fetch((step - 1) * FETCHED..step * FETCHED);
        }
    }
    for i in STEPS * EACH..CHAIN {
        for chain in 0..3 {
            chains[chain] = _mm_crc32_u64(chains[chain], word(chain, i));
        }
    }
    if AHEAD {
        fetch(STEPS * FETCHED..BLOCK / VECTOR);
    }
    // Three vectors are left, for the lanes whose turn it is: the fourth lane's sum is now the first.
    const LAST: usize = (STEPS + 1) * LANES;
    const _: () = assert!(LAST + 3 == FOLDED);
    let sum = merge_lanes([
        sums[3],
        fold(sums[0], four, vector(LAST)),
        fold(sums[1], four, vector(LAST + 1)),
        fold(sums[2], four, vector(LAST + 2)),
    ]);
    let folded = u64::from(reduce(sum));
    let moved = multiply(folded, CHAINS[2]) ^ multiply(chains[0], CHAINS[1]) ^ multiply(chains[1], CHAINS[0]);
    _mm_crc32_u64(0, moved) as u32 ^ chains[2] as u32
}

/// The 64 bytes `at` bytes from `source`. With COPY they are also written to `destination`, and those of `next` fetched.
///
/// # Safety
/// As [`lanes`], for these 64 bytes.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn take<const COPY: bool>(
    source: *const u8,
    destination: *mut u8,
    next: *const u8,
    at: usize,
) -> __m512i {
    if !COPY {
        // SAFETY: the caller's contract.
        return unsafe { _mm512_loadu_si512(source.add(at).cast()) };
    }
    let vector: __m512i;
    // SAFETY: the caller's contract. Others may be writing to the source, so that it must be read exactly once, which only
    // a volatile access promises: this load is one, and its result is what is both stored and summed.
    unsafe {
        asm!(
            "vmovdqu64 {vector}, zmmword ptr [{source} + {at}]",
            vector = out(zmm_reg) vector,
            source = in(reg) source,
            at = in(reg) at,
            options(nostack, preserves_flags, readonly)
        );
        _mm512_storeu_si512(destination.add(at).cast(), vector);
        _mm_prefetch::<_MM_HINT_T0>(next.wrapping_add(at).cast());
    }
    vector
}

/// A state and `length` bytes more, a multiple of 256.
///
/// # Safety
/// `source` is valid for reads of `length` bytes; with COPY, `destination` is for writes.
#[inline]
#[target_feature(enable = "avx512f,avx512vl,vpclmulqdq,pclmulqdq,sse4.2")]
unsafe fn lanes<const COPY: bool>(
    state: u32,
    source: *const u8,
    destination: *mut u8,
    length: usize,
    next: *const u8,
) -> u32 {
    if length == 0 {
        return state;
    }
    let four = FOUR.in_all_lanes();
    let mut sums = [_mm512_setzero_si512(); LANES];
    for (lane, sum) in sums.iter_mut().enumerate() {
        // SAFETY: `length` is not zero, so at least LANES vectors.
        *sum = unsafe { take::<COPY>(source, destination, next, lane * VECTOR) };
    }
    sums[0] = add_state(sums[0], state);
    for at in (LANES * VECTOR..length).step_by(LANES * VECTOR) {
        for (lane, sum) in sums.iter_mut().enumerate() {
            // SAFETY: `at` and LANES vectors more are at most `length`, its multiple.
            *sum = fold(*sum, four, unsafe { take::<COPY>(source, destination, next, at + lane * VECTOR) });
        }
    }
    reduce(merge_lanes(sums))
}

/// A state and a few bytes more, a word at a time.
#[inline]
#[target_feature(enable = "sse4.2")]
fn words(state: u32, data: &[u8]) -> u32 {
    let (words, bytes) = data.as_chunks::<8>();
    let state =
        words.iter().fold(u64::from(state), |state, &word| _mm_crc32_u64(state, u64::from_le_bytes(word)));
    bytes.iter().fold(state as u32, |state, &byte| _mm_crc32_u8(state, byte))
}

/// The state belongs to the first 32 bits that follow it.
#[inline]
#[target_feature(enable = "avx512f")]
fn add_state(first: __m512i, state: u32) -> __m512i {
    _mm512_xor_si512(first, _mm512_zextsi128_si512(_mm_cvtsi32_si128(state.cast_signed())))
}

/// Moves a sum ahead and adds what is there.
#[inline]
#[target_feature(enable = "avx512f,vpclmulqdq")]
fn fold(sum: __m512i, ahead: __m512i, there: __m512i) -> __m512i {
    let low = _mm512_clmulepi64_epi128::<0x00>(sum, ahead);
    let high = _mm512_clmulepi64_epi128::<0x11>(sum, ahead);
    _mm512_ternarylogic_epi64::<XOR>(low, high, there)
}

/// The truth table of a ^ b ^ c.
const XOR: i32 = 0x96;

/// Four sums of vectors that lie one after the other, as one in the place of the last.
#[inline]
#[target_feature(enable = "avx512f,vpclmulqdq")]
fn merge_lanes(sums: [__m512i; LANES]) -> __m512i {
    let two = TWO.in_all_lanes();
    let (third, fourth) = (fold(sums[0], two, sums[2]), fold(sums[1], two, sums[3]));
    fold(third, ONE.in_all_lanes(), fourth)
}

/// The state after the 64 bytes that `sum` stands for.
#[inline]
#[target_feature(enable = "avx512f,avx512vl,vpclmulqdq,sse4.2")]
fn reduce(sum: __m512i) -> u32 {
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
fn multiply(a: u64, b: u64) -> u64 {
    let (a, b) = (_mm_cvtsi64_si128(a.cast_signed()), _mm_cvtsi64_si128(b.cast_signed()));
    _mm_cvtsi128_si64(_mm_clmulepi64_si128::<0>(a, b)).cast_unsigned()
}
