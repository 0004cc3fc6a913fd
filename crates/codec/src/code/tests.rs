//! Parities: known answers, and every implementation against the oracle.

use proptest::prelude::*;

use super::*;
use crate::implementations;
use crate::testing::NoiseColumns;

/// Returns the parities of some data.
fn encoded(code: &Code, data: &NoiseColumns, length: usize) -> NoiseColumns {
    let mut parity = NoiseColumns::noise(99, usize::from(code.parity_columns()), length);
    let guards = parity.guards();
    code.encode(&data.all(), &mut parity.all_mut());
    assert_eq!(parity.guards(), guards, "bytes outside the columns were written");
    parity
}

#[test]
fn invalid_schemes_are_refused() {
    assert_eq!(Code::new(0, 3).unwrap_err(), CodeError::NoData);
    assert_eq!(Code::new(30, 3).unwrap_err(), CodeError::TooManyColumns { data: 30, parity: 3 });
    assert_eq!(Code::new(255, 255).unwrap_err(), CodeError::TooManyColumns { data: 255, parity: 255 });
    for (k, m) in [(1, 0), (1, 31), (31, 1), (32, 0), (16, 16)] {
        let code = Code::new(k, m).unwrap();
        assert_eq!((code.data_columns(), code.parity_columns(), code.columns()), (k, m, k + m));
    }
}

#[test]
fn displays_its_scheme() {
    let code = Code::with_implementation(8, 2, Implementation::SCALAR).unwrap();
    assert_eq!((code.to_string(), format!("{code:?}")), ("8+2".into(), "Code(8+2, scalar)".into()));
    let error = Code::new(30, 3).unwrap_err();
    assert_eq!(error.to_string(), "30+3 has more than 32 columns");
}

#[test]
fn the_first_parity_is_the_xor() {
    let code = Code::new(3, 2).unwrap();
    let (mut p, mut q) = ([0u8; 1], [0u8; 1]);
    code.encode(&[&[1], &[2], &[4]], &mut [&mut p, &mut q]);
    assert_eq!(p, [7]);
    assert_ne!(q, [7]);
}

#[test]
fn one_data_column_is_mirrored() {
    for &implementation in implementations() {
        let code = Code::with_implementation(1, 5, implementation).unwrap();
        let data = NoiseColumns::noise(5, 1, 333);
        assert!(encoded(&code, &data, 333).all().iter().all(|copy| *copy == data.get(0)));
    }
}

/// Parities do not depend on k and m: missing columns are equivalent to zeros, and fewer parities
/// are the first ones of more.
#[test]
fn smaller_codes_are_parts_of_larger_ones() {
    let mut data = NoiseColumns::noise(6, 12, 100);
    for column in data.all_mut().into_iter().skip(7) {
        column.fill(0);
    }
    let long = encoded(&Code::new(12, 6).unwrap(), &data, 100);
    let mut short = NoiseColumns::noise(7, 4, 100);
    Code::new(7, 4).unwrap().encode(&data.all()[..7], &mut short.all_mut());
    assert_eq!(long.all()[..4], short.all());
}

#[test]
fn encoding_without_parity_does_nothing() {
    for &implementation in implementations() {
        let code = Code::with_implementation(4, 0, implementation).unwrap();
        code.encode(&[&[1], &[2], &[3], &[4]], &mut []);
    }
}

#[test]
#[should_panic(expected = "the same length")]
fn columns_of_different_lengths_panic() {
    let (mut p, code) = ([0u8; 2], Code::new(2, 1).unwrap());
    code.encode(&[&[1, 2], &[3]], &mut [&mut p]);
}

#[test]
#[should_panic(expected = "number of input columns")]
fn a_missing_column_panics() {
    let (mut p, code) = ([0u8; 1], Code::new(2, 1).unwrap());
    code.encode(&[&[1]], &mut [&mut p]);
}

/// Tests columns beyond the minimum size for streaming stores, aligned and unaligned.
#[test]
fn large_columns_match_the_oracle() {
    const LENGTH: usize = 600_000;
    #[repr(align(64))]
    struct Aligned([u8; LENGTH]);
    for (k, m) in [(2, 1), (4, 2), (12, 2), (3, 5)] {
        let data = NoiseColumns::noise(8, usize::from(k), LENGTH);
        let oracle =
            encoded(&Code::with_implementation(k, m, Implementation::SCALAR).unwrap(), &data, LENGTH);
        for &implementation in implementations() {
            let code = Code::with_implementation(k, m, implementation).unwrap();
            let mut parity: Vec<_> = (0..m).map(|_| Box::new(Aligned([0; LENGTH]))).collect();
            for length in [LENGTH, LENGTH - 1, 2 << 18] {
                let data: Vec<&[u8]> = data.all().iter().map(|column| &column[..length]).collect();
                code.encode(&data, &mut parity.iter_mut().map(|p| &mut p.0[..length]).collect::<Vec<_>>());
                for (parity_column, expected) in parity.iter().zip(oracle.all()) {
                    assert!(parity_column.0[..length] == expected[..length], "{code:?} {length}");
                }
            }
        }
    }
}

/// Generates k and m of any code.
fn schemes() -> impl Strategy<Value = (u8, u8)> {
    (1..=MAX_COLUMNS as u8).prop_flat_map(|k| (Just(k), 0..=MAX_COLUMNS as u8 - k))
}

/// Checks that every implementation computes the same parities as the oracle.
fn agree(k: u8, m: u8, length: usize, seed: u64) -> Result<(), TestCaseError> {
    let data = NoiseColumns::noise(seed, usize::from(k), length);
    let oracle = encoded(&Code::with_implementation(k, m, Implementation::SCALAR).unwrap(), &data, length);
    for &implementation in implementations() {
        let parity = encoded(&Code::with_implementation(k, m, implementation).unwrap(), &data, length);
        prop_assert_eq!(parity.all(), oracle.all(), "{}", implementation);
    }
    Ok(())
}

proptest! {
    #[test]
    fn all_implementations_agree((k, m) in schemes(), length in 0usize..1500, seed: u64) {
        agree(k, m, length, seed)?;
    }

    /// Tests the shapes with specialised kernels, and lengths around that of a cell.
    #[test]
    fn common_shapes_agree(k in 1u8..=11, m in 1u8..=3, length in 3900usize..4200, seed: u64) {
        agree(k, m, length, seed)?;
    }
}
