//! Reconstruction of lost columns, from every choice of sources.

use proptest::prelude::*;

use super::*;
use crate::implementations;
use crate::testing::NoiseColumns;

/// Returns all columns of an encoded codeword of noise.
fn codeword(code: &Code, seed: u64, length: usize) -> NoiseColumns {
    let mut columns = NoiseColumns::noise(seed, usize::from(code.columns()), length);
    let mut all = columns.all_mut();
    let (data, parity) = all.split_at_mut(usize::from(code.data_columns()));
    code.encode(&data.iter().map(|column| &**column).collect::<Vec<_>>(), parity);
    columns
}

/// Computes the wanted columns and returns true if they are correct.
fn reconstructs(
    code: &Code,
    columns: &NoiseColumns,
    length: usize,
    present: ColumnSet,
    wanted: &[u8],
) -> bool {
    let decoder = code.decoder(present, wanted).unwrap();
    let inputs: Vec<&[u8]> = decoder.sources().iter().map(|&c| columns.get(usize::from(c))).collect();
    let mut outputs = NoiseColumns::noise(77, wanted.len(), length);
    decoder.apply(&inputs, &mut outputs.all_mut());
    decoder.wanted().iter().zip(outputs.all()).all(|(&c, output)| output == columns.get(usize::from(c)))
}

/// Every pattern of losses of every code of up to 9 columns, with every implementation.
#[test]
fn every_loss_of_small_codes_is_reconstructed() {
    for (k, m) in (1..=9u8).flat_map(|k| (0..=9 - k).map(move |m| (k, m))) {
        for &implementation in implementations() {
            let code = Code::with_implementation(k, m, implementation).unwrap();
            let columns = codeword(&code, 3, 70);
            for present in (0..1u32 << (k + m)).map(ColumnSet::from_bits).filter(|set| set.len() == k) {
                let lost: Vec<u8> = ColumnSet::first(k + m).difference(present).iter().collect();
                assert!(reconstructs(&code, &columns, 70, present, &lost), "{code:?} {present}");
            }
        }
    }
}

#[test]
fn the_lowest_survivors_are_the_sources() {
    let code = Code::new(4, 3).unwrap();
    let decoder = code.decoder([6, 5, 4, 3, 1, 0].into_iter().collect(), &[2]).unwrap();
    assert_eq!((decoder.sources(), decoder.wanted()), (&[0, 1, 3, 4][..], &[2][..]));
    let shown = format!("{decoder:?}");
    assert!(shown.starts_with("Decoder([2] from [0, 1, 3, 4], "), "{shown}");
}

#[test]
fn present_columns_can_be_wanted() {
    let code = Code::new(4, 2).unwrap();
    let columns = codeword(&code, 4, 64);
    for (present, wanted) in
        [([0, 1, 2, 3], [0, 5]), ([0, 1, 2, 5], [5, 3]), ([2, 3, 4, 5], [2, 0]), ([0, 2, 3, 4], [4, 4])]
    {
        assert!(
            reconstructs(&code, &columns, 64, present.into_iter().collect(), &wanted),
            "{present:?} {wanted:?}"
        );
    }
}

#[test]
fn a_decoder_without_wanted_columns_does_nothing() {
    let decoder = Code::new(2, 0).unwrap().decoder(ColumnSet::first(2), &[]).unwrap();
    decoder.apply(&[&[1], &[2]], &mut []);
}

#[test]
fn invalid_requests_are_refused() {
    let code = Code::new(4, 2).unwrap();
    let (data, parity) = (4, 2);
    let present: ColumnSet = [0, 2, 5].into_iter().collect();
    assert_eq!(code.decoder(present, &[1]).unwrap_err(), CodeError::TooFewColumns { present, data, parity });
    let all = ColumnSet::first(6);
    assert_eq!(code.decoder(all, &[6]).unwrap_err(), CodeError::NoSuchColumn { column: 6, data, parity });
    assert_eq!(code.decoder(all, &[255]).unwrap_err(), CodeError::NoSuchColumn { column: 255, data, parity });
    let out_of_range = ColumnSet::first(8);
    assert_eq!(
        code.decoder(out_of_range, &[0]).unwrap_err(),
        CodeError::NoSuchColumn { column: 6, data, parity }
    );
    assert_eq!(
        code.decoder(all, &[0, 1, 2]).unwrap_err(),
        CodeError::TooManyWanted { wanted: 3, data, parity }
    );
    let error = code.decoder(present, &[1]).unwrap_err().to_string();
    assert_eq!(error, "only columns {0,2,5} of 4+2 are left, but 4 columns are needed");
}

/// Generates a scheme, and an order of its columns of which the first k survive.
fn losses() -> impl Strategy<Value = (u8, u8, Vec<u8>)> {
    (1..=MAX_COLUMNS as u8)
        .prop_flat_map(|k| (Just(k), 0..=MAX_COLUMNS as u8 - k))
        .prop_flat_map(|(k, m)| (Just(k), Just(m), Just((0..k + m).collect::<Vec<u8>>()).prop_shuffle()))
}

proptest! {
    #[test]
    fn any_loss_is_reconstructed((k, m, order) in losses(), length in 0usize..400, seed: u64) {
        let (survivors, lost) = order.split_at(usize::from(k));
        for &implementation in implementations() {
            let code = Code::with_implementation(k, m, implementation).unwrap();
            let columns = codeword(&code, seed, length);
            let present = survivors.iter().copied().collect();
            prop_assert!(reconstructs(&code, &columns, length, present, lost), "{:?}", code);
        }
    }

    /// Tests one lost column and at least k survivors.
    #[test]
    fn any_single_column_is_reconstructed((k, m, order) in losses(), more in 0usize..32, seed: u64) {
        prop_assume!(m > 0);
        let (survivors, lost) = order.split_at((usize::from(k) + more).min(order.len() - 1));
        let code = Code::new(k, m).unwrap();
        let columns = codeword(&code, seed, 100);
        prop_assert!(reconstructs(&code, &columns, 100, survivors.iter().copied().collect(), &lost[..1]));
    }
}
