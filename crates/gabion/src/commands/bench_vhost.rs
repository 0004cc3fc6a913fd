//! `gabion bench vhost`.

use anyhow::Result;
use bench::vhost::VhostOptions;

use super::bench_disks::{self, BenchSetup};
use crate::cli::{Global, VhostArgs};
use crate::failure::ExitReason;
use crate::output;

const SETUP: &str = "\
vhost: a load generator acts as the front end: it shares memory with the back end and polls the queues while they are
busy. Each written block holds its number, which is compared on read. Medians over the rounds; IOPS and latencies are
measured in the front end, 'cores' is the CPU time of the back end. 'ratio' is the first back end's IOPS divided by this one's.";

/// Runs the benchmark and prints its result.
///
/// # Errors
/// If a back end cannot be used, or wrong data was read.
pub(crate) fn run(global: &Global, arguments: &VhostArgs) -> Result<ExitReason> {
    let options = VhostOptions {
        socket: arguments.socket.clone(),
        against: arguments.against.clone(),
        disk: bench_disks::options(&arguments.disk, bench::vhost::table())?,
        disks: arguments.disks,
        shards: arguments.shards,
        on_reactors: arguments.on_reactors,
        indirect: arguments.indirect,
        proportion: arguments.cpu_time,
    };
    let setup = BenchSetup {
        text: SETUP,
        system: "back end",
        work: "measuring vhost-user disks",
        pool_drives: options.socket.is_none().then_some(&options.disk.drives),
    };
    bench_disks::run(
        global,
        &setup,
        |done| bench::vhost::run(&options, done),
        |report| if report.shares.is_empty() { String::new() } else { output::shares(&report.shares) },
        |report| &report.lines,
    )
}
