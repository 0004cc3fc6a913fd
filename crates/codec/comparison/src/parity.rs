//! Encoding, and decoding one lost column: codec against ISA-L's table code and its XOR and P+Q.
//!
//! Owns these comparisons. ISA-L's table code gets codec's own coefficients, so that both must give the same bytes.

use codec::{Code, ColumnSet, Decoder};

use crate::isal::{self, Tables};
use crate::measure::{Contestant, Effort, compare};
use crate::memory::Stripes;
use crate::report::Case;

/// More than this machine's last-level cache holds (32 MiB), several times.
const MEMORY: usize = 192 << 20;

/// All comparisons of one scheme at one column length.
pub fn compare_scheme(effort: Effort, k: u8, m: u8, column: usize) -> Vec<Case> {
    let stripe = column * usize::from(k + m);
    let mut cases = Vec::new();
    for (resident, stripes) in [("cache", 1), ("memory", MEMORY / stripe)] {
        let stripes = Stripes::new(stripes, usize::from(k + m), column);
        cases.push(encode(effort, k, m, resident, &stripes));
        cases.push(decode(effort, k, m, resident, &stripes));
    }
    cases
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

fn encode(effort: Effort, k: u8, m: u8, resident: &'static str, stripes: &Stripes) -> Case {
    let (data, parity, length) = (usize::from(k), usize::from(m), stripes.length);
    let code = Code::new(k, m).expect("a scheme that exists");
    let tables = Tables::new(data, parity, &coefficients(&code));
    let ours = |turn: usize| {
        let columns = stripes.columns(turn);
        // SAFETY: the columns are apart and nothing else runs.
        let inputs: [&[u8]; 8] = std::array::from_fn(|j| unsafe { stripes.slice(columns[j.min(data - 1)]) });
        // SAFETY: as above; only the first m are used, which are apart.
        let mut outputs: [&mut [u8]; 2] =
            std::array::from_fn(|i| unsafe { stripes.slice_mut(columns[data + i.min(parity - 1)]) });
        code.encode(&inputs[..data], &mut outputs[..parity]);
    };
    let theirs = |turn: usize| {
        let (inputs, outputs) = stripes.columns(turn).split_at(data);
        // SAFETY: the columns are apart and as long as said.
        unsafe { tables.encode(length, inputs, outputs) };
    };
    // SAFETY: as above; page-aligned.
    let theirs_raid = |turn: usize| match m {
        1 => unsafe { isal::xor_gen(length, stripes.columns(turn)) },
        _ => unsafe { isal::pq_gen(length, stripes.columns(turn)) },
    };
    // P+Q has another Q (powers of 2), so that only its P is looked at.
    let check = |run: &dyn Fn(usize), columns: usize| {
        let parities = |turn| stripes.columns(turn)[data..data + columns].to_vec();
        run(0);
        parities(0).into_iter().map(|p| codec::crc32c(unsafe { stripes.slice(p) })).collect::<Vec<_>>()
    };
    let expected = check(&ours, parity);
    let right = [check(&theirs, parity) == expected, check(&theirs_raid, 1)[..] == expected[..1]];
    let mut contestants = [
        Contestant::new("codec", ours),
        Contestant::new("isal ec_encode_data", theirs),
        Contestant::new(if m == 1 { "isal xor_gen" } else { "isal pq_gen" }, theirs_raid),
    ];
    Case {
        work: format!("encode {k}+{m}"),
        column: length,
        resident,
        bytes: data * length,
        right: (1 + right.iter().filter(|&&r| r).count(), 3),
        outcomes: compare(effort, &mut contestants),
    }
}

/// Data column 0 is lost; it comes back from the other data columns and parity 0 if m = 1, and from parity 1 in its place
/// else (the general case: the first parity is a plain XOR). It is written where the last column is.
fn decode(effort: Effort, k: u8, m: u8, resident: &'static str, stripes: &Stripes) -> Case {
    let (data, length) = (usize::from(k), stripes.length);
    let code = Code::new(k, m).expect("a scheme that exists");
    let present: ColumnSet = (1..k).chain([k + m - 1]).collect();
    let decoder = code.decoder(present, &[0]).expect("k columns are there");
    let tables = Tables::new(data, 1, &decoding_row(&decoder, data));
    // The last parity is a source: the lost column's own place takes the result.
    let ours = |turn: usize| {
        let columns = stripes.columns(turn);
        let inputs: [&[u8]; 8] = std::array::from_fn(|j| {
            let column = decoder.sources().get(j).map_or(usize::from(k), |&c| usize::from(c));
            // SAFETY: the columns are apart and nothing else runs.
            unsafe { stripes.slice(columns[column]) }
        });
        // SAFETY: column 0 is not among the sources.
        decoder.apply(&inputs[..data], &mut [unsafe { stripes.slice_mut(columns[0]) }]);
    };
    let sources = |turn: usize| {
        let columns = stripes.columns(turn);
        let mut sources = [columns[0]; 9];
        for (slot, &column) in sources.iter_mut().zip(decoder.sources()) {
            *slot = columns[usize::from(column)];
        }
        sources[data] = columns[0];
        sources
    };
    let theirs = |turn: usize| {
        let sources = sources(turn);
        // SAFETY: the columns are apart and as long as said.
        unsafe { tables.encode(length, &sources[..data], &sources[data..=data]) };
    };
    let theirs_xor = |turn: usize| {
        // SAFETY: as above; page-aligned.
        unsafe { isal::xor_gen(length, &sources(turn)[..=data]) };
    };
    let check = |run: &dyn Fn(usize)| {
        run(0);
        // SAFETY: nothing else runs.
        codec::crc32c(unsafe { stripes.slice(stripes.columns(0)[0]) })
    };
    let expected = check(&ours);
    let mut right = usize::from(check(&theirs) == expected);
    let mut contestants = vec![Contestant::new("codec", ours), Contestant::new("isal ec_encode_data", theirs)];
    if m == 1 {
        right += usize::from(check(&theirs_xor) == expected);
        contestants.push(Contestant::new("isal xor_gen", theirs_xor));
    }
    Case {
        work: format!("decode 1 of {k}+{m}"),
        column: length,
        resident,
        bytes: data * length,
        right: (1 + right, contestants.len()),
        outcomes: compare(effort, &mut contestants),
    }
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
