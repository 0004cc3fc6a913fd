//! `bench codec`: checksums and parity on one core, from data that fits into the second-level
//! cache.

use std::time::{Duration, Instant};

use codec::{Code, crc32c};

use crate::sample::{Recorder, Sample, SampleLabel};

const CHECKSUM: &str = "crc32c";
const ENCODE: &str = "encode";
const DECODE: &str = "decode one column";

/// Bytes per column.
const COLUMN: usize = 64 << 10;

/// Runs every job whose name contains `only` for `seconds` and calls `done` with each result.
pub fn run(seconds: f64, only: &str, mut done: impl FnMut(&Sample)) -> Vec<Sample> {
    let length = Duration::from_secs_f64(seconds);
    let mut samples = Vec::new();
    let mut keep = |sample: Sample| {
        done(&sample);
        samples.push(sample);
    };
    if CHECKSUM.contains(only) {
        keep(checksum(length));
    }
    for scheme in ["4+1", "4+2", "8+2"] {
        if ENCODE.contains(only) {
            keep(encode(scheme, length));
        }
        if DECODE.contains(only) {
            keep(decode(scheme, length));
        }
    }
    samples
}

/// Calls `operation` until `length` has passed. `operation` returns the number of wrong results.
fn measure(label: &SampleLabel, length: Duration, mut operation: impl FnMut() -> u64) -> Sample {
    let mut recorder = Recorder::new();
    let start = Instant::now();
    let mut last = start;
    loop {
        recorder.wrong += operation();
        let now = Instant::now();
        recorder.record(u64::try_from((now - last).as_nanos()).unwrap_or(u64::MAX));
        last = now;
        if now - start >= length {
            return recorder.sample(label, (now - start).as_secs_f64());
        }
    }
}

fn column(seed: usize) -> Vec<u8> {
    (0..COLUMN).map(|at| u8::try_from((at * 31 + seed * 17) % 251).unwrap_or(0)).collect()
}

fn checksum(length: Duration) -> Sample {
    let block: Vec<u8> = column(1).into_iter().take(4096).collect();
    let right = crc32c(&block);
    let label = SampleLabel { op: CHECKSUM, scheme: "", block_bytes: 4096, queue_depth: 1 };
    measure(&label, length, || u64::from(crc32c(std::hint::black_box(&block)) != right))
}

fn code(scheme: &str) -> Code {
    let Ok(scheme) = scheme.parse::<format::Scheme>() else { panic!("'{scheme}' is a scheme") };
    Code::new(scheme.data(), scheme.parity()).unwrap_or_else(|error| panic!("{error}"))
}

fn encode(scheme: &'static str, length: Duration) -> Sample {
    let code = code(scheme);
    let data: Vec<Vec<u8>> = (0..usize::from(code.data_columns())).map(column).collect();
    let inputs: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
    let mut parity = vec![vec![0; COLUMN]; usize::from(code.parity_columns())];
    let bytes = (COLUMN * data.len()) as u64;
    let label = SampleLabel { op: ENCODE, scheme, block_bytes: bytes, queue_depth: 1 };
    measure(&label, length, || {
        let mut outputs: Vec<&mut [u8]> = parity.iter_mut().map(Vec::as_mut_slice).collect();
        code.encode(std::hint::black_box(&inputs), &mut outputs);
        0
    })
}

fn decode(scheme: &'static str, length: Duration) -> Sample {
    let code = code(scheme);
    let data: Vec<Vec<u8>> = (0..usize::from(code.data_columns())).map(column).collect();
    let mut parity = vec![vec![0; COLUMN]; usize::from(code.parity_columns())];
    {
        let inputs: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
        let mut outputs: Vec<&mut [u8]> = parity.iter_mut().map(Vec::as_mut_slice).collect();
        code.encode(&inputs, &mut outputs);
    }
    let columns: Vec<&[u8]> = data.iter().chain(&parity).map(Vec::as_slice).collect();
    let present = (1..code.columns()).collect();
    let decoder = code.decoder(present, &[0]).unwrap_or_else(|error| panic!("{error}"));
    let inputs: Vec<&[u8]> =
        decoder.sources().iter().filter_map(|at| columns.get(usize::from(*at)).copied()).collect();
    let mut lost = vec![0; COLUMN];
    let label = SampleLabel { op: DECODE, scheme, block_bytes: COLUMN as u64, queue_depth: 1 };
    let sample = measure(&label, length, || {
        decoder.apply(std::hint::black_box(&inputs), &mut [lost.as_mut_slice()]);
        0
    });
    let right = data.first().is_some_and(|first| *first == lost);
    Sample { wrong: u64::from(!right), ..sample }
}
