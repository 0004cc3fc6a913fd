//! The fused write path against separate copy, checksum and encoding.

use proptest::prelude::*;

use super::*;
use crate::testing::{NoiseColumns, noise};
use crate::{crc32c, implementations};

/// The kind of a cell's source.
#[derive(Clone, Copy, Debug)]
enum SourceKind {
    Zero,
    InPlace,
    Copy,
}

/// A record of noise, processed in separate steps and in one.
struct RecordCase {
    code: Code,
    shape: Shape,
    kinds: Vec<SourceKind>,
    sources: Vec<Vec<u8>>,
    before: Vec<Vec<u8>>,
}

impl RecordCase {
    fn new(code: Code, shape: Shape, kinds: &[SourceKind], seed: u64) -> Self {
        let cells = usize::from(code.data_columns()) * shape.rows;
        let kinds = kinds.iter().copied().cycle().take(cells).collect();
        let source = |i: usize| noise(seed + i as u64, shape.cell);
        let column = |c| noise(seed ^ u64::from(c), shape.rows * shape.cell);
        let before = (0..code.columns()).map(column).collect();
        Self { shape, kinds, sources: (0..cells).map(source).collect(), before, code }
    }

    /// Returns columns and checksums computed by separate functions.
    fn expected(&self) -> (Vec<Vec<u8>>, Vec<u32>) {
        let (mut columns, k) = (self.before.clone(), usize::from(self.code.data_columns()));
        let Shape { cell, rows, deferred } = self.shape;
        let cells = columns[..k].iter_mut().flat_map(|column| column.chunks_exact_mut(cell));
        let fill = |(data, (kind, source)): (&mut [u8], (&SourceKind, &Vec<u8>))| {
            match kind {
                SourceKind::Zero => data.fill(0),
                SourceKind::InPlace => {}
                SourceKind::Copy => data.copy_from_slice(source),
            }
            crc32c(data)
        };
        let crcs = cells.zip(self.kinds.iter().zip(&self.sources)).map(fill).collect();
        let (data, parity) = columns.split_at_mut(k);
        let range = deferred * cell..rows * cell;
        let data: Vec<&[u8]> = data.iter().map(|column| &column[range.clone()]).collect();
        self.code.encode(&data, &mut parity.iter_mut().map(|p| &mut p[range.clone()]).collect::<Vec<_>>());
        (columns, crcs)
    }

    fn sources(&self) -> Vec<Source> {
        let source = |(kind, source): (&SourceKind, &Vec<u8>)| match kind {
            SourceKind::Zero => Source::Zero,
            SourceKind::InPlace => Source::InPlace,
            SourceKind::Copy => Source::Copy(source.as_ptr()),
        };
        self.kinds.iter().zip(&self.sources).map(source).collect()
    }

    /// Returns columns and checksums computed by the fused function.
    fn fused(&self) -> (Vec<Vec<u8>>, Vec<u32>) {
        let (mut columns, k) = (self.before.clone(), usize::from(self.code.data_columns()));
        let sources = self.sources();
        let mut crcs = vec![0; sources.len()];
        let (data, parity) = columns.split_at_mut(k);
        let mut data: Vec<&mut [u8]> = data.iter_mut().map(|column| &mut column[..]).collect();
        let mut parity: Vec<&mut [u8]> = parity.iter_mut().map(|column| &mut column[..]).collect();
        let Shape { cell, deferred, .. } = self.shape;
        // SAFETY: the sources do not overlap the cells.
        unsafe { self.code.encode_record_copy(cell, deferred, &sources, &mut data, &mut crcs, &mut parity) };
        (columns, crcs)
    }
}

#[test]
fn a_row_of_slices() {
    let code = Code::new(3, 2).unwrap();
    let sources = [noise(1, 4096), noise(2, 4096)];
    let mut cells = NoiseColumns::noise(3, 3, 4096);
    let mut parity = NoiseColumns::noise(4, 2, 4096);
    let mut crcs = [0; 3];
    let from = [Some(&sources[0][..]), None, Some(&sources[1][..])];
    code.encode_row(&from, &mut cells.all_mut(), &mut crcs, &mut parity.all_mut());
    let zeros = vec![0; 4096];
    assert_eq!(cells.all(), [&sources[0][..], &zeros, &sources[1]]);
    assert_eq!(crcs.to_vec(), cells.all().iter().map(|cell| crc32c(cell)).collect::<Vec<_>>());
    let mut expected = NoiseColumns::noise(5, 2, 4096);
    code.encode(&cells.all(), &mut expected.all_mut());
    assert_eq!(parity.all(), expected.all());
}

#[test]
fn the_precomputed_checksum_of_zeros_is_correct() {
    assert_eq!(COMMON_ZERO_CRC, crc32c(&[0; COMMON_CELL]));
}

#[test]
fn rows_of_empty_cells() {
    let code = Code::new(2, 1).unwrap();
    let mut crcs = [1; 2];
    code.encode_row(&[None, Some(&[])], &mut [&mut [], &mut []], &mut crcs, &mut [&mut []]);
    assert_eq!(crcs, [0; 2]);
}

#[test]
#[should_panic(expected = "number of sources and checksums")]
fn too_few_checksums_panic() {
    let code = Code::new(2, 0).unwrap();
    code.encode_row(&[None, None], &mut [&mut [0], &mut [0]], &mut [0], &mut []);
}

#[test]
#[should_panic(expected = "the same length")]
fn a_shorter_parity_column_panics() {
    let code = Code::new(1, 1).unwrap();
    code.encode_row(&[None], &mut [&mut [0, 0]], &mut [0], &mut [&mut [0]]);
}

fn kinds() -> impl Strategy<Value = Vec<SourceKind>> {
    let kind =
        prop_oneof![1 => Just(SourceKind::Zero), 1 => Just(SourceKind::InPlace), 4 => Just(SourceKind::Copy)];
    proptest::collection::vec(kind, 1..20)
}

proptest! {
    #[test]
    fn the_fused_function_matches_separate_steps(
        k in 1u8..=12, m in 0u8..=4, rows in 1usize..5, deferred in 0usize..5, kinds in kinds(), seed: u64,
        cell in prop_oneof![Just(4096usize), 1usize..1000],
    ) {
        let shape = Shape { cell, rows, deferred: deferred.min(rows) };
        for &implementation in implementations() {
            let code = Code::with_implementation(k, m, implementation).unwrap();
            let case = RecordCase::new(code, shape, &kinds, seed >> 8);
            prop_assert_eq!(case.fused(), case.expected(), "{}", implementation);
        }
    }
}
