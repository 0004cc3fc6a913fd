//! The fused write path against copying, summing and encoding apart.

use proptest::prelude::*;

use super::*;
use crate::testing::{Columns, noise};
use crate::{crc32c, implementations};

/// What a cell's source is in a test.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Zero,
    InPlace,
    Copy,
}

/// A record of noise, done in separate steps and in one.
struct Case {
    code: Code,
    shape: Shape,
    kinds: Vec<Kind>,
    sources: Vec<Vec<u8>>,
    before: Vec<Vec<u8>>,
}

impl Case {
    fn new(code: Code, shape: Shape, kinds: &[Kind], seed: u64) -> Self {
        let cells = usize::from(code.data_columns()) * shape.rows;
        let kinds = kinds.iter().copied().cycle().take(cells).collect();
        let source = |i: usize| noise(seed + i as u64, shape.cell);
        let column = |c| noise(seed ^ u64::from(c), shape.rows * shape.cell);
        let before = (0..code.columns()).map(column).collect();
        Self { shape, kinds, sources: (0..cells).map(source).collect(), before, code }
    }

    /// Columns and sums by the plain functions.
    fn expected(&self) -> (Vec<Vec<u8>>, Vec<u32>) {
        let (mut columns, k) = (self.before.clone(), usize::from(self.code.data_columns()));
        let Shape { cell, rows, held } = self.shape;
        let cells = columns[..k].iter_mut().flat_map(|column| column.chunks_exact_mut(cell));
        let fill = |(data, (kind, source)): (&mut [u8], (&Kind, &Vec<u8>))| {
            match kind {
                Kind::Zero => data.fill(0),
                Kind::InPlace => {}
                Kind::Copy => data.copy_from_slice(source),
            }
            crc32c(data)
        };
        let crcs = cells.zip(self.kinds.iter().zip(&self.sources)).map(fill).collect();
        let (data, parity) = columns.split_at_mut(k);
        let range = held * cell..rows * cell;
        let data: Vec<&[u8]> = data.iter().map(|column| &column[range.clone()]).collect();
        self.code.encode(&data, &mut parity.iter_mut().map(|p| &mut p[range.clone()]).collect::<Vec<_>>());
        (columns, crcs)
    }

    fn sources(&self) -> Vec<Source> {
        let source = |(kind, source): (&Kind, &Vec<u8>)| match kind {
            Kind::Zero => Source::Zero,
            Kind::InPlace => Source::InPlace,
            Kind::Copy => Source::Copy(source.as_ptr()),
        };
        self.kinds.iter().zip(&self.sources).map(source).collect()
    }

    /// Columns and sums row by row, from `first` on; nothing in those above.
    fn by_rows(&self, first: usize) -> (Vec<Vec<u8>>, Vec<u32>) {
        let Shape { cell, rows, .. } = self.shape;
        let mut columns = self.before.clone();
        let mut row = noise(7, columns.len() * cell);
        let mut crcs = vec![0; self.kinds.len()];
        let take = |column: usize, row: usize, bytes: &[u8]| {
            columns[column][row * cell..(row + 1) * cell].copy_from_slice(bytes);
        };
        // SAFETY: the sources are cells of their own.
        unsafe { self.code.encode_rows_copy(first..rows, &self.sources(), &mut row, &mut crcs, take) };
        (columns, crcs)
    }

    /// Columns and sums by the fused function.
    fn fused(&self) -> (Vec<Vec<u8>>, Vec<u32>) {
        let (mut columns, k) = (self.before.clone(), usize::from(self.code.data_columns()));
        let sources = self.sources();
        let mut crcs = vec![0; sources.len()];
        let (data, parity) = columns.split_at_mut(k);
        let mut data: Vec<&mut [u8]> = data.iter_mut().map(|column| &mut column[..]).collect();
        let mut parity: Vec<&mut [u8]> = parity.iter_mut().map(|column| &mut column[..]).collect();
        let Shape { cell, held, .. } = self.shape;
        // SAFETY: the sources are cells of their own.
        unsafe { self.code.encode_record_copy(cell, held, &sources, &mut data, &mut crcs, &mut parity) };
        (columns, crcs)
    }
}

#[test]
fn a_row_of_slices() {
    let code = Code::new(3, 2).unwrap();
    let sources = [noise(1, 4096), noise(2, 4096)];
    let mut cells = Columns::noise(3, 3, 4096);
    let mut parity = Columns::noise(4, 2, 4096);
    let mut crcs = [0; 3];
    let from = [Some(&sources[0][..]), None, Some(&sources[1][..])];
    code.encode_row(&from, &mut cells.all_mut(), &mut crcs, &mut parity.all_mut());
    let zeros = vec![0; 4096];
    assert_eq!(cells.all(), [&sources[0][..], &zeros, &sources[1]]);
    assert_eq!(crcs.to_vec(), cells.all().iter().map(|cell| crc32c(cell)).collect::<Vec<_>>());
    let mut expected = Columns::noise(5, 2, 4096);
    code.encode(&cells.all(), &mut expected.all_mut());
    assert_eq!(parity.all(), expected.all());
}

#[test]
fn the_checksum_of_zeros_is_known() {
    assert_eq!(COMMON_ZERO_CRC, crc32c(&[0; COMMON_CELL]));
}

#[test]
fn rows_of_nothing() {
    let code = Code::new(2, 1).unwrap();
    let mut crcs = [1; 2];
    code.encode_row(&[None, Some(&[])], &mut [&mut [], &mut []], &mut crcs, &mut [&mut []]);
    assert_eq!(crcs, [0; 2]);
}

#[test]
#[should_panic(expected = "a source and a sum for each cell")]
fn too_few_sums_are_a_bug() {
    let code = Code::new(2, 0).unwrap();
    code.encode_row(&[None, None], &mut [&mut [0], &mut [0]], &mut [0], &mut []);
}

#[test]
#[should_panic(expected = "nothing of its own")]
fn a_row_in_a_place_of_others_has_nothing_yet() {
    let code = Code::new(1, 0).unwrap();
    // SAFETY: nothing is copied.
    unsafe { code.encode_rows_copy(0..1, &[Source::InPlace], &mut [0; 64], &mut [0], |_, _, _| {}) };
}

#[test]
#[should_panic(expected = "of one length")]
fn a_shorter_parity_is_a_bug() {
    let code = Code::new(1, 1).unwrap();
    code.encode_row(&[None], &mut [&mut [0, 0]], &mut [0], &mut [&mut [0]]);
}

fn kinds() -> impl Strategy<Value = Vec<Kind>> {
    let kind = prop_oneof![1 => Just(Kind::Zero), 1 => Just(Kind::InPlace), 4 => Just(Kind::Copy)];
    proptest::collection::vec(kind, 1..20)
}

proptest! {
    #[test]
    fn one_pass_is_as_good_as_three(
        k in 1u8..=12, m in 0u8..=4, rows in 1usize..5, held in 0usize..5, kinds in kinds(), seed: u64,
        cell in prop_oneof![Just(4096usize), 1usize..1000],
    ) {
        let shape = Shape { cell, rows, held: held.min(rows) };
        for &implementation in implementations() {
            let code = Code::with_implementation(k, m, implementation).unwrap();
            let case = Case::new(code, shape, &kinds, seed >> 8);
            prop_assert_eq!(case.fused(), case.expected(), "{}", implementation);
        }
    }

    #[test]
    fn rows_in_one_place_are_as_good_as_all_together(
        k in 1u8..=12, m in 0u8..=4, rows in 1usize..5, first in 0usize..5, seed: u64,
        zeros in proptest::collection::vec(proptest::bool::weighted(0.2), 1..20),
        cell in prop_oneof![Just(4096usize), 1usize..1000],
    ) {
        let kinds: Vec<Kind> = zeros.into_iter().map(|zero| if zero { Kind::Zero } else { Kind::Copy }).collect();
        let first = first.min(rows);
        for &implementation in implementations() {
            let code = Code::with_implementation(k, m, implementation).unwrap();
            let case = Case::new(code, Shape { cell, rows, held: 0 }, &kinds, seed >> 8);
            let (expected, sums) = case.expected();
            let (columns, crcs) = case.by_rows(first);
            for ((column, right), before) in columns.iter().zip(&expected).zip(&case.before) {
                prop_assert_eq!(&column[..first * cell], &before[..first * cell], "{}", implementation);
                prop_assert_eq!(&column[first * cell..], &right[first * cell..], "{}", implementation);
            }
            for (crcs, sums) in crcs.chunks(rows).zip(sums.chunks(rows)) {
                prop_assert_eq!(&crcs[first..], &sums[first..], "{}", implementation);
            }
        }
    }
}
