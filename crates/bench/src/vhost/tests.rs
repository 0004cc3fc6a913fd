//! Tests of the benchmark on a small pool and on two back ends.

use super::embedded::VhostPool;
use std::time::Duration;

use super::*;
use crate::disk_bench::testing::{self, assert_sound, job, jobs};
use crate::disk_bench::{PoolShape, RunLength};
use crate::suite::Job;

fn options(jobs: Vec<Job>) -> VhostOptions {
    VhostOptions {
        socket: None,
        against: None,
        disk: testing::options(jobs),
        disks: 1,
        shards: None,
        on_reactors: false,
        indirect: false,
        proportion: false,
    }
}

/// Options with other common ones.
fn disk(change: impl FnOnce(&mut DiskBenchOptions)) -> VhostOptions {
    let mut options = options(jobs());
    change(&mut options.disk);
    options
}

fn shape() -> PoolShape {
    PoolShape { poll: Duration::ZERO, ..testing::options(Vec::new()).pool_shape(1, None) }
}

fn start_pool() -> VhostPool {
    VhostPool::start(&shape()).unwrap()
}

#[test]
fn the_reference_table_has_its_jobs() {
    let suite = table();
    assert_eq!(suite.jobs.len(), 8);
    assert!(suite.jobs.iter().all(|job| job.threads == 1));
}

#[test]
fn a_pool_on_memory_is_measured_and_verified() {
    use Backend::{Auto, Threads};
    for (indirect, on_reactors, io) in
        [(false, false, Auto), (true, false, Auto), (false, true, Auto), (false, true, Threads)]
    {
        let mut seen = Vec::new();
        let options = VhostOptions { indirect, on_reactors, ..disk(|disk| disk.io = io) };
        let report = run(&options, |line| seen.push(line.clone())).unwrap();
        assert_eq!(report.lines, seen);
        assert_eq!(report.lines.len(), 3);
        report.lines.iter().for_each(assert_sound);
        assert!(report.lines.iter().all(|line| line.rounds.len() == 2 && line.first_is_times.is_none()));
    }
}

#[test]
fn reads_are_repeated_with_a_lost_drive() {
    let report = run(&disk(|disk| disk.degraded = true), |_| ()).unwrap();
    report.lines.iter().for_each(assert_sound);
    let names: Vec<&str> = report.lines.iter().map(|line| line.job.as_str()).collect();
    assert_eq!(names, ["reads", "both", "long", "reads, one drive lost"]);
}

#[test]
fn disks_on_separate_shards_are_measured_together() {
    for on_reactors in [false, true] {
        // On whichever cores this machine runs them.
        let embedded = VhostOptions { disks: 2, shards: Some(1), on_reactors, ..options(jobs()) };
        let report = run(&embedded, |_| ()).unwrap();
        report.lines.iter().for_each(assert_sound);
        assert!(report.lines.iter().all(|line| line.system == "2 disks on memory drives"));
    }
    let shape = PoolShape { cores: vec![None; 3], disks: 4, shards: Some(1), ..shape() };
    let start_pool = VhostPool::start(&shape).unwrap();
    let homes = start_pool.disks.iter().map(|disk| {
        assert_eq!(disk.reactors.len(), 1);
        start_pool
            .pool
            .as_ref()
            .unwrap()
            .remotes()
            .iter()
            .position(|remote| remote.is_same(&disk.reactors[0]))
            .unwrap()
    });
    assert_eq!(homes.collect::<Vec<_>>(), [0, 1, 2, 0]);
}

#[test]
fn a_run_can_end_after_a_number_of_requests() {
    let length = Duration::from_secs(3600);
    let options = disk(|disk| (disk.requests, disk.length, disk.warm_up) = (Some(200), length, length));
    let report = run(&options, |_| {}).unwrap();
    for line in &report.lines {
        assert_sound(line);
        // Little's law: the rates are those of the measured time.
        let most = f64::from(line.depth * line.queues);
        assert!(line.rounds.iter().all(|round| round.iops * round.mean_us / 1e6 <= most), "{line:?}");
    }
}

/// Requests that wait for earlier ones are late, and their wait is a part of their latency.
#[test]
fn latencies_at_a_fixed_rate_count_from_the_due_time() {
    let mut back_end = back_end::BackEnd::embedded(&options(jobs())).unwrap();
    let length = RunLength::Time { warm_up: Duration::ZERO, length: Duration::from_millis(400) };
    let reads = job("reads", 4096, 100, 4, 1);
    // No device reaches this rate, so the first requests are due at once and the last ones too.
    let round = back_end.measure_at(&reads, Some(1e9), length).unwrap();
    assert!(round.mean_us > 100_000.0, "{round:?}");
}

#[test]
fn two_back_ends_are_compared_in_alternation() {
    let (one, other) = (start_pool(), start_pool());
    let mut options = VhostOptions {
        socket: Some(one.disks[0].socket.clone()),
        against: Some(other.disks[0].socket.clone()),
        proportion: true,
        ..options(vec![job("reads", 4096, 100, 16, 1)])
    };
    options.disk.overwrite = true;
    let report = run(&options, |_| ()).unwrap();
    report.lines.iter().for_each(assert_sound);
    let systems: Vec<&str> = report.lines.iter().map(|line| line.system.as_str()).collect();
    assert_eq!(systems, [one.disks[0].socket.to_str().unwrap(), other.disks[0].socket.to_str().unwrap()]);
    let ratio = report.lines[1].first_is_times.unwrap();
    let of = |round: usize| report.lines[0].rounds[round].iops / report.lines[1].rounds[round].iops;
    assert_eq!(ratio, (of(0) + of(1)) / 2.0);
    let loads: Vec<&str> = report.shares.iter().map(|share| share.load.as_str()).take(7).collect();
    assert_eq!(loads[0], "100 % of the peak");
    assert_eq!((loads[6], report.shares.len()), ("none", 14));
    let paced = |index: usize| report.shares[index].round.iops;
    assert!(paced(3) < paced(0) / 10.0, "the load is limited to a hundredth of the peak");
}

#[test]
fn a_disk_is_overwritten_only_with_permission() {
    let back_end = start_pool();
    let reads = vec![job("reads", 4096, 100, 4, 1)];
    let on = |jobs: Vec<Job>, overwrite: bool| VhostOptions {
        socket: Some(back_end.disks[0].socket.clone()),
        disk: DiskBenchOptions { overwrite, ..testing::options(jobs) },
        ..options(Vec::new())
    };
    run(&on(reads.clone(), true), |_| ()).unwrap();
    let error = run(&on(vec![job("writes", 4096, 99, 4, 1)], false), |_| ()).unwrap_err();
    assert!(error.to_string().contains("--overwrite"), "{error}");
    // Reads do not change the disk: the stamps of the first run are intact.
    let report = run(&on(reads, false), |_| ()).unwrap();
    assert_eq!(report.lines[0].median.wrong, 0);
}

#[test]
fn invalid_options_are_rejected() {
    let refused = |options: VhostOptions, says: &str| {
        let error = run(&options, |_| ()).unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    };
    refused(options(vec![job("odd", 6000, 100, 1, 1)]), "multiples of 4 KiB");
    refused(options(vec![job("deep", 4096, 100, 400, 1)]), "1024 entries");
    refused(options(Vec::new()), "at least one job");
    refused(disk(|disk| disk.size = 1 << 20), "16 MiB");
    refused(disk(|disk| disk.core = Some(100_000)), "core 100000");
    let nowhere = Some(PathBuf::from("/nonexistent/disk.sock"));
    refused(
        VhostOptions { socket: nowhere.clone(), ..disk(|disk| disk.overwrite = true) },
        "/nonexistent/disk.sock",
    );
    refused(VhostOptions { disks: 0, ..options(jobs()) }, "disk");
    refused(VhostOptions { shards: Some(2), ..options(jobs()) }, "the pool has 1");
    refused(
        VhostOptions { on_reactors: true, against: nowhere, ..disk(|disk| disk.overwrite = true) },
        "memory drives only",
    );
}
