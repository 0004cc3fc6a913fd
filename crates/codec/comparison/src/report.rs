//! Output of the measurements: a table for people, JSON for programs.
//!
//! Owns both formats. Must not know how anything is measured.

use crate::measure::Measurement;

/// One comparison.
pub struct Comparison {
    /// Name of the work, for example `encode 8+2`.
    pub work: String,
    /// Bytes of a column.
    pub column: usize,
    /// Residence of the data: `cache` (the same stripe in every iteration), `memory` (more than the
    /// caches hold), or a cache level; `L3>L2` for source and destination.
    pub residence: String,
    /// Bytes per iteration, for the rate: the data of one iteration.
    pub bytes: usize,
    /// Candidates with the expected result / all candidates.
    pub correct: (usize, usize),
    /// The measurements; the first is the reference.
    pub measurements: Vec<Measurement>,
}

/// Prints a line for each candidate. GB/s are 10^9 bytes of data per second.
pub fn print_table(cases: &[Comparison]) {
    println!(
        "{:<18} {:>7} {:<13} {:<22} {:>11} {:>8} {:>7}  right",
        "work", "column", "in", "by", "ns", "GB/s", "ratio"
    );
    for case in cases {
        for measurement in &case.measurements {
            println!(
                "{:<18} {:>7} {:<13} {:<22} {:>11.1} {:>8.2} {:>7.3}  {}/{}",
                case.work,
                case.column,
                case.residence,
                measurement.name,
                measurement.nanoseconds,
                case.bytes as f64 / measurement.nanoseconds,
                measurement.ratio,
                case.correct.0,
                case.correct.1
            );
        }
    }
}

/// Prints an array with one object per candidate. No text in it needs escaping.
pub fn print_json(cases: &[Comparison]) {
    let lines: Vec<String> =
        cases.iter().flat_map(|case| case.measurements.iter().map(move |o| json(case, o))).collect();
    println!("[\n{}\n]", lines.join(",\n"));
}

fn json(case: &Comparison, measurement: &Measurement) -> String {
    format!(
        "{{\"work\":\"{}\",\"column_bytes\":{},\"resident\":\"{}\",\"by\":\"{}\",\"nanoseconds\":{:.2},\
         \"gigabytes_per_second\":{:.3},\"ratio\":{:.4},\"right\":{},\"contestants\":{}}}",
        case.work,
        case.column,
        case.residence,
        measurement.name,
        measurement.nanoseconds,
        case.bytes as f64 / measurement.nanoseconds,
        measurement.ratio,
        case.correct.0,
        case.correct.1
    )
}
