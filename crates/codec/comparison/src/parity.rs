//! Encoding, and decoding one lost column: codec against ISA-L's table code and its XOR and P+Q.
//!
//! Owns these comparisons. ISA-L's table code gets codec's own coefficients, so that both must give the same
//! bytes; P+Q has them by itself.

use std::hint::black_box;

use codec::{Code, ColumnSet, Decoder};

use crate::isal::{self, Tables};
use crate::measure::{Contestant, Effort, compare};
use crate::memory::{MEMORY, Stripes};
use crate::report::Case;

/// All comparisons of K+M with columns of `column` bytes.
pub fn compare_scheme<const K: usize, const M: usize>(effort: Effort, column: usize) -> Vec<Case> {
    let stripe = column * (K + M);
    let mut cases = Vec::new();
    for (resident, stripes) in [("cache", 1), ("memory", MEMORY / stripe)] {
        let stripes = Stripes::new(stripes, K + M, column);
        cases.push(encode::<K, M>(effort, resident, &stripes));
        cases.push(decode::<K, M>(effort, resident, &stripes));
    }
    cases
}

fn encode<const K: usize, const M: usize>(effort: Effort, resident: &'static str, stripes: &Stripes) -> Case {
    let length = stripes.length;
    let code = Code::new(K as u8, M as u8).expect("a scheme that exists");
    let tables = Tables::new(K, M, &coefficients(&code));
    let ours = |turn: usize| {
        let (inputs, outputs) = stripes.columns(turn).split_at(K);
        // SAFETY: the columns are apart and nothing else runs.
        let inputs: [&[u8]; K] = std::array::from_fn(|j| unsafe { stripes.slice(inputs[j]) });
        // SAFETY: as above.
        let mut outputs: [&mut [u8]; M] = std::array::from_fn(|i| unsafe { stripes.slice_mut(outputs[i]) });
        code.encode(&inputs, &mut outputs);
    };
    let theirs = |turn: usize| {
        let (inputs, outputs) = stripes.columns(turn).split_at(K);
        // SAFETY: the columns are apart and as long as said.
        unsafe { tables.encode(length, inputs, outputs) };
    };
    // SAFETY: as above; page-aligned.
    let theirs_raid = |turn: usize| match M {
        1 => unsafe { isal::xor_gen(length, stripes.columns(turn)) },
        _ => unsafe { isal::pq_gen(length, stripes.columns(turn)) },
    };
    let parities = |run: &dyn Fn(usize)| sums(stripes, run, &stripes.columns(0)[K..]);
    let expected = parities(&ours);
    let right = [parities(&theirs) == expected, parities(&theirs_raid) == expected];
    let mut contestants = [
        Contestant::new("codec", ours),
        Contestant::new("isal ec_encode_data", theirs),
        Contestant::new(if M == 1 { "isal xor_gen" } else { "isal pq_gen" }, theirs_raid),
    ];
    Case {
        work: format!("encode {K}+{M}"),
        column: length,
        resident: resident.into(),
        bytes: K * length,
        right: (1 + right.iter().filter(|&&r| r).count(), 3),
        outcomes: compare(effort, &mut contestants),
    }
}

/// Data column 0 is lost. It comes back from the other data columns and the last parity: with M = 1 that is the
/// XOR, else the general case.
fn decode<const K: usize, const M: usize>(effort: Effort, resident: &'static str, stripes: &Stripes) -> Case {
    let length = stripes.length;
    let code = Code::new(K as u8, M as u8).expect("a scheme that exists");
    let present: ColumnSet = (1..K as u8).chain([(K + M - 1) as u8]).collect();
    let decoder = code.decoder(present, &[0]).expect("k columns are there");
    let tables = Tables::new(K, 1, &decoding_row(&decoder, K));
    let sources = |turn: usize| -> [*mut u8; K] {
        let columns = stripes.columns(turn);
        std::array::from_fn(|j| columns[usize::from(decoder.sources()[j])])
    };
    let ours = |turn: usize| {
        // SAFETY: the columns are apart and nothing else runs.
        let inputs: [&[u8]; K] = sources(turn).map(|column| unsafe { stripes.slice(column) });
        // SAFETY: column 0 is not among the sources.
        decoder.apply(&inputs, &mut [unsafe { stripes.slice_mut(stripes.columns(turn)[0]) }]);
    };
    let theirs = |turn: usize| {
        // SAFETY: the columns are apart and as long as said.
        unsafe { tables.encode(length, &sources(turn), &stripes.columns(turn)[..1]) };
    };
    let theirs_xor = |turn: usize| {
        let mut columns = [stripes.columns(turn)[0]; 33];
        columns[..K].copy_from_slice(&sources(turn));
        // SAFETY: as above; page-aligned.
        unsafe { isal::xor_gen(length, &columns[..=K]) };
    };
    let lost = |run: &dyn Fn(usize)| sums(stripes, run, &stripes.columns(0)[..1]);
    let expected = lost(&ours);
    let mut right = 1 + usize::from(lost(&theirs) == expected);
    let mut contestants =
        vec![Contestant::new("codec", ours), Contestant::new("isal ec_encode_data", theirs)];
    if M == 1 {
        right += usize::from(lost(&theirs_xor) == expected);
        contestants.push(Contestant::new("isal xor_gen", theirs_xor));
    }
    Case {
        work: format!("decode 1 of {K}+{M}"),
        column: length,
        resident: resident.into(),
        bytes: K * length,
        right: (right, contestants.len()),
        outcomes: compare(effort, &mut contestants),
    }
}

/// How long it takes to plan a decoding: for one lost data column of 4+1, of 8+2 without its first parity, and for
/// two.
pub fn compare_plans(effort: Effort) -> Vec<Case> {
    let plan = |k: u8, m: u8, lost: &'static [u8]| {
        let code = Code::new(k, m).expect("a scheme that exists");
        let present: ColumnSet = ColumnSet::first(k + m).difference(lost.iter().copied().collect());
        let wanted: Vec<u8> = lost.iter().copied().filter(|&column| column < k).collect();
        let mut contestants = [Contestant::new("codec", move |_| {
            black_box(code.decoder(black_box(present), &wanted).expect("k columns are there"));
        })];
        Case {
            work: format!("plan {lost:?} of {k}+{m}"),
            column: 0,
            resident: "cache".into(),
            bytes: 0,
            right: (1, 1),
            outcomes: compare(effort, &mut contestants),
        }
    };
    vec![plan(4, 1, &[0]), plan(8, 2, &[0, 8]), plan(8, 2, &[0, 1])]
}

/// Runs turn 0 and gives the checksums of some columns after it.
fn sums(stripes: &Stripes, run: &dyn Fn(usize), columns: &[*mut u8]) -> Vec<u32> {
    for &column in columns {
        // SAFETY: nothing else runs.
        unsafe { stripes.slice_mut(column) }.fill(0xAA);
    }
    run(0);
    // SAFETY: nothing else runs.
    columns.iter().map(|&column| codec::crc32c(unsafe { stripes.slice(column) })).collect()
}

/// codec's m x k coefficients, column by column as the parities of unit vectors.
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

/// The decoder's factors, from unit vectors.
fn decoding_row(decoder: &Decoder, k: usize) -> Vec<u8> {
    let unit = |j: usize| {
        let inputs: Vec<[u8; 1]> = (0..k).map(|i| [u8::from(i == j)]).collect();
        let mut output = [0u8; 1];
        decoder.apply(&inputs.iter().map(|d| &d[..]).collect::<Vec<_>>(), &mut [&mut output]);
        output[0]
    };
    (0..k).map(unit).collect()
}
