//! MD5 of many streams at the same time.
//!
//! The steps of one MD5 (RFC 1321) depend on each other, so a processor computes several streams at
//! hardly more cost than one. Always true: the digests are those of each stream alone. MD5 protects
//! nothing; protocols that require it as a checksum are its only use.
#![allow(unsafe_code)]

mod lanes;

use lanes::{BLOCK, Words};

/// The streams that one call of the widest kernel computes.
pub const MD5_LANES: usize = 16;
/// Streams from which on a kernel of several lanes is faster than one stream after the other.
const WIDE_MIN: usize = 3;

/// The state of one MD5.
#[derive(Clone, Debug)]
pub struct Md5Stream {
    words: Words,
    length: u64,
    /// The last bytes, less than a block.
    rest: [u8; BLOCK],
}

impl Default for Md5Stream {
    fn default() -> Self {
        Self::new()
    }
}

impl Md5Stream {
    /// Returns the state before the first byte.
    #[must_use]
    pub fn new() -> Self {
        Self { words: lanes::INITIAL, length: 0, rest: [0; BLOCK] }
    }

    fn rest_len(&self) -> usize {
        // Less than a block.
        (self.length % BLOCK as u64) as usize
    }

    /// Appends bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        let whole = self.take_unaligned(bytes);
        hash_one(&mut self.words, whole);
    }

    /// Takes the bytes that complete a block, and those after the last block. Returns the blocks
    /// between them, which are to be hashed.
    fn take_unaligned<'b>(&mut self, bytes: &'b [u8]) -> &'b [u8] {
        let held = self.rest_len();
        self.length += bytes.len() as u64;
        let mut bytes = bytes;
        if held > 0 {
            let (now, later) = bytes.split_at(bytes.len().min(BLOCK - held));
            if let Some(into) = self.rest.get_mut(held..held + now.len()) {
                into.copy_from_slice(now);
            }
            bytes = later;
            if held + now.len() < BLOCK {
                return &[];
            }
            let block = self.rest;
            hash_one(&mut self.words, &block);
        }
        let (whole, rest) = bytes.split_at(bytes.len() / BLOCK * BLOCK);
        if let Some(into) = self.rest.get_mut(..rest.len()) {
            into.copy_from_slice(rest);
        }
        whole
    }

    /// Returns the digest.
    #[must_use]
    pub fn finish(mut self) -> [u8; 16] {
        let (bits, held) = (self.length.wrapping_mul(8), self.rest_len());
        let mut padding = [0; 2 * BLOCK];
        let length = if held < BLOCK - 8 { BLOCK - held } else { 2 * BLOCK - held };
        if let Some(first) = padding.first_mut() {
            *first = 0x80;
        }
        if let Some(into) = padding.get_mut(length - 8..length) {
            into.copy_from_slice(&bits.to_le_bytes());
        }
        self.update(padding.split_at(length).0);
        let mut digest = [0; 16];
        for (into, word) in digest.chunks_exact_mut(4).zip(self.words) {
            into.copy_from_slice(&word.to_le_bytes());
        }
        digest
    }
}

/// Appends bytes to several streams, which may have different lengths. Streams of similar length
/// cost the least.
pub fn md5_update_many(streams: &mut [(&mut Md5Stream, &[u8])]) {
    let mut left: Vec<(&mut Words, &[u8])> = Vec::with_capacity(streams.len());
    for (stream, bytes) in streams.iter_mut() {
        let whole = stream.take_unaligned(bytes);
        if !whole.is_empty() {
            left.push((&mut stream.words, whole));
        }
    }
    let kernel = Kernel::best();
    while left.len() >= kernel.streams_min() {
        // The longest ones, so that as many as possible end together.
        left.sort_by_key(|(_, bytes)| std::cmp::Reverse(bytes.len()));
        let group = left.len().min(kernel.lanes());
        let Some(group) = left.get_mut(..group) else { break };
        let count = group.iter().map(|(_, bytes)| bytes.len()).fold(usize::MAX, usize::min);
        kernel.hash(group, count);
        left.retain(|(_, bytes)| !bytes.is_empty());
    }
    for (words, bytes) in left {
        hash_one(words, bytes);
    }
}

fn hash_one(words: &mut Words, blocks: &[u8]) {
    let mut states = [*words];
    lanes::hash(&mut states, [blocks]);
    let [state] = states;
    *words = state;
}

/// The instructions of a kernel for several streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kernel {
    /// One stream after the other.
    Single,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

impl Kernel {
    fn best() -> Self {
        #[cfg(target_arch = "x86_64")]
        {
            if lanes::has_avx512() {
                return Self::Avx512;
            }
            if lanes::has_avx2() {
                return Self::Avx2;
            }
        }
        Self::Single
    }

    fn lanes(self) -> usize {
        match self {
            Self::Single => 1,
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 | Self::Avx512 => MD5_LANES,
        }
    }

    /// The number of streams from which on the kernel is used.
    fn streams_min(self) -> usize {
        match self {
            Self::Single => usize::MAX,
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 | Self::Avx512 => WIDE_MIN,
        }
    }

    /// Hashes the next `count` bytes, whole blocks, of each stream of a group.
    fn hash(self, group: &mut [(&mut Words, &[u8])], count: usize) {
        match self {
            Self::Single => {}
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => {
                hash_group::<MD5_LANES>(group, count, |states, inputs| {
                    // SAFETY: `best` returns this kernel only if the processor has its
                    // instructions.
                    unsafe { lanes::hash_avx2(states, inputs) }
                });
            }
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => {
                hash_group::<MD5_LANES>(group, count, |states, inputs| {
                    // SAFETY: as above.
                    unsafe { lanes::hash_avx512(states, inputs) }
                });
            }
        }
    }
}

/// Hashes a group with a kernel of `L` lanes. Unused lanes repeat the first stream.
#[cfg(target_arch = "x86_64")]
fn hash_group<const L: usize>(
    group: &mut [(&mut Words, &[u8])],
    count: usize,
    kernel: impl FnOnce(&mut [Words; L], [&[u8]; L]),
) {
    let mut states = [lanes::INITIAL; L];
    assert!(!group.is_empty() && group.len() <= L, "a group of {} streams has {L} lanes", group.len());
    let mut inputs: [&[u8]; L] = match group.first() {
        Some((_, first)) => [first.split_at(count).0; L],
        None => panic!("a group has a stream"),
    };
    for ((state, input), (words, bytes)) in states.iter_mut().zip(&mut inputs).zip(group.iter()) {
        *state = **words;
        *input = bytes.split_at(count).0;
    }
    kernel(&mut states, inputs);
    for (state, (words, bytes)) in states.into_iter().zip(group.iter_mut()) {
        **words = state;
        *bytes = bytes.split_at(count).1;
    }
}

#[cfg(test)]
mod tests;
