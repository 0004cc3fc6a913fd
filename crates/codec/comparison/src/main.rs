//! Compares codec with Intel's ISA-L on this machine, one core, in one process.
//!
//!     codec-comparison [--json] [--quick] [WORD]
//!
//! WORD keeps only the comparisons whose name contains it (`encode`, `decode 1 of 4+1`, `plan`,
//! `crc32c`, `is_zero`, `record`).

mod checksum;
mod isal;
mod measure;
mod memory;
mod parity;
mod record;
mod report;

use std::time::Duration;

use measure::Effort;

fn main() {
    let (mut json, mut rounds, mut only) = (false, 31, String::new());
    for argument in std::env::args().skip(1) {
        match argument.as_str() {
            "--json" => json = true,
            "--quick" => rounds = 7,
            word => only = word.to_owned(),
        }
    }
    let effort = Effort { rounds, slot: Duration::from_millis(4) };
    let named = |work: &str| work.contains(&only) || only.contains(work);
    let mut cases = Vec::new();
    for column in [4 << 10, 64 << 10, 256 << 10] {
        if named("encode") || named("decode") {
            cases.extend(parity::compare_scheme::<4, 1>(effort, column));
            cases.extend(parity::compare_scheme::<4, 2>(effort, column));
            cases.extend(parity::compare_scheme::<8, 2>(effort, column));
        }
    }
    if named("plan") {
        cases.extend(parity::compare_plans(effort));
    }
    if named("crc32c") {
        cases.extend(checksum::compare_crc(effort));
        cases.extend(checksum::compare_blocks(effort));
    }
    if named("is_zero") {
        cases.extend(checksum::compare_zero(effort));
    }
    if named("record") {
        cases.extend(record::compare_record::<4, 1, 1>(effort));
        cases.extend(record::compare_record::<4, 1, 16>(effort));
        cases.extend(record::compare_record::<4, 2, 16>(effort));
        cases.extend(record::compare_record::<8, 2, 16>(effort));
    }
    cases.retain(|case| case.work.contains(&only));
    if json { report::print_json(&cases) } else { report::print_table(&cases) }
}
