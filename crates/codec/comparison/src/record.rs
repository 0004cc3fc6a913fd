//! The write path: copying a record's blocks, their checksums and the parities, fused against separate.
//!
//! Owns this comparison. Records are as the engine's: K data and M parity columns of R blocks, sources in guests'
//! pages.

use std::hint::black_box;
use std::ops::Range;

use codec::{Code, Source, copy_crc32c_from, crc32c};

use crate::measure::{Contestant, Effort, Way, compare};
use crate::memory::{MEMORY, Stripes};
use crate::report::Case;

const BLOCK: usize = 4096;

/// Records of K+M with R rows, with sources and records that lie in the second cache, the last one, and memory.
pub fn compare_record<const K: usize, const M: usize, const R: usize>(effort: Effort) -> Vec<Case> {
    let places = [("L2", 256 << 10), ("L3", 6 << 20), ("memory", MEMORY)];
    let mut cases = Vec::new();
    for (from, source) in places {
        for (to, record) in [("L2", 256 << 10), ("memory", MEMORY)] {
            let sources = Stripes::new((source / (K * R * BLOCK)).max(1), K * R, BLOCK);
            let records = Stripes::new((record / ((K + M) * R * BLOCK)).max(1), K + M, R * BLOCK);
            cases.push(case::<K, M, R>(effort, format!("{from}>{to}"), &sources, &records));
        }
    }
    cases
}

/// One turn's record: a source for each block, and the columns.
struct Turn<'a, const K: usize, const M: usize> {
    sources: &'a [*mut u8],
    data: [&'a mut [u8]; K],
    parity: [&'a mut [u8]; M],
}

/// Where a row's blocks are in their columns.
fn cells(row: usize) -> Range<usize> {
    row * BLOCK..(row + 1) * BLOCK
}

impl<'a, const K: usize, const M: usize> Turn<'a, K, M> {
    fn new(sources: &'a Stripes, records: &'a Stripes, turn: usize) -> Self {
        let (data, parity) = records.columns(turn).split_at(K);
        Self {
            sources: sources.columns(turn),
            // SAFETY: the columns are apart, and one turn is over before the next begins.
            data: std::array::from_fn(|c| unsafe { records.slice_mut(data[c]) }),
            // SAFETY: as above.
            parity: std::array::from_fn(|c| unsafe { records.slice_mut(parity[c]) }),
        }
    }

    fn rows(&self) -> usize {
        self.sources.len() / K
    }

    fn at_once(mut self, code: &Code) -> Vec<u32> {
        let sources: Vec<Source> = self.sources.iter().map(|&source| Source::Copy(source)).collect();
        let mut crcs = vec![0; sources.len()];
        // SAFETY: sources are blocks, apart from the record.
        unsafe { code.encode_record_copy(BLOCK, 0, &sources, &mut self.data, &mut crcs, &mut self.parity) };
        crcs
    }

    fn by_row(mut self, code: &Code) -> Vec<u32> {
        let rows = self.rows();
        let mut crcs = vec![0; K * rows];
        for row in 0..rows {
            let from: [Source; K] = std::array::from_fn(|c| Source::Copy(self.sources[c * rows + row]));
            let mut data = self.data.each_mut().map(|column| &mut column[cells(row)]);
            let mut parity = self.parity.each_mut().map(|column| &mut column[cells(row)]);
            let mut sums = [0; K];
            // SAFETY: sources are blocks, apart from the record.
            unsafe { code.encode_row_copy(&from, &mut data, &mut sums, &mut parity) };
            for (c, sum) in sums.into_iter().enumerate() {
                crcs[c * rows + row] = sum;
            }
        }
        crcs
    }

    fn by_cell(mut self, code: &Code) -> Vec<u32> {
        let rows = self.rows();
        let mut crcs = vec![0; K * rows];
        for row in 0..rows {
            for c in 0..K {
                // SAFETY: sources are blocks, apart from the record.
                crcs[c * rows + row] =
                    unsafe { copy_crc32c_from(self.sources[c * rows + row], &mut self.data[c][cells(row)]) };
            }
            self.encode_row(code, row);
        }
        crcs
    }

    fn in_steps_by_row(mut self, code: &Code) -> Vec<u32> {
        let rows = self.rows();
        let mut crcs = vec![0; K * rows];
        for row in 0..rows {
            for c in 0..K {
                let cell = self.data[c][cells(row)].as_mut_ptr();
                // SAFETY: sources are blocks, apart from the record.
                unsafe { self.sources[c * rows + row].copy_to_nonoverlapping(cell, BLOCK) };
            }
            for c in 0..K {
                crcs[c * rows + row] = crc32c(&self.data[c][cells(row)]);
            }
            self.encode_row(code, row);
        }
        crcs
    }

    fn in_steps(mut self, code: &Code) -> Vec<u32> {
        let blocks = self.data.iter_mut().flat_map(|column| column.chunks_exact_mut(BLOCK));
        for (block, source) in blocks.zip(self.sources) {
            // SAFETY: sources are blocks, apart from the record.
            unsafe { source.copy_to_nonoverlapping(block.as_mut_ptr(), BLOCK) };
        }
        let crcs = self.data.iter().flat_map(|column| column.chunks_exact(BLOCK)).map(crc32c).collect();
        code.encode(&self.data.each_ref().map(|column| &**column), &mut self.parity);
        crcs
    }

    fn encode_row(&mut self, code: &Code, row: usize) {
        let data = self.data.each_ref().map(|column| &column[cells(row)]);
        let mut parity = self.parity.each_mut().map(|column| &mut column[cells(row)]);
        code.encode(&data, &mut parity);
    }
}

fn case<const K: usize, const M: usize, const R: usize>(
    effort: Effort,
    resident: String,
    sources: &Stripes,
    records: &Stripes,
) -> Case {
    let code = &Code::new(K as u8, M as u8).expect("a scheme that exists");
    let record = |turn| Turn::<K, M>::new(sources, records, turn);
    let ways: [Way<'_, usize, Vec<u32>>; 5] = [
        ("encode_record_copy", &|turn| record(turn).at_once(code)),
        ("encode_row_copy", &|turn| record(turn).by_row(code)),
        ("copy_crc32c, encode", &|turn| record(turn).by_cell(code)),
        ("separate, row by row", &|turn| record(turn).in_steps_by_row(code)),
        ("separate, all rows", &|turn| record(turn).in_steps(code)),
    ];
    // The sums, and those of all columns afterwards.
    let done = |way: &dyn Fn(usize) -> Vec<u32>| {
        // SAFETY: nothing else runs.
        records.columns(0).iter().for_each(|&column| unsafe { records.slice_mut(column) }.fill(0xAA));
        let crcs = way(0);
        // SAFETY: nothing else runs.
        let columns = records.columns(0).iter().map(|&column| crc32c(unsafe { records.slice(column) }));
        (crcs, columns.collect::<Vec<u32>>())
    };
    let expected = done(ways[4].1);
    let right = ways.iter().filter(|(_, way)| done(way) == expected).count();
    let mut contestants = ways.map(|(name, way)| {
        Contestant::new(name, move |turn| {
            black_box(way(turn));
        })
    });
    Case {
        work: format!("record {K}+{M} x{R}"),
        column: R * BLOCK,
        resident,
        bytes: K * R * BLOCK,
        right: (right, ways.len()),
        outcomes: compare(effort, &mut contestants),
    }
}
