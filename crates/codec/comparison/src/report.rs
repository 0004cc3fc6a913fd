//! Printing what was measured: a table for people, JSON for programs.
//!
//! Owns both shapes. Must not know how anything is measured.

use crate::measure::Outcome;

/// One comparison.
pub struct Case {
    /// Say `encode 8+2`.
    pub work: String,
    /// Bytes of a column.
    pub column: usize,
    /// Where the bytes lie: `cache` (one stripe again and again), `memory` (more than the caches hold), or more
    /// exactly; `L3>L2` from one place to another.
    pub resident: String,
    /// Bytes that the rate is reckoned with: the data of one turn.
    pub bytes: usize,
    /// Contestants whose result was bit for bit the expected one / contestants.
    pub right: (usize, usize),
    /// The first one is the reference.
    pub outcomes: Vec<Outcome>,
}

/// A line for each contestant. GB/s are 10^9 bytes of data a second.
pub fn print_table(cases: &[Case]) {
    println!(
        "{:<18} {:>7} {:<13} {:<22} {:>11} {:>8} {:>7}  right",
        "work", "column", "in", "by", "ns", "GB/s", "ratio"
    );
    for case in cases {
        for outcome in &case.outcomes {
            println!(
                "{:<18} {:>7} {:<13} {:<22} {:>11.1} {:>8.2} {:>7.3}  {}/{}",
                case.work,
                case.column,
                case.resident,
                outcome.name,
                outcome.nanoseconds,
                case.bytes as f64 / outcome.nanoseconds,
                outcome.ratio,
                case.right.0,
                case.right.1
            );
        }
    }
}

/// An array of one object a contestant. No text in it needs escaping.
pub fn print_json(cases: &[Case]) {
    let lines: Vec<String> =
        cases.iter().flat_map(|case| case.outcomes.iter().map(move |o| json(case, o))).collect();
    println!("[\n{}\n]", lines.join(",\n"));
}

fn json(case: &Case, outcome: &Outcome) -> String {
    format!(
        "{{\"work\":\"{}\",\"column_bytes\":{},\"resident\":\"{}\",\"by\":\"{}\",\"nanoseconds\":{:.2},\
         \"gigabytes_per_second\":{:.3},\"ratio\":{:.4},\"right\":{},\"contestants\":{}}}",
        case.work,
        case.column,
        case.resident,
        outcome.name,
        outcome.nanoseconds,
        case.bytes as f64 / outcome.nanoseconds,
        outcome.ratio,
        case.right.0,
        case.right.1
    )
}
