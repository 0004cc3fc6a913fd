//! Compares codec with Intel's ISA-L on this machine, one core, in one process.
//!
//!     codec-comparison [--json] [--quick] [WORD]
//!
//! WORD keeps only the comparisons whose name contains it (`encode`, `decode`, `crc`, `8+2`).

mod checksum;
mod isal;
mod measure;
mod memory;
mod parity;
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
    let mut cases = Vec::new();
    for (k, m) in [(4, 1), (4, 2), (8, 2)] {
        if only.is_empty() || format!("encode decode {k}+{m}").contains(&only) {
            for column in [4 << 10, 64 << 10, 256 << 10] {
                cases.extend(parity::compare_scheme(effort, k, m, column));
            }
        }
    }
    if "crc32c".contains(&only) {
        cases.extend(checksum::compare_crc(effort));
    }
    cases.retain(|case| case.work.contains(&only));
    if json { report::print_json(&cases) } else { report::print_table(&cases) }
}
