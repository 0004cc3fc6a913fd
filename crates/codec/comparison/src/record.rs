//! The write path: copying a record's blocks, their checksums and the parities, fused against separate.
//!
//! Owns this comparison. Records are as the engine's: K data and M parity columns of R blocks, sources in guests' pages.

use std::hint::black_box;

use codec::{Code, Source, copy_crc32c_from, crc32c};

use crate::measure::{Contestant, Effort, compare};
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

    fn encode_row(&mut self, code: &Code, row: usize) {
        let cell = row * BLOCK..(row + 1) * BLOCK;
        let data = self.data.each_ref().map(|column| &column[cell.clone()]);
        let mut parity = self.parity.each_mut().map(|column| &mut column[cell.clone()]);
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
    let record = |turn| {
        let Turn { sources, mut data, mut parity } = Turn::<K, M>::new(sources, records, turn);
        let sources: Vec<Source> = sources.iter().map(|&source| Source::Copy(source)).collect();
        let mut crcs = vec![0; K * R];
        // SAFETY: sources are blocks, apart from the record.
        unsafe { code.encode_record_copy(BLOCK, 0, &sources, &mut data, &mut crcs, &mut parity) };
        crcs
    };
    let rows = |turn| {
        let Turn { sources, mut data, mut parity } = Turn::<K, M>::new(sources, records, turn);
        let mut crcs = vec![0; K * R];
        for row in 0..R {
            let cell = row * BLOCK..(row + 1) * BLOCK;
            let from: [Source; K] = std::array::from_fn(|c| Source::Copy(sources[c * R + row]));
            let mut data = data.each_mut().map(|column| &mut column[cell.clone()]);
            let mut parity = parity.each_mut().map(|column| &mut column[cell.clone()]);
            let mut sums = [0; K];
            // SAFETY: sources are blocks, apart from the record.
            unsafe { code.encode_row_copy(&from, &mut data, &mut sums, &mut parity) };
            for (c, sum) in sums.into_iter().enumerate() {
                crcs[c * R + row] = sum;
            }
        }
        crcs
    };
    let cells = |turn| {
        let mut record = Turn::<K, M>::new(sources, records, turn);
        let mut crcs = vec![0; K * R];
        for row in 0..R {
            for c in 0..K {
                let cell = &mut record.data[c][row * BLOCK..(row + 1) * BLOCK];
                // SAFETY: sources are blocks, apart from the record.
                crcs[c * R + row] = unsafe { copy_crc32c_from(record.sources[c * R + row], cell) };
            }
            record.encode_row(code, row);
        }
        crcs
    };
    let steps = |turn| {
        let mut record = Turn::<K, M>::new(sources, records, turn);
        let mut crcs = vec![0; K * R];
        for row in 0..R {
            for c in 0..K {
                let cell = &mut record.data[c][row * BLOCK..(row + 1) * BLOCK];
                // SAFETY: sources are blocks, apart from the record.
                unsafe { record.sources[c * R + row].copy_to_nonoverlapping(cell.as_mut_ptr(), BLOCK) };
            }
            for c in 0..K {
                crcs[c * R + row] = crc32c(&record.data[c][row * BLOCK..(row + 1) * BLOCK]);
            }
            record.encode_row(code, row);
        }
        crcs
    };
    let passes = |turn| {
        let Turn { sources, mut data, mut parity } = Turn::<K, M>::new(sources, records, turn);
        for (block, source) in data.iter_mut().flat_map(|column| column.chunks_exact_mut(BLOCK)).zip(sources)
        {
            // SAFETY: sources are blocks, apart from the record.
            unsafe { source.copy_to_nonoverlapping(block.as_mut_ptr(), BLOCK) };
        }
        let crcs = data.iter().flat_map(|column| column.chunks_exact(BLOCK)).map(crc32c).collect();
        code.encode(&data.each_ref().map(|column| &**column), &mut parity);
        crcs
    };
    let done = |run: &dyn Fn(usize) -> Vec<u32>| {
        records.columns(0).iter().for_each(|&column| unsafe { records.slice_mut(column) }.fill(0xAA));
        let crcs = run(0);
        let columns: Vec<u32> =
            records.columns(0).iter().map(|&c| crc32c(unsafe { records.slice(c) })).collect();
        (crcs, columns)
    };
    let expected = done(&passes);
    let ways: [(&'static str, &dyn Fn(usize) -> Vec<u32>); 5] = [
        ("encode_record_copy", &record),
        ("encode_row_copy", &rows),
        ("copy_crc32c, encode", &cells),
        ("separate, row by row", &steps),
        ("separate, all rows", &passes),
    ];
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
