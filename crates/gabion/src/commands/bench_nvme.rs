//! `gabion bench nvme`.

use anyhow::Result;
use bench::nvme::NvmeOptions;

use super::bench_disks::{self, BenchSetup};
use crate::cli::{Global, NvmeArgs};
use crate::failure::ExitReason;

const SETUP: &str = "\
NVMe/TCP: the load generator is an initiator that polls its sockets, without digests. Each written block holds its
number, which is compared on read. Medians over the rounds; IOPS and latencies are measured in the initiator, 'cores' is
the CPU time of the target, if it is in this process. 'ratio' is the first target's IOPS divided by this one's.";

/// Runs the benchmark and prints its result.
///
/// # Errors
/// If a target cannot be used, or wrong data was read.
pub(crate) fn run(global: &Global, arguments: &NvmeArgs) -> Result<ExitReason> {
    let options = NvmeOptions {
        connect: arguments.connect.clone(),
        against: arguments.against.clone(),
        disk: bench_disks::options(&arguments.disk, bench::nvme::table())?,
    };
    let setup = BenchSetup {
        text: SETUP,
        system: "target",
        work: "measuring NVMe/TCP targets",
        pool_drives: options.connect.is_none().then_some(&options.disk.drives),
    };
    bench_disks::run(
        global,
        &setup,
        |done| bench::nvme::run(&options, done),
        |_| String::new(),
        |report| &report.lines,
    )
}
