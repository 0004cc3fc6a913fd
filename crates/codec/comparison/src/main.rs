//! Compares codec with Intel's ISA-L on this machine, on one core, in one process.
//!
//!     codec-comparison [--json] [--quick] [FILTER]
//!
//! FILTER selects the comparisons with a name that contains it (`encode`, `decode 1 of 4+1`,
//! `plan`, `crc32c`, `is_zero`, `record`).

mod checksum;
mod isal;
mod measure;
mod memory;
mod parity;
mod record;
mod report;

use std::time::Duration;

use measure::Sampling;

fn main() {
    let (mut json, mut rounds, mut filter) = (false, 31, String::new());
    for argument in std::env::args().skip(1) {
        match argument.as_str() {
            "--json" => json = true,
            "--quick" => rounds = 7,
            text => filter = text.to_owned(),
        }
    }
    let sampling = Sampling { rounds, slot: Duration::from_millis(4) };
    let is_selected = |work: &str| work.contains(&filter) || filter.contains(work);
    let mut cases = Vec::new();
    for column in [4 << 10, 64 << 10, 256 << 10] {
        if is_selected("encode") || is_selected("decode") {
            cases.extend(parity::compare_scheme::<4, 1>(sampling, column));
            cases.extend(parity::compare_scheme::<4, 2>(sampling, column));
            cases.extend(parity::compare_scheme::<8, 2>(sampling, column));
        }
    }
    if is_selected("plan") {
        cases.extend(parity::compare_plans(sampling));
    }
    if is_selected("crc32c") {
        cases.extend(checksum::compare_crc(sampling));
        cases.extend(checksum::compare_blocks(sampling));
    }
    if is_selected("is_zero") {
        cases.extend(checksum::compare_zero(sampling));
    }
    if is_selected("record") {
        cases.extend(record::compare_record::<4, 1, 1>(sampling));
        cases.extend(record::compare_record::<4, 1, 16>(sampling));
        cases.extend(record::compare_record::<4, 2, 16>(sampling));
        cases.extend(record::compare_record::<8, 2, 16>(sampling));
    }
    cases.retain(|case| case.work.contains(&filter));
    if json { report::print_json(&cases) } else { report::print_table(&cases) }
}
