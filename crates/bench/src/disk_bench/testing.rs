//! Small jobs on memory drives, for the tests of the benchmarks of disks.

use std::time::Duration;

use reactor::Backend;

use super::{DiskBenchOptions, Line};
use crate::drives::Drives;
use crate::suite::Job;

/// A job, which is random for blocks of 4 KiB.
pub(crate) fn job(name: &str, block_bytes: u64, read_percent: u8, depth: u32, threads: u32) -> Job {
    let random = block_bytes == 4096;
    Job { read_percent, random, ..Job::random_read(name, block_bytes, depth, threads) }
}

pub(crate) fn jobs() -> Vec<Job> {
    vec![job("reads", 4096, 100, 64, 1), job("both", 4096, 70, 8, 2), job("long", 1 << 20, 50, 4, 1)]
}

pub(crate) fn options(jobs: Vec<Job>) -> DiskBenchOptions {
    DiskBenchOptions {
        jobs,
        length: Duration::from_millis(20),
        warm_up: Duration::from_millis(5),
        requests: None,
        rounds: 2,
        size: 16 << 20,
        overwrite: false,
        core: None,
        pool_cores: Vec::new(),
        drives: Drives::Memory,
        drive_bytes: 64 << 20,
        io: Backend::Auto,
        degraded: false,
    }
}

/// Checks that a line has figures, and that no block was wrong.
pub(crate) fn assert_sound(line: &Line) {
    for round in line.rounds.iter().chain([&line.median]) {
        assert_eq!(round.wrong, 0, "{line:?}");
        assert!(round.iops > 0.0 && round.bytes_per_s > 0.0, "{line:?}");
        assert!(round.p50_us > 0.0 && round.p50_us <= round.p99_us && round.p99_us <= round.p9999_us);
    }
}
