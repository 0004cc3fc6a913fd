//! The coefficients of the on-disk format, and inverses.

use proptest::prelude::*;

use super::*;

/// The coefficients are part of the on-disk format: a change would make stored parities unreadable.
#[test]
fn coefficients_match_the_on_disk_format() {
    let row = |i| (0..10).map(|j| coefficient(i, j)).collect::<Vec<_>>();
    assert_eq!(row(0), [1; 10]);
    assert_eq!(row(1), [1, 2, 4, 8, 16, 32, 64, 128, 29, 58], "Q of RAID 6");
    assert_eq!(row(2), [1, 187, 166, 215, 199, 7, 206, 130, 74, 47]);
    let all: Vec<u8> = (0..31).flat_map(|i| (0..31 - i).map(move |j| coefficient(i, j))).collect();
    assert_eq!(crate::scalar::crc32c_append(0, &all), 0x5D42_0F4B);
}

/// A Cauchy matrix needs different points.
#[test]
fn all_points_differ() {
    let mut points: Vec<u8> = (0..31).map(parity_point).chain((0..32).map(data_point)).collect();
    points.sort_unstable();
    points.dedup();
    assert_eq!(points.len(), 63);
}

#[test]
fn the_first_row_and_column_are_ones() {
    for i in 0..31 {
        assert_eq!((coefficient(0, i), coefficient(i, 0)), (1, 1), "{i}");
    }
}

/// Returns the positions of the bits that are one.
fn set_bits(bits: u32) -> Vec<u8> {
    crate::ColumnSet::from_bits(bits).iter().collect()
}

fn submatrix(rows: &[u8], columns: &[u8]) -> Square {
    Square::new(rows.len(), |r, c| coefficient(rows[r], columns[c]))
}

/// A choice of k surviving columns of k+m is a choice of e missing data columns and e parities in
/// their place, and can be decoded if that square of coefficients is invertible. Tests all choices
/// of all codes of up to 16 columns.
#[test]
fn every_choice_of_survivors_of_up_to_16_columns_is_invertible() {
    let mut choices = 0;
    for k in 1..16u8 {
        for survivors in (0..1u32 << 16).filter(|bits| bits.count_ones() == u32::from(k)) {
            let missing = set_bits(!survivors & ((1 << k) - 1));
            let parities = set_bits(survivors >> k);
            assert_eq!(missing.len(), parities.len());
            assert!(submatrix(&parities, &missing).inverted().is_some(), "{k}: {missing:?} {parities:?}");
            choices += 1;
        }
    }
    assert_eq!(choices, (1 << 16) - 2);
}

/// Returns the product of two matrices of the same size.
fn product(a: &Square, b: &Square) -> Square {
    let element = |r, c| (0..a.size()).fold(0, |sum, i| sum ^ multiply(a.get(r, i), b.get(i, c)));
    Square::new(a.size(), element)
}

fn elements(matrix: &Square) -> Vec<u8> {
    (0..matrix.size()).flat_map(|r| (0..matrix.size()).map(move |c| matrix.get(r, c))).collect()
}

#[test]
fn a_singular_matrix_has_no_inverse() {
    assert!(Square::new(2, |_, _| 7).inverted().is_none());
    assert!(Square::new(3, |r, c| u8::from(r == c && r != 1)).inverted().is_none());
}

#[test]
fn an_inverse_that_needs_row_swaps_is_found() {
    let swap = |r, c| u8::from((r + 1) % 3 == c);
    let inverse = Square::new(3, swap).inverted().unwrap();
    assert_eq!(elements(&inverse), elements(&Square::new(3, |r, c| swap(c, r))));
}

proptest! {
    /// Tests random square submatrices of all coefficients, up to the largest.
    #[test]
    fn any_square_of_coefficients_is_invertible(
        rows in proptest::sample::subsequence((0..31u8).collect::<Vec<_>>(), 1..=16),
        columns in Just((0..31u8).collect::<Vec<_>>()).prop_shuffle(),
    ) {
        prop_assert!(submatrix(&rows, &columns[..rows.len()]).inverted().is_some());
    }

    #[test]
    fn a_matrix_times_its_inverse_is_one(size in 1usize..=16, seed: u64) {
        let bytes = crate::testing::noise(seed, size * size);
        let matrix = || Square::new(size, |r, c| bytes[r * size + c]);
        if let Some(inverse) = matrix().inverted() {
            let one = elements(&Square::new(size, |r, c| u8::from(r == c)));
            prop_assert_eq!(elements(&product(&matrix(), &inverse)), one.clone());
            prop_assert_eq!(elements(&product(&inverse, &matrix())), one);
        }
    }
}
