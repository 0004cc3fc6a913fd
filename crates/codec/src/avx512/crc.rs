//! CRC-32C by carry-less multiplication of 64 bytes at a time, alone and fused with a copy.
//!
//! A 4 KiB block is divided between the multiplier and the `crc32` instruction, which are different
//! execution units, so that both are busy all the time (as in Peter Cawley's fast-crc32): a third
//! of the block is summed in three chains of `crc32`. A copy uses the multiplier alone, in the
//! order of the bytes: reading from memory at four positions of a page at once loses more than the
//! second unit gains.
//!
//! States are the values of the checksum register, that is, not inverted. Must not know the purpose
//! of the data.
#![allow(unsafe_code)]
#![allow(
    clippy::indexing_slicing,
    clippy::needless_range_loop,
    reason = "indices below const lengths, of several arrays at once: the loops are unrolled without bounds checks"
)]

use std::arch::asm;
use std::arch::x86_64::*;
use std::ops::Range;

use super::fold::{FOUR, LANES, VECTOR, add_state, fold, merge_lanes, multiply, power_of_x, reduce};

/// Bytes of the block size with a specialised kernel.
const BLOCK: usize = 4096;
/// Vectors of the block that the multiplier sums; they come first.
const FOLDED: usize = 43;
/// Words in each of the three chains of `crc32` after them: 43 vectors take 172 cycles on Zen 5, 56
/// words 168.
const CHAIN: usize = 56;
const _: () = assert!(FOLDED * VECTOR + 3 * CHAIN * 8 == BLOCK);

/// The factors that move a 32-bit state forward by one, two and three chains.
const CHAINS: [u64; 3] = [
    power_of_x(64 * CHAIN as u32 - 33) as u64,
    power_of_x(128 * CHAIN as u32 - 33) as u64,
    power_of_x(192 * CHAIN as u32 - 33) as u64,
];

/// Continues the CRC-32C `crc` with `data`.
#[target_feature(enable = "avx512f,avx512vl,vpclmulqdq,pclmulqdq,sse4.2")]
pub(crate) fn crc32c_append(crc: u32, data: &[u8]) -> u32 {
    append(crc, data, false)
}

/// Computes the CRC-32C of each `size` bytes.
#[target_feature(enable = "avx512f,avx512vl,vpclmulqdq,pclmulqdq,sse4.2")]
pub(crate) fn crc32c_blocks(data: &[u8], size: usize, crcs: &mut [u32]) {
    let last = crcs.len().saturating_sub(1);
    for (i, (crc, block)) in crcs.iter_mut().zip(data.chunks_exact(size)).enumerate() {
        *crc = append(0, block, i < last);
    }
}

/// Does the same as [`crc32c_append`]. If `more` is true, the data after `data` will be read next
/// and is prefetched.
#[inline]
#[target_feature(enable = "avx512f,avx512vl,vpclmulqdq,pclmulqdq,sse4.2")]
fn append(crc: u32, data: &[u8], more: bool) -> u32 {
    let (blocks, rest) = data.as_chunks::<BLOCK>();
    let mut state = !crc;
    for (i, data) in blocks.iter().enumerate() {
        let prefetch = more || i + 1 < blocks.len();
        state = if prefetch { block::<true>(state, data) } else { block::<false>(state, data) };
    }
    if rest.is_empty() {
        return !state;
    }
    let (vectors, rest) = rest.split_at(whole_lanes(rest.len()));
    // SAFETY: a slice is valid for reads of its length.
    let state = unsafe {
        lanes::<READ_ONLY>(state, vectors.as_ptr(), std::ptr::null_mut(), vectors.len(), std::ptr::null())
    };
    !words(state, rest)
}

/// Copies `length` bytes and returns the CRC-32C of the copy. Meanwhile it prefetches `length`
/// bytes from `next` on into the L1 cache, which is harmless for any address.
///
/// # Safety
/// `source` is valid for reads and `destination` for writes of `length` bytes, and they do not
/// overlap. The source may change concurrently.
#[target_feature(enable = "avx512f,avx512vl,vpclmulqdq,pclmulqdq,sse4.2")]
pub(crate) unsafe fn copy_crc32c(
    source: *const u8,
    destination: *mut u8,
    length: usize,
    next: *const u8,
) -> u32 {
    let folded = whole_lanes(length);
    // SAFETY: the caller's contract; `folded` is at most `length`.
    unsafe {
        let state = lanes::<COPY>(!0, source, destination, folded, next);
        if folded == length {
            return !state;
        }
        // The rest is copied first, and then only the copy is read.
        source.add(folded).copy_to_nonoverlapping(destination.add(folded), length - folded);
        !words(state, std::slice::from_raw_parts(destination.add(folded), length - folded))
    }
}

/// Returns the part of `length` that [`lanes`] can process.
fn whole_lanes(length: usize) -> usize {
    length - length % (LANES * VECTOR)
}

/// Continues a state with 4096 bytes. With PREFETCH, the 4096 bytes after them are prefetched into
/// the L1 cache, which makes the next block a third faster if it is in memory, and a fifteenth
/// slower if it is not.
#[inline]
#[target_feature(enable = "avx512f,avx512vl,vpclmulqdq,pclmulqdq,sse4.2")]
fn block<const PREFETCH: bool>(state: u32, data: &[u8; BLOCK]) -> u32 {
    /// Steps of four vectors, after the first four vectors.
    const STEPS: usize = FOLDED / LANES - 1;
    /// Words of each chain, and cache lines prefetched, per step.
    const PER_STEP: (usize, usize) = (CHAIN / STEPS, BLOCK / VECTOR / STEPS);
    const LAST: usize = (STEPS + 1) * LANES;
    const _: () = assert!(LAST + 3 == FOLDED);

    let data = Block(data);
    let four = FOUR.in_all_lanes();
    let mut sums = [add_state(data.vector(0), state), data.vector(1), data.vector(2), data.vector(3)];
    let mut chains = [0u64; 3];
    for step in 0..STEPS {
        for lane in 0..LANES {
            sums[lane] = fold(sums[lane], four, data.vector((step + 1) * LANES + lane));
        }
        data.chain(&mut chains, step * PER_STEP.0..(step + 1) * PER_STEP.0);
        if PREFETCH {
            data.prefetch_next(step * PER_STEP.1..(step + 1) * PER_STEP.1);
        }
    }
    data.chain(&mut chains, STEPS * PER_STEP.0..CHAIN);
    if PREFETCH {
        data.prefetch_next(STEPS * PER_STEP.1..BLOCK / VECTOR);
    }
    // Three vectors are left, for the next three lanes: the sum of the fourth lane is now the
    // first.
    let sum = merge_lanes([
        sums[3],
        fold(sums[0], four, data.vector(LAST)),
        fold(sums[1], four, data.vector(LAST + 1)),
        fold(sums[2], four, data.vector(LAST + 2)),
    ]);
    let folded = u64::from(reduce(sum));
    let moved = multiply(folded, CHAINS[2]) ^ multiply(chains[0], CHAINS[1]) ^ multiply(chains[1], CHAINS[0]);
    _mm_crc32_u64(0, moved) as u32 ^ chains[2] as u32
}

/// A block: vectors first, then three chains of words.
#[derive(Clone, Copy)]
struct Block<'a>(&'a [u8; BLOCK]);

impl Block<'_> {
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn vector(self, i: usize) -> __m512i {
        debug_assert!(i < FOLDED);
        // SAFETY: every i in this file is below FOLDED.
        unsafe { _mm512_loadu_si512(self.0.as_ptr().add(i * VECTOR).cast()) }
    }

    /// Sums some words of each chain.
    #[inline]
    #[target_feature(enable = "sse4.2")]
    fn chain(self, chains: &mut [u64; 3], words: Range<usize>) {
        debug_assert!(words.end <= CHAIN);
        for i in words {
            for (chain, sum) in chains.iter_mut().enumerate() {
                let at = FOLDED * VECTOR + (chain * CHAIN + i) * 8;
                // SAFETY: every i in this file is below CHAIN, so the word is within the block.
                let word = unsafe { self.0.as_ptr().add(at).cast::<u64>().read_unaligned() };
                *sum = _mm_crc32_u64(*sum, word);
            }
        }
    }

    /// Prefetches some of the vectors after the block.
    #[inline]
    #[target_feature(enable = "sse")]
    fn prefetch_next(self, vectors: Range<usize>) {
        for i in vectors {
            _mm_prefetch::<_MM_HINT_T0>(self.0.as_ptr().wrapping_add(BLOCK + i * VECTOR).cast());
        }
    }
}

/// Mode: the bytes are only summed.
const READ_ONLY: u8 = 0;
/// Mode: the bytes are also copied.
const COPY: u8 = 1;

/// Loads the 64 bytes at `source + at`. With COPY, also writes them to `destination + at`
/// and prefetches `next + at`.
///
/// # Safety
/// The contract of [`lanes`], for these 64 bytes.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn load_vector<const MODE: u8>(
    source: *const u8,
    destination: *mut u8,
    next: *const u8,
    at: usize,
) -> __m512i {
    if MODE == READ_ONLY {
        // SAFETY: the caller's contract.
        return unsafe { _mm512_loadu_si512(source.add(at).cast()) };
    }
    let vector: __m512i;
    // SAFETY: the caller's contract. The source may change concurrently, so it must be read exactly
    // once, which only a volatile access guarantees: this load is one, and its result is both
    // stored and summed.
    unsafe {
        asm!(
            "vmovdqu64 {vector}, zmmword ptr [{source} + {at}]",
            vector = out(zmm_reg) vector,
            source = in(reg) source,
            at = in(reg) at,
            options(nostack, preserves_flags, readonly)
        );
        let next = next.wrapping_add(at).cast();
        _mm512_storeu_si512(destination.add(at).cast(), vector);
        _mm_prefetch::<_MM_HINT_T0>(next);
    }
    vector
}

/// Continues a state with `length` bytes, a multiple of 256.
///
/// # Safety
/// `source` is valid for reads of `length` bytes; with COPY, `destination` is valid for writes.
#[inline]
#[target_feature(enable = "avx512f,avx512vl,vpclmulqdq,pclmulqdq,sse4.2")]
unsafe fn lanes<const MODE: u8>(
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
        *sum = unsafe { load_vector::<MODE>(source, destination, next, lane * VECTOR) };
    }
    sums[0] = add_state(sums[0], state);
    for at in (LANES * VECTOR..length).step_by(LANES * VECTOR) {
        for (lane, sum) in sums.iter_mut().enumerate() {
            // SAFETY: `at` and LANES vectors more are at folded `length`, its multiple.
            *sum = fold(*sum, four, unsafe {
                load_vector::<MODE>(source, destination, next, at + lane * VECTOR)
            });
        }
    }
    reduce(merge_lanes(sums))
}

/// Continues a state with a few bytes, a word at a time.
#[inline]
#[target_feature(enable = "sse4.2")]
fn words(state: u32, data: &[u8]) -> u32 {
    let (words, bytes) = data.as_chunks::<8>();
    let state =
        words.iter().fold(u64::from(state), |state, &word| _mm_crc32_u64(state, u64::from_le_bytes(word)));
    bytes.iter().fold(state as u32, |state, &byte| _mm_crc32_u8(state, byte))
}
