//! Tests of jobs over vhost-user: slices, verification, interruption.

use super::super::embedded::VhostPool;
use super::*;
use crate::disk_bench::PoolShape;
use crate::suite::Job;

const SIZE: u64 = 16 << 20;

fn start_pool() -> VhostPool {
    let shape = PoolShape {
        cores: vec![None],
        drives: crate::Drives::Memory,
        drive_bytes: 64 << 20,
        volume_bytes: SIZE,
        disks: 1,
        shards: None,
        poll: Duration::ZERO,
        io: reactor::Backend::Auto,
    };
    VhostPool::start(&shape).unwrap()
}

fn slice(on: &VhostPool, offset: u64, bytes: u64) -> Slice {
    Slice { target: Target::Vhost(on.disks[0].socket.clone()), offset, bytes }
}

fn job(block_bytes: u64, read_percent: u8, random: bool) -> Job {
    Job { read_percent, random, ..Job::random_read("j", block_bytes, 4, 2) }
}

fn run(job: &Job, slices: &[Slice], length: Length, stamped: bool) -> Result<LoadResult, VhostError> {
    run_load(&Load { job, slices, length, log: Some("log"), stamped }, &AtomicBool::new(false))
}

const SHORT: Length = Length::Seconds { ramp: 0.05, run: 0.2 };

/// Writes all slices, as a run does before it reads.
fn fill(slices: &[Slice]) {
    let job = Job { threads: 1, ..job(1 << 20, 0, false) };
    let ran = run(&job, slices, Length::Once, false).unwrap();
    for (both, slice) in ran.output.instances.iter().zip(slices) {
        assert_eq!(both.write.as_ref().unwrap().ios, slice.bytes >> 20, "once, from end to end");
        assert!(both.read.is_none());
    }
}

#[test]
fn instances_use_their_slices_and_verify_reads() {
    let (one, other) = (start_pool(), start_pool());
    // Two instances share a disk; the third has its own.
    let half = SIZE / 2;
    let slices = [slice(&one, 0, half), slice(&one, half, half), slice(&other, 0, SIZE)];
    fill(&slices);
    for (block_bytes, read_percent, random) in [(4096, 100, true), (4096, 50, true), (1 << 20, 100, false)] {
        let ran = run(&job(block_bytes, read_percent, random), &slices, SHORT, true).unwrap();
        assert_eq!(ran.output.instances.len(), 3);
        for both in &ran.output.instances {
            let read = both.read.as_ref().unwrap();
            assert!(read.iops > 0.0 && read.mean_us > 0.0);
            assert_eq!(read.latencies.count(), read.ios);
            assert_eq!(both.write.is_some(), read_percent < 100);
        }
        assert!(ran.output.version.contains("vhost-user"));
    }
    assert_eq!(disk(&one.disks[0].socket).unwrap().bytes, SIZE);
}

#[test]
fn whole_seconds_are_reported_separately() {
    let pool = start_pool();
    let slices = [slice(&pool, 0, SIZE)];
    let ran = run(&job(4096, 100, true), &slices, Length::Seconds { ramp: 0.0, run: 1.0 }, false).unwrap();
    let read = ran.output.merged().read.unwrap();
    assert_eq!(ran.seconds.len(), 1, "{:?}", ran.seconds);
    #[allow(clippy::cast_precision_loss)]
    let all = read.ios as f64;
    assert!(ran.seconds[0].at == 1.0 && ran.seconds[0].read <= all && ran.seconds[0].write == 0.0);
}

#[test]
fn wrong_contents_are_detected() {
    let pool = start_pool();
    let error = run(&job(4096, 100, true), &[slice(&pool, 0, SIZE)], SHORT, true).unwrap_err();
    assert!(error.to_string().contains("had wrong contents"), "{error}");
}

#[test]
fn loads_can_be_interrupted_and_invalid_ones_are_rejected() {
    let pool = start_pool();
    let slices = [slice(&pool, 0, SIZE)];
    let job_of = |depth, block_bytes| Job { depth, ..job(block_bytes, 100, true) };
    let long = Length::Seconds { ramp: 0.0, run: 3600.0 };
    let (deep, simple) = (job_of(2000, 4096), job_of(4, 4096));
    let load = Load { job: &simple, slices: &slices, length: long, log: None, stamped: false };
    let stopped = run_load(&load, &AtomicBool::new(true)).unwrap_err();
    assert!(matches!(stopped, VhostError::Interrupted), "{stopped}");
    let refused = |job: &Job, slices: &[Slice], says: &str| {
        let error = run(job, slices, SHORT, false).unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    };
    refused(&deep, &slices, "1024");
    refused(&job_of(1, 2 << 20), &slices, "1 MiB");
    refused(&simple, &[slice(&pool, 0, SIZE * 2)], "the load needs");
    let many: Vec<Slice> = (0..64).map(|_| slice(&pool, 0, 1 << 20)).collect();
    refused(&simple, &many, "128 are required");
    let nowhere = Slice { target: Target::Vhost("/nonexistent/x.sock".into()), offset: 0, bytes: SIZE };
    refused(&simple, &[nowhere], "/nonexistent/x.sock");
}
