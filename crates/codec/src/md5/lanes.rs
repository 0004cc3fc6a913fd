//! The rounds of MD5 over `L` streams: the same step of each, side by side.
//!
//! The loops over lanes have a constant length, and become vector instructions where the caller's
//! instruction set has them. Inputs of all lanes have the same length, whole blocks.
#![allow(unsafe_code)]
#![allow(clippy::indexing_slicing, reason = "all indices are constants or lane numbers below L")]

/// Bytes of a block.
pub(super) const BLOCK: usize = 64;

/// The state of one stream: A, B, C, D of RFC 1321.
pub(super) type Words = [u32; 4];

pub(super) const INITIAL: Words = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476];

/// Rotations by round and step.
const ROTATIONS: [[u32; 4]; 4] = [[7, 12, 17, 22], [5, 9, 14, 20], [4, 11, 16, 23], [6, 10, 15, 21]];

/// The table T of RFC 1321: the integer parts of 2^32 times the absolute sines of 1 to 64.
#[rustfmt::skip]
pub(super) const SINES: [u32; 64] = [
    0xd76a_a478, 0xe8c7_b756, 0x2420_70db, 0xc1bd_ceee, 0xf57c_0faf, 0x4787_c62a, 0xa830_4613, 0xfd46_9501,
    0x6980_98d8, 0x8b44_f7af, 0xffff_5bb1, 0x895c_d7be, 0x6b90_1122, 0xfd98_7193, 0xa679_438e, 0x49b4_0821,
    0xf61e_2562, 0xc040_b340, 0x265e_5a51, 0xe9b6_c7aa, 0xd62f_105d, 0x0244_1453, 0xd8a1_e681, 0xe7d3_fbc8,
    0x21e1_cde6, 0xc337_07d6, 0xf4d5_0d87, 0x455a_14ed, 0xa9e3_e905, 0xfcef_a3f8, 0x676f_02d9, 0x8d2a_4c8a,
    0xfffa_3942, 0x8771_f681, 0x6d9d_6122, 0xfde5_380c, 0xa4be_ea44, 0x4bde_cfa9, 0xf6bb_4b60, 0xbebf_bc70,
    0x289b_7ec6, 0xeaa1_27fa, 0xd4ef_3085, 0x0488_1d05, 0xd9d4_d039, 0xe6db_99e5, 0x1fa2_7cf8, 0xc4ac_5665,
    0xf429_2244, 0x432a_ff97, 0xab94_23a7, 0xfc93_a039, 0x655b_59c3, 0x8f0c_cc92, 0xffef_f47d, 0x8584_5dd1,
    0x6fa8_7e4f, 0xfe2c_e6e0, 0xa301_4314, 0x4e08_11a1, 0xf753_7e82, 0xbd3a_f235, 0x2ad7_d2bb, 0xeb86_d391,
];

/// One step of each lane: `a = b + rotate(a + mix(b, c, d) + word + sine)`.
macro_rules! step {
    ($mix:expr, $a:ident, $b:ident, $c:ident, $d:ident, $word:expr, $number:expr) => {
        for lane in 0..L {
            let mixed: u32 = $mix($b[lane], $c[lane], $d[lane]);
            let sum = $a[lane].wrapping_add(mixed).wrapping_add($word[lane]).wrapping_add(SINES[$number]);
            $a[lane] = sum.rotate_left(ROTATIONS[$number / 16][$number % 4]).wrapping_add($b[lane]);
        }
    };
}

/// Four steps, from step `$number` on.
macro_rules! steps {
    ($number:expr, $mix:expr, $index:expr, $a:ident, $b:ident, $c:ident, $d:ident, $words:ident) => {
        step!($mix, $a, $b, $c, $d, $words[$index($number) % 16], $number);
        step!($mix, $d, $a, $b, $c, $words[$index($number + 1) % 16], $number + 1);
        step!($mix, $c, $d, $a, $b, $words[$index($number + 2) % 16], $number + 2);
        step!($mix, $b, $c, $d, $a, $words[$index($number + 3) % 16], $number + 3);
    };
}

/// The sixteen steps of a round.
macro_rules! round {
    ($number:expr, $mix:expr, $index:expr, $a:ident, $b:ident, $c:ident, $d:ident, $words:ident) => {
        steps!(16 * $number, $mix, $index, $a, $b, $c, $d, $words);
        steps!(16 * $number + 4, $mix, $index, $a, $b, $c, $d, $words);
        steps!(16 * $number + 8, $mix, $index, $a, $b, $c, $d, $words);
        steps!(16 * $number + 12, $mix, $index, $a, $b, $c, $d, $words);
    };
}

/// Hashes one block of each lane.
#[inline(always)]
fn compress<const L: usize>(state: &mut [[u32; L]; 4], words: &[[u32; L]; 16]) {
    let [mut a, mut b, mut c, mut d] = *state;
    round!(0, |x: u32, y: u32, z: u32| z ^ (x & (y ^ z)), |i: usize| i, a, b, c, d, words);
    round!(1, |x: u32, y: u32, z: u32| (x & z) | (y & !z), |i: usize| 5 * i + 1, a, b, c, d, words);
    round!(2, |x: u32, y: u32, z: u32| x ^ y ^ z, |i: usize| 3 * i + 5, a, b, c, d, words);
    round!(3, |x: u32, y: u32, z: u32| y ^ (x | !z), |i: usize| 7 * i, a, b, c, d, words);
    for lane in 0..L {
        state[0][lane] = state[0][lane].wrapping_add(a[lane]);
        state[1][lane] = state[1][lane].wrapping_add(b[lane]);
        state[2][lane] = state[2][lane].wrapping_add(c[lane]);
        state[3][lane] = state[3][lane].wrapping_add(d[lane]);
    }
}

/// Hashes the blocks of each lane.
#[inline(always)]
pub(super) fn hash<const L: usize>(streams: &mut [Words; L], inputs: [&[u8]; L]) {
    let mut state = [[0; L]; 4];
    for lane in 0..L {
        for (word, value) in state.iter_mut().zip(streams[lane]) {
            word[lane] = value;
        }
    }
    const { assert!(L > 0, "a kernel has a lane") };
    let blocks = inputs.iter().map(|input| input.len() / BLOCK).fold(usize::MAX, usize::min);
    let mut chunks = inputs.map(|input| input.chunks_exact(BLOCK));
    for _ in 0..blocks {
        let mut words = [[0; L]; 16];
        for lane in 0..L {
            let block = chunks[lane].next().unwrap_or(&[0; BLOCK]);
            for (word, bytes) in words.iter_mut().zip(block.as_chunks::<4>().0) {
                word[lane] = u32::from_le_bytes(*bytes);
            }
        }
        compress(&mut state, &words);
    }
    for lane in 0..L {
        streams[lane] = [state[0][lane], state[1][lane], state[2][lane], state[3][lane]];
    }
}

#[cfg(target_arch = "x86_64")]
pub(super) fn has_avx512() -> bool {
    is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512vl")
}

#[cfg(target_arch = "x86_64")]
pub(super) fn has_avx2() -> bool {
    is_x86_feature_detected!("avx2")
}

/// Hashes the blocks of 16 lanes.
///
/// # Safety
/// The processor has the instructions that [`has_avx512`] looks for.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
#[inline(never)]
pub(super) unsafe fn hash_avx512(streams: &mut [Words; 16], inputs: [&[u8]; 16]) {
    hash(streams, inputs);
}

/// Hashes the blocks of 16 lanes, two vectors of each word: with one, a step waits for the step
/// before, and the compiler makes scalar instructions of the loops.
///
/// # Safety
/// The processor has the instructions that [`has_avx2`] looks for.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
#[inline(never)]
pub(super) unsafe fn hash_avx2(streams: &mut [Words; 16], inputs: [&[u8]; 16]) {
    hash(streams, inputs);
}
