//! Sparse memory: the allocated bytes, in chunks.
//!
//! Always true: a chunk exists only while one of its blocks holds data. A block without data is all
//! zeros, even if its chunk exists. Knows nothing of sizes and sectors.

use std::collections::BTreeMap;
use std::ops::Range;

use reactor::Span;

use crate::Extent;

/// Allocation unit in bytes.
const CHUNK: u64 = 1 << 20;
/// Granularity of data and holes, in bytes.
const BLOCK: u64 = 4096;
const BLOCKS: usize = (CHUNK / BLOCK) as usize;

/// Bytes from 0 up to any offset, zero unless written.
#[derive(Default)]
pub(super) struct Chunks {
    chunks: BTreeMap<u64, Chunk>,
}

struct Chunk {
    bytes: Vec<u8>,
    /// True for each block with data.
    data: [bool; BLOCKS],
}

/// A part of a request within one chunk.
struct ChunkRange {
    chunk: u64,
    /// Bytes of the chunk.
    within: Range<usize>,
    /// Offset of the part in the request.
    at: u64,
}

fn to_usize(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

/// Splits a range at chunk boundaries.
fn parts(offset: u64, length: u64) -> impl Iterator<Item = ChunkRange> {
    let end = offset + length;
    let mut next = offset;
    std::iter::from_fn(move || {
        if next >= end {
            return None;
        }
        let (chunk, start) = (next / CHUNK, next % CHUNK);
        let length = (CHUNK - start).min(end - next);
        let part = ChunkRange { chunk, within: to_usize(start)..to_usize(start + length), at: next - offset };
        next += length;
        Some(part)
    })
}

impl Chunks {
    pub(super) fn read(&self, offset: u64, into: &Span) {
        for part in parts(offset, into.len() as u64) {
            let at = to_usize(part.at);
            match self.chunks.get(&part.chunk).and_then(|chunk| chunk.bytes.get(part.within.clone())) {
                Some(bytes) => into.copy_from(at, bytes),
                None => into.slice(at..at + part.within.len()).zero(),
            }
        }
    }

    pub(super) fn write(&mut self, offset: u64, data: &Span) {
        for part in parts(offset, data.len() as u64) {
            let chunk = self.chunks.entry(part.chunk).or_insert_with(Chunk::new);
            if let Some(bytes) = chunk.bytes.get_mut(part.within.clone()) {
                data.copy_to(to_usize(part.at), bytes);
            }
            chunk.mark(blocks_touched(&part.within), true);
        }
    }

    /// Zeroes a range, and frees the blocks that are completely in it.
    pub(super) fn zero(&mut self, offset: u64, length: u64) {
        let end = offset + length;
        let held: Vec<u64> =
            self.chunks.range(offset / CHUNK..=end / CHUNK).map(|(index, _)| *index).collect();
        for index in held {
            let (from, to) = (offset.max(index * CHUNK), end.min((index + 1) * CHUNK));
            let Some(chunk) = self.chunks.get_mut(&index) else { continue };
            for part in parts(from, to.saturating_sub(from)) {
                chunk.zero(part.within);
            }
            if !chunk.data.contains(&true) {
                self.chunks.remove(&index);
            }
        }
    }

    pub(super) fn extents(&self, offset: u64, length: u64) -> Vec<Extent> {
        let end = offset + length;
        let mut extents = Vec::new();
        let mut next = offset;
        for (index, chunk) in self.chunks.range(offset / CHUNK..=end / CHUNK) {
            let (from, to) = (offset.max(index * CHUNK), end.min((index + 1) * CHUNK));
            append(&mut extents, from - next, false);
            next = from;
            while next < to {
                let block = next / BLOCK;
                let step = to.min((block + 1) * BLOCK) - next;
                let data = chunk.data.get(to_usize(block) % BLOCKS).is_some_and(|data| *data);
                append(&mut extents, step, data);
                next += step;
            }
        }
        append(&mut extents, end - next, false);
        extents
    }
}

impl Chunk {
    fn new() -> Self {
        Self { bytes: vec![0; to_usize(CHUNK)], data: [false; BLOCKS] }
    }

    fn mark(&mut self, blocks: Range<usize>, data: bool) {
        if let Some(blocks) = self.data.get_mut(blocks) {
            blocks.fill(data);
        }
    }

    fn zero(&mut self, within: Range<usize>) {
        if let Some(bytes) = self.bytes.get_mut(within.clone()) {
            bytes.fill(0);
        }
        self.mark(blocks_inside(&within), false);
    }
}

/// Returns the blocks that overlap a range of a chunk.
fn blocks_touched(within: &Range<usize>) -> Range<usize> {
    let block = to_usize(BLOCK);
    within.start / block..within.end.div_ceil(block)
}

/// Returns the blocks that are completely within a range of a chunk.
fn blocks_inside(within: &Range<usize>) -> Range<usize> {
    let block = to_usize(BLOCK);
    let first = within.start.div_ceil(block);
    first..(within.end / block).max(first)
}

fn append(extents: &mut Vec<Extent>, length: u64, data: bool) {
    match extents.last_mut() {
        _ if length == 0 => {}
        Some(last) if last.data == data => last.length += length,
        _ => extents.push(Extent { length, data }),
    }
}
