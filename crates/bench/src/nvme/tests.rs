//! Tests of the benchmark on a small pool.

use super::*;

fn job(name: &str, block_bytes: u64, read_percent: u8, depth: u32, threads: u32) -> Job {
    let random = block_bytes == 4096;
    Job { read_percent, random, ..Job::random_read(name, block_bytes, depth, threads) }
}

fn options(jobs: Vec<Job>) -> NvmeOptions {
    NvmeOptions {
        connect: None,
        against: None,
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

fn jobs() -> Vec<Job> {
    vec![job("reads", 4096, 100, 64, 1), job("both", 4096, 70, 8, 2), job("long", 1 << 20, 50, 4, 1)]
}

fn assert_sound(line: &Line) {
    for round in line.rounds.iter().chain([&line.median]) {
        assert_eq!(round.wrong, 0, "{line:?}");
        assert!(round.iops > 0.0 && round.bytes_per_s > 0.0, "{line:?}");
        assert!(round.p50_us > 0.0 && round.p50_us <= round.p99_us && round.p99_us <= round.p9999_us);
    }
}

#[test]
fn a_pool_is_measured_and_verified_also_with_a_lost_drive() {
    let mut seen = Vec::new();
    let report =
        run(&NvmeOptions { degraded: true, ..options(jobs()) }, |line| seen.push(line.clone())).unwrap();
    assert_eq!(report.lines, seen);
    report.lines.iter().for_each(assert_sound);
    let names: Vec<&str> = report.lines.iter().map(|line| line.job.as_str()).collect();
    assert_eq!(names, ["reads", "both", "long", "reads, one drive lost"]);
    assert!(report.lines.iter().all(|line| line.median.cores.is_some_and(|cores| cores > 0.0)));
}

#[test]
fn a_target_is_compared_and_overwritten_only_with_permission() {
    let system = NvmeSystem::embedded(&options(jobs())).unwrap();
    let address: NvmeAddress = system.address().to_string().parse().unwrap();
    let on = |jobs: Vec<Job>, overwrite: bool| NvmeOptions {
        connect: Some(address.clone()),
        against: Some(address.clone()),
        overwrite,
        ..options(jobs)
    };
    let error = run(&on(vec![job("writes", 4096, 99, 4, 1)], false), |_| ()).unwrap_err();
    assert!(error.to_string().contains("--overwrite"), "{error}");
    let report = run(&on(jobs(), true), |_| ()).unwrap();
    report.lines.iter().for_each(assert_sound);
    assert_eq!(report.lines.len(), 6);
    assert!(report.lines[1].first_is_times.is_some_and(|ratio| ratio > 0.0));
    // Without permission, reads are not verified.
    run(&on(vec![job("reads", 4096, 100, 4, 1)], false), |_| ()).unwrap();
}

#[test]
fn blocks_with_the_contents_of_others_are_counted() {
    let mut system = NvmeSystem::embedded(&options(jobs())).unwrap();
    // Without a fill, blocks read as zeros, which is the number of the first one only.
    let round = system
        .measure(&job("reads", 4096, 100, 4, 1), None, Duration::ZERO, Duration::from_millis(20))
        .unwrap();
    assert!(round.wrong > 0);
}

#[test]
fn invalid_options_are_rejected() {
    let refused = |options: NvmeOptions, says: &str| {
        let error = run(&options, |_| ()).unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    };
    refused(options(vec![job("odd", 6000, 100, 1, 1)]), "multiples of 4 KiB");
    refused(options(vec![job("deep", 4096, 100, 128, 1)]), "127 commands");
    refused(options(Vec::new()), "at least one job");
    refused(NvmeOptions { size: 4096, ..options(jobs()) }, "1 MiB");
    refused(NvmeOptions { core: Some(100_000), ..options(jobs()) }, "core 100000");
    let nowhere: NvmeAddress = "127.0.0.1:1/nqn.2014-08.org.example:none".parse().unwrap();
    refused(NvmeOptions { connect: Some(nowhere), overwrite: true, ..options(jobs()) }, "127.0.0.1:1/nqn");
    for wrong in ["127.0.0.1:4420", "localhost/nqn", "127.0.0.1:4420/"] {
        assert!(wrong.parse::<NvmeAddress>().is_err(), "{wrong}");
    }
}

#[test]
fn the_reference_table_has_its_jobs() {
    assert_eq!(table().jobs.len(), 6);
}
