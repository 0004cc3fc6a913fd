//! Tests of the benchmark on a small pool.

use std::time::Duration;

use super::*;
use crate::disk_bench::testing::{self, assert_sound, job, jobs};
use crate::disk_bench::{MeasuredDisk, RunLength};
use crate::suite::Job;

fn options(jobs: Vec<Job>) -> NvmeOptions {
    NvmeOptions { connect: None, against: None, disk: testing::options(jobs) }
}

#[test]
fn a_pool_is_measured_and_verified_also_with_a_lost_drive() {
    let mut seen = Vec::new();
    let mut options = options(jobs());
    options.disk.degraded = true;
    let report = run(&options, |line| seen.push(line.clone())).unwrap();
    assert_eq!(report.lines, seen);
    report.lines.iter().for_each(assert_sound);
    let names: Vec<&str> = report.lines.iter().map(|line| line.job.as_str()).collect();
    assert_eq!(names, ["reads", "both", "long", "reads, one drive lost"]);
    // Of such short jobs, the kernel accounts the time of some only after their end.
    let cores: Vec<f64> = report.lines.iter().map(|line| line.median.cores.unwrap()).collect();
    assert!(cores.iter().any(|cores| *cores > 0.0), "{cores:?}");
}

#[test]
fn a_target_is_compared_and_overwritten_only_with_permission() {
    let system = NvmeSystem::embedded(&options(jobs())).unwrap();
    let address: NvmeAddress = system.address().to_string().parse().unwrap();
    let on = |jobs: Vec<Job>, overwrite: bool| NvmeOptions {
        connect: Some(address.clone()),
        against: Some(address.clone()),
        disk: DiskBenchOptions { overwrite, ..testing::options(jobs) },
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
        .measure(
            &job("reads", 4096, 100, 4, 1),
            RunLength::Time { warm_up: Duration::ZERO, length: Duration::from_millis(20) },
        )
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
    let disk = |change: fn(&mut DiskBenchOptions)| {
        let mut options = options(jobs());
        change(&mut options.disk);
        options
    };
    refused(disk(|disk| disk.size = 4096), "16 MiB");
    refused(disk(|disk| disk.core = Some(100_000)), "core 100000");
    let nowhere: NvmeAddress = "127.0.0.1:1/nqn.2014-08.org.example:none".parse().unwrap();
    refused(NvmeOptions { connect: Some(nowhere), ..disk(|disk| disk.overwrite = true) }, "127.0.0.1:1/nqn");
    for wrong in ["127.0.0.1:4420", "localhost/nqn", "127.0.0.1:4420/"] {
        assert!(wrong.parse::<NvmeAddress>().is_err(), "{wrong}");
    }
}

#[test]
fn the_reference_table_has_its_jobs() {
    assert_eq!(table().jobs.len(), 6);
}
