//! Encoding, and decoding of one lost column: codec against ISA-L's table code and its XOR and P+Q.
//!
//! Owns these comparisons. ISA-L's table code uses codec's coefficients, so that both must produce
//! the same bytes; the coefficients of P+Q are the same anyway.

use std::hint::black_box;

use codec::{Code, ColumnSet, Decoder};

use crate::isal::{self, Tables};
use crate::measure::{Candidate, Sampling, compare};
use crate::memory::{MEMORY, Stripes};
use crate::report::Comparison;

/// Runs all comparisons of K+M with columns of `column` bytes.
pub fn compare_scheme<const K: usize, const M: usize>(sampling: Sampling, column: usize) -> Vec<Comparison> {
    let stripe = column * (K + M);
    let mut cases = Vec::new();
    for (residence, stripes) in [("cache", 1), ("memory", MEMORY / stripe)] {
        let stripes = Stripes::new(stripes, K + M, column);
        cases.push(encode::<K, M>(sampling, residence, &stripes));
        cases.push(decode::<K, M>(sampling, residence, &stripes));
    }
    cases
}

fn encode<const K: usize, const M: usize>(
    sampling: Sampling,
    residence: &'static str,
    stripes: &Stripes,
) -> Comparison {
    let length = stripes.length;
    let code = Code::new(K as u8, M as u8).expect("a scheme that exists");
    let tables = Tables::new(K, M, &coefficients(&code));
    let codec_run = |iteration: usize| {
        let (inputs, outputs) = stripes.columns(iteration).split_at(K);
        // SAFETY: the columns do not overlap and no other code runs.
        let inputs: [&[u8]; K] = std::array::from_fn(|j| unsafe { stripes.slice(inputs[j]) });
        // SAFETY: as above.
        let mut outputs: [&mut [u8]; M] = std::array::from_fn(|i| unsafe { stripes.slice_mut(outputs[i]) });
        code.encode(&inputs, &mut outputs);
    };
    let isal_run = |iteration: usize| {
        let (inputs, outputs) = stripes.columns(iteration).split_at(K);
        // SAFETY: the columns do not overlap and have this length.
        unsafe { tables.encode(length, inputs, outputs) };
    };
    // SAFETY: as above; page-aligned.
    let isal_raid_run = |iteration: usize| match M {
        1 => unsafe { isal::xor_gen(length, stripes.columns(iteration)) },
        _ => unsafe { isal::pq_gen(length, stripes.columns(iteration)) },
    };
    let parities = |run: &dyn Fn(usize)| checksums(stripes, run, &stripes.columns(0)[K..]);
    let expected = parities(&codec_run);
    let correct = [parities(&isal_run) == expected, parities(&isal_raid_run) == expected];
    let mut candidates = [
        Candidate::new("codec", codec_run),
        Candidate::new("isal ec_encode_data", isal_run),
        Candidate::new(if M == 1 { "isal xor_gen" } else { "isal pq_gen" }, isal_raid_run),
    ];
    Comparison {
        work: format!("encode {K}+{M}"),
        column: length,
        residence: residence.into(),
        bytes: K * length,
        correct: (1 + correct.iter().filter(|&&r| r).count(), 3),
        measurements: compare(sampling, &mut candidates),
    }
}

/// Reconstructs data column 0 from the other data columns and the last parity: with M = 1 that is
/// the XOR, otherwise the general case.
fn decode<const K: usize, const M: usize>(
    sampling: Sampling,
    residence: &'static str,
    stripes: &Stripes,
) -> Comparison {
    let length = stripes.length;
    let code = Code::new(K as u8, M as u8).expect("a scheme that exists");
    let present: ColumnSet = (1..K as u8).chain([(K + M - 1) as u8]).collect();
    let decoder = code.decoder(present, &[0]).expect("k columns are there");
    let tables = Tables::new(K, 1, &decoding_row(&decoder, K));
    let sources = |iteration: usize| -> [*mut u8; K] {
        let columns = stripes.columns(iteration);
        std::array::from_fn(|j| columns[usize::from(decoder.sources()[j])])
    };
    let codec_run = |iteration: usize| {
        // SAFETY: the columns do not overlap and no other code runs.
        let inputs: [&[u8]; K] = sources(iteration).map(|column| unsafe { stripes.slice(column) });
        // SAFETY: column 0 is not among the sources.
        decoder.apply(&inputs, &mut [unsafe { stripes.slice_mut(stripes.columns(iteration)[0]) }]);
    };
    let isal_run = |iteration: usize| {
        // SAFETY: the columns do not overlap and have this length.
        unsafe { tables.encode(length, &sources(iteration), &stripes.columns(iteration)[..1]) };
    };
    let isal_xor_run = |iteration: usize| {
        let mut columns = [stripes.columns(iteration)[0]; 33];
        columns[..K].copy_from_slice(&sources(iteration));
        // SAFETY: as above; page-aligned.
        unsafe { isal::xor_gen(length, &columns[..=K]) };
    };
    let lost = |run: &dyn Fn(usize)| checksums(stripes, run, &stripes.columns(0)[..1]);
    let expected = lost(&codec_run);
    let mut correct = 1 + usize::from(lost(&isal_run) == expected);
    let mut candidates =
        vec![Candidate::new("codec", codec_run), Candidate::new("isal ec_encode_data", isal_run)];
    if M == 1 {
        correct += usize::from(lost(&isal_xor_run) == expected);
        candidates.push(Candidate::new("isal xor_gen", isal_xor_run));
    }
    Comparison {
        work: format!("decode 1 of {K}+{M}"),
        column: length,
        residence: residence.into(),
        bytes: K * length,
        correct: (correct, candidates.len()),
        measurements: compare(sampling, &mut candidates),
    }
}

/// Measures the planning of a decoder: for one lost data column of 4+1, for one of 8+2 without its
/// first parity, and for two.
pub fn compare_plans(sampling: Sampling) -> Vec<Comparison> {
    let plan = |k: u8, m: u8, lost: &'static [u8]| {
        let code = Code::new(k, m).expect("a scheme that exists");
        let present: ColumnSet = ColumnSet::first(k + m).difference(lost.iter().copied().collect());
        let wanted: Vec<u8> = lost.iter().copied().filter(|&column| column < k).collect();
        let mut candidates = [Candidate::new("codec", move |_| {
            black_box(code.decoder(black_box(present), &wanted).expect("k columns are there"));
        })];
        Comparison {
            work: format!("plan {lost:?} of {k}+{m}"),
            column: 0,
            residence: "cache".into(),
            bytes: 0,
            correct: (1, 1),
            measurements: compare(sampling, &mut candidates),
        }
    };
    vec![plan(4, 1, &[0]), plan(8, 2, &[0, 8]), plan(8, 2, &[0, 1])]
}

/// Runs iteration 0 and returns the checksums of some columns after it.
fn checksums(stripes: &Stripes, run: &dyn Fn(usize), columns: &[*mut u8]) -> Vec<u32> {
    for &column in columns {
        // SAFETY: no other code runs.
        unsafe { stripes.slice_mut(column) }.fill(0xAA);
    }
    run(0);
    // SAFETY: no other code runs.
    columns.iter().map(|&column| codec::crc32c(unsafe { stripes.slice(column) })).collect()
}

/// Returns codec's m x k coefficients, column by column as the parities of unit vectors.
fn coefficients(code: &Code) -> Vec<u8> {
    let (k, m) = (usize::from(code.data_columns()), usize::from(code.parity_columns()));
    let mut matrix = vec![0u8; k * m];
    for j in 0..k {
        let data: Vec<[u8; 1]> = (0..k).map(|i| [u8::from(i == j)]).collect();
        let mut parity = vec![[0u8; 1]; m];
        code.encode(
            &data.iter().map(|d| &d[..]).collect::<Vec<_>>(),
            &mut parity.iter_mut().map(|p| &mut p[..]).collect::<Vec<_>>(),
        );
        for (i, value) in parity.iter().enumerate() {
            matrix[i * k + j] = value[0];
        }
    }
    matrix
}

/// Returns the decoder's coefficients, computed from unit vectors.
fn decoding_row(decoder: &Decoder, k: usize) -> Vec<u8> {
    let unit = |j: usize| {
        let inputs: Vec<[u8; 1]> = (0..k).map(|i| [u8::from(i == j)]).collect();
        let mut output = [0u8; 1];
        decoder.apply(&inputs.iter().map(|d| &d[..]).collect::<Vec<_>>(), &mut [&mut output]);
        output[0]
    };
    (0..k).map(unit).collect()
}
