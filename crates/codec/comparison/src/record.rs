//! The write path: copying the blocks of a record, their checksums and the parities, fused against
//! separate.
//!
//! Owns this comparison. Records have the shape of the engine's: K data and M parity columns of R
//! blocks, with sources in guest pages.

use std::hint::black_box;
use std::ops::Range;

use codec::{Code, Source, copy_crc32c_from, crc32c};

use crate::measure::{Candidate, Sampling, Variant, compare};
use crate::memory::{MEMORY, Stripes};
use crate::report::Comparison;

const BLOCK: usize = 4096;

/// Compares records of K+M with R rows, with sources and records in the L2 cache, the L3 cache and
/// memory.
pub fn compare_record<const K: usize, const M: usize, const R: usize>(sampling: Sampling) -> Vec<Comparison> {
    let residences = [("L2", 256 << 10), ("L3", 6 << 20), ("memory", MEMORY)];
    let mut cases = Vec::new();
    for (from, source) in residences {
        for (to, record) in [("L2", 256 << 10), ("memory", MEMORY)] {
            let sources = Stripes::new((source / (K * R * BLOCK)).max(1), K * R, BLOCK);
            let records = Stripes::new((record / ((K + M) * R * BLOCK)).max(1), K + M, R * BLOCK);
            cases.push(case::<K, M, R>(sampling, format!("{from}>{to}"), &sources, &records));
        }
    }
    cases
}

/// The buffers of one iteration: a source for each block, and the columns.
struct RecordBuffers<'a, const K: usize, const M: usize> {
    sources: &'a [*mut u8],
    data: [&'a mut [u8]; K],
    parity: [&'a mut [u8]; M],
}

/// Returns the range of a row's blocks within their columns.
fn cells(row: usize) -> Range<usize> {
    row * BLOCK..(row + 1) * BLOCK
}

impl<'a, const K: usize, const M: usize> RecordBuffers<'a, K, M> {
    fn new(sources: &'a Stripes, records: &'a Stripes, iteration: usize) -> Self {
        let (data, parity) = records.columns(iteration).split_at(K);
        Self {
            sources: sources.columns(iteration),
            // SAFETY: the columns do not overlap, and one iteration ends before the next begins.
            data: std::array::from_fn(|c| unsafe { records.slice_mut(data[c]) }),
            // SAFETY: as above.
            parity: std::array::from_fn(|c| unsafe { records.slice_mut(parity[c]) }),
        }
    }

    fn rows(&self) -> usize {
        self.sources.len() / K
    }

    fn in_one_call(mut self, code: &Code) -> Vec<u32> {
        let sources: Vec<Source> = self.sources.iter().map(|&source| Source::Copy(source)).collect();
        let mut crcs = vec![0; sources.len()];
        // SAFETY: sources are blocks outside the record.
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
            // SAFETY: sources are blocks outside the record.
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
                // SAFETY: sources are blocks outside the record.
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
                // SAFETY: sources are blocks outside the record.
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
            // SAFETY: sources are blocks outside the record.
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
    sampling: Sampling,
    residence: String,
    sources: &Stripes,
    records: &Stripes,
) -> Comparison {
    let code = &Code::new(K as u8, M as u8).expect("a scheme that exists");
    let record = |iteration| RecordBuffers::<K, M>::new(sources, records, iteration);
    let variants: [Variant<'_, usize, Vec<u32>>; 5] = [
        ("encode_record_copy", &|iteration| record(iteration).in_one_call(code)),
        ("encode_row_copy", &|iteration| record(iteration).by_row(code)),
        ("copy_crc32c, encode", &|iteration| record(iteration).by_cell(code)),
        ("separate, row by row", &|iteration| record(iteration).in_steps_by_row(code)),
        ("separate, all rows", &|iteration| record(iteration).in_steps(code)),
    ];
    // Returns the checksums of a variant, and those of all columns afterwards.
    let run = |variant: &dyn Fn(usize) -> Vec<u32>| {
        // SAFETY: no other code runs.
        records.columns(0).iter().for_each(|&column| unsafe { records.slice_mut(column) }.fill(0xAA));
        let crcs = variant(0);
        // SAFETY: no other code runs.
        let columns = records.columns(0).iter().map(|&column| crc32c(unsafe { records.slice(column) }));
        (crcs, columns.collect::<Vec<u32>>())
    };
    let expected = run(variants[4].1);
    let correct = variants.iter().filter(|(_, variant)| run(variant) == expected).count();
    let mut candidates = variants.map(|(name, variant)| {
        Candidate::new(name, move |iteration| {
            black_box(variant(iteration));
        })
    });
    Comparison {
        work: format!("record {K}+{M} x{R}"),
        column: R * BLOCK,
        residence,
        bytes: K * R * BLOCK,
        correct: (correct, variants.len()),
        measurements: compare(sampling, &mut candidates),
    }
}
