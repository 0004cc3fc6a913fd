//! Tests of conclusions from constructed counters.

use std::collections::BTreeMap;

use super::bottleneck::find;
use super::growth::knee;
use super::*;
use crate::network::{HostLinks, NetworkPath};
use crate::observe::DriveWork;
use crate::result::{Direction, ReadWrite};
use crate::run::{Environment, TargetSpec};
use crate::suite::{LatencyTarget, Scaling, Suite};
use crate::system::{Guarantees, SystemInfo};

const LIMITS: DriveLimits =
    DriveLimits { read_iops: 1000, write_iops: 500, read_bps: 1 << 30, write_bps: 1 << 29 };

pub(crate) fn plan() -> RunPlan {
    let suite = Suite::raid_vm();
    let scaling = Scaling::default();
    RunPlan {
        id: "r".into(),
        scaled: suite.scaled(&scaling).unwrap(),
        suite,
        scaling,
        targets: vec![TargetSpec { name: "a".into(), spec: "a".into() }],
        drives: (0..10).map(|number| format!("/dev/d{number}").into()).collect(),
        limits: Some(LIMITS),
        lab: None,
        own_lab: None,
        absent: Vec::new(),
        overwrite: false,
        repeats: 1,
        command: Vec::new(),
        environment: Environment {
            started: 0,
            machine: String::new(),
            fio: String::new(),
            gabion: String::new(),
        },
    }
}

pub(crate) fn systems() -> Vec<SystemRecord> {
    let about = SystemInfo {
        name: "a".into(),
        what: String::new(),
        guarantees: Guarantees::default(),
        takes_drives: true,
        own_contents: false,
        degrades: true,
        layout: Some(Layout { drives: 10, data: 4, parity: 1, pools: 2 }),
        remark: None,
        network: None,
        is_remote: false,
    };
    vec![SystemRecord { target: "a".into(), about }]
}

/// Ten drives with these read rates, and the processor use by kind, of two processors.
pub(crate) fn seen(reads: [f64; 10], cpu: &[(&str, f64)]) -> Observation {
    let drive = |(number, reads): (usize, f64)| DriveWork {
        name: format!("d{number}"),
        read_iops: reads,
        read_bps: reads * 4096.0,
        read_us: 100.0,
        ..DriveWork::default()
    };
    Observation {
        seconds: 10.0,
        cpus: 2,
        cpu_busy: cpu.iter().map(|(_, used)| used).sum(),
        cpu: cpu.iter().map(|(kind, used)| ((*kind).to_owned(), *used)).collect::<BTreeMap<_, _>>(),
        drives: reads.into_iter().enumerate().map(drive).collect(),
        ..Observation::default()
    }
}

pub(crate) fn measured(
    target: &str,
    job: usize,
    iops: f64,
    micros: u64,
    observation: Observation,
) -> Measured {
    let job = Suite::raid_vm().jobs[job].clone();
    #[allow(clippy::cast_precision_loss)]
    let direction = Direction {
        iops,
        bytes_per_s: iops * job.block_bytes as f64,
        ios: 100,
        mean_us: micros as f64,
        latencies: [(micros * 1000, 100)].into_iter().collect(),
    };
    let all = if job.read_percent == 0 {
        ReadWrite { read: None, write: Some(direction) }
    } else {
        ReadWrite { read: Some(direction), write: None }
    };
    Measured {
        step: format!("1/{target}/{}", job.name),
        target: target.into(),
        repeat: 1,
        case: Case { name: job.name.clone(), job, instances: 16 },
        runner: String::new(),
        at: 0,
        all: Some(all),
        others: std::collections::BTreeMap::new(),
        instance_iops: Vec::new(),
        seconds: Vec::new(),
        steady: None,
        attempts: 1,
        observation,
        state: None,
        missing: None,
    }
}

#[test]
fn names_of_fields_in_earlier_runs_are_read() {
    let (systems, plan) = (systems(), plan());
    let earlier = |value: serde_json::Value, now: &str, before: &str| {
        let text = value.to_string();
        assert!(text.contains(now), "{text}");
        text.replace(now, before)
    };
    let stored = earlier(serde_json::to_value(&systems).unwrap(), "\"guarantees\":", "\"promises\":");
    assert_eq!(serde_json::from_str::<Vec<SystemRecord>>(&stored).unwrap(), systems);
    let stored = earlier(serde_json::to_value(&plan).unwrap(), "\"differences\":", "\"said\":");
    assert_eq!(serde_json::from_str::<RunPlan>(&stored).unwrap(), plan);
    let mut stored = serde_json::to_value(seen([1.0; 10], &[])).unwrap();
    assert!(stored.as_object_mut().unwrap().remove("busiest_thread").is_some());
    assert_eq!(serde_json::from_value::<Observation>(stored).unwrap(), seen([1.0; 10], &[]));
}

fn cause(observation: Observation) -> Bottleneck {
    let one = measured("a", 0, 5000.0, 100, observation);
    let (.., series) = series(std::slice::from_ref(&one), "a").remove(0);
    let limits = DriveLimitsInfo { limits: LIMITS, from: String::new() };
    find(&one.case, &series, &one.observation, Resources { limits: Some(&limits), ..Resources::default() })
}

#[test]
fn the_saturated_resource_is_named() {
    let quiet = [("gabion", 0.3), ("others", 0.01)];
    let mut uneven = [500.0; 10];
    uneven[3] = 990.0;
    let full = cause(seen([960.0; 10], &quiet));
    assert_eq!((full.cause, full.what.as_str()), (Cause::Drives, "the drives' reads per second"));
    assert!(full.evidence[0].contains("at 96 % of their reads per second"), "{:?}", full.evidence);
    let some = cause(seen(uneven, &quiet));
    assert_eq!(some.cause, Cause::SomeDrives);
    assert!(
        some.evidence[0].contains("1 of 10 at 90 % or more, the busiest (d3) at 99 %"),
        "{:?}",
        some.evidence
    );
    let busy = cause(seen([500.0; 10], &[("gabion", 1.2), ("load", 0.7)]));
    assert_eq!(busy.cause, Cause::Processors);
    assert!(busy.what.contains("'gabion'"), "{}", busy.what);
    assert_eq!(cause(seen([500.0; 10], &[("gabion", 0.5), ("others", 1.4)])).cause, Cause::Others);
    let with_thread = |busiest: f64| Observation {
        busiest_thread: [("gabion".to_owned(), busiest), ("bench".to_owned(), 1.0)].into(),
        ..seen([500.0; 10], &[("gabion", 0.99), ("load", 0.2)])
    };
    assert_eq!(cause(with_thread(0.97)).cause, Cause::OneThread);
    assert_eq!(cause(with_thread(0.5)).cause, Cause::Latency, "two threads use a processor together");
    let waits = cause(seen([500.0; 10], &quiet));
    assert_eq!(waits.cause, Cause::Latency);
    // 16 instances with 6 threads at queue depth 32.
    assert!(waits.what.contains("3072 operations in flight, 100 us each"), "{}", waits.what);
    assert!(waits.evidence.iter().any(|line| line.contains("the drives read 1.00")), "{:?}", waits.evidence);
}

#[test]
fn failed_drives_and_latency_targets_are_considered() {
    let quiet = [("gabion", 0.3)];
    let mut without = [960.0; 10];
    (without[0], without[5]) = (0.0, 0.0);
    let full = cause(seen(without, &quiet));
    assert_eq!(full.cause, Cause::Drives);
    assert!(full.evidence[0].contains("8 of 8"), "{:?}", full.evidence);
    let mut one = measured("a", 0, 5000.0, 100, seen([100.0; 10], &quiet));
    one.case.job.latency = Some(LatencyTarget { target_ms: 2.0, window_s: 1.0, percentile: 99.0 });
    let (.., series) = series(std::slice::from_ref(&one), "a").remove(0);
    let found = find(&one.case, &series, &one.observation, Resources::default());
    assert_eq!(found.cause, Cause::LatencyTarget);
}

#[test]
fn efficiency_uses_the_tightest_bound_and_losses_the_same_job() {
    let quiet = [("gabion", 0.4), ("load", 0.1), ("others", 0.5)];
    let results = [
        measured(RAW, 0, 9900.0, 100, seen([990.0; 10], &quiet)),
        measured("a", 0, 9600.0, 100, seen([960.0; 10], &quiet)),
        measured("a", 1, 5000.0, 100, seen([960.0; 10], &quiet)),
        measured("a", 5, 4800.0, 400, seen([960.0; 10], &quiet)),
    ];
    let analysis = analyse(&plan(), &systems(), &results);
    let share = |index: usize, bound: usize| {
        let efficiency = &analysis.cases[index].efficiency[bound];
        (efficiency.bound.name.clone(), (efficiency.share * 1000.0).round() / 1000.0)
    };
    assert_eq!(share(0, 0), ("drives' reads".into(), 0.99));
    assert_eq!(share(1, 0), ("drives' reads".into(), 0.96));
    // Half a processor for 9,600 operations per second: two processors give 38,400, and other
    // programs do not count.
    assert_eq!(share(1, 1), ("processors".into(), 0.25));
    assert!((analysis.cases[1].cpu_us.unwrap() - 0.5e6 / 9600.0).abs() < 1e-9);
    assert_eq!(share(2, 0), ("in place".into(), 2.0), "ten drives, 500 writes, two per write");
    let lost = &analysis.lost[0];
    assert_eq!((lost.rate, lost.p9995, lost.healthy.as_str()), (0.5, Some(4.0), "4k random read"));
    assert_eq!(analysis.doubts.len(), 1, "{:?}", analysis.doubts);
    assert!(analysis.doubts[0].starts_with("too short to detect"));
}

#[test]
fn the_network_of_a_system_on_other_hosts_is_a_bound() {
    let quiet = [("gabion", 0.4)];
    let mut systems = systems();
    let hosts =
        HostLinks { hosts: 4, bps: 10_240_000, data: 1, parity: 2, has_load: false, has_clients: false };
    systems[0].about.layout = None;
    systems[0].about.network = Some(NetworkPath { own_bps: Some(40_960_000), hosts: Some(hosts) });
    let with = |network: [f64; 2]| Observation { network, ..seen([0.0; 10], &quiet) };
    let results =
        [measured("a", 0, 9500.0, 100, with([39e6, 1e6])), measured("a", 1, 2500.0, 100, with([1e6, 11e6]))];
    let analysis = analyse(&plan(), &systems, &results);
    let share = |index: usize, bound: usize| {
        let efficiency = &analysis.cases[index].efficiency[bound];
        (efficiency.bound.name.clone(), (efficiency.share * 1000.0).round() / 1000.0)
    };
    assert_eq!(share(0, 0), ("network".into(), 0.95));
    assert_eq!(share(0, 1).0, "processors");
    let full = &analysis.cases[0].bottleneck;
    assert_eq!((full.cause, full.what.as_str()), (Cause::Network, "the network: the link of this host"));
    assert!(full.evidence.iter().any(|line| line.ends_with("95 % of the link of 0.041 GB/s")), "{full:?}");
    // Two copies of each write cross the links between the hosts, which are tighter.
    assert_eq!(share(1, 0), ("network between hosts".into(), 0.5));
    assert_eq!(share(1, 1), ("network".into(), 0.25));
    assert_eq!(analysis.cases[1].bottleneck.cause, Cause::Latency);
}

#[test]
fn a_split_operation_counts_once_in_the_efficiency() {
    // Each operation of 2 MiB is split into two requests of 1 MiB, as by vhost-user.
    let mut one = measured("a", 0, 1000.0, 100, seen([0.0; 10], &[]));
    one.case.job.block_bytes = 2 << 20;
    if let Some(direction) = one.all.as_mut().and_then(|all| all.read.as_mut()) {
        direction.bytes_per_s = 1000.0 * f64::from(1 << 20);
    }
    let analysis = analyse(&plan(), &systems(), &[one]);
    let first = &analysis.cases[0].efficiency[0];
    assert_eq!(first.bound.name, "drives' reads");
    // Ten drives read 1 GiB/s each, which is 5120 operations of 2 MiB.
    assert!((first.share - 500.0 / 5120.0).abs() < 1e-9, "{first:?}");
}

#[test]
fn hosts_without_observation_are_not_called_idle() {
    let bottleneck = |is_remote: bool, drives: bool| {
        let mut systems = systems();
        systems[0].about.is_remote = is_remote;
        let mut observation = seen([100.0; 10], &[("load", 0.4)]);
        if !drives {
            observation.drives.clear();
        }
        let results = [measured("a", 0, 1000.0, 100, observation)];
        let case = analyse(&plan(), &systems, &results).cases.remove(0);
        let processors = case.efficiency.iter().find(|one| one.bound.name == "processors").cloned();
        (case.bottleneck, processors.unwrap().bound.saturates)
    };
    let (remote, processors) = bottleneck(true, false);
    assert_eq!(remote.cause, Cause::Unobserved);
    let expected = "no observed resource is saturated, and the system's hosts are not observed";
    assert!(remote.what.ends_with(expected), "{}", remote.what);
    let unseen = "the processors and drives of the system's hosts are not observed";
    assert!(remote.evidence.iter().any(|line| line == unseen), "{remote:?}");
    assert_eq!(processors, "the machine's processors, with the load, without the system");
    let (here, processors) = bottleneck(false, true);
    assert!(here.what.ends_with("each; no resource is saturated"), "{}", here.what);
    assert_eq!(processors, "the machine's processors, including the load");
    let (here, _) = bottleneck(false, false);
    assert_eq!(here.cause, Cause::Latency);
    assert!(here.what.ends_with("the use of the drives is unknown"), "{}", here.what);
}

#[test]
fn without_a_lab_the_limits_are_the_drives_results() {
    let quiet = [("gabion", 0.4)];
    let mut plan = plan();
    plan.limits = None;
    let results = [
        measured(RAW, 0, 9000.0, 100, seen([900.0; 10], &quiet)),
        measured("a", 0, 4500.0, 100, seen([450.0; 10], &quiet)),
    ];
    let analysis = analyse(&plan, &systems(), &results);
    assert_eq!(analysis.limits.as_ref().unwrap().limits.read_iops, 900);
    assert!((analysis.cases[1].efficiency[0].share - 0.5).abs() < 1e-9);
    let none = analyse(&plan, &systems(), &results[1..]);
    assert!(
        none.limits.is_none() && none.cases[0].efficiency.iter().all(|one| one.bound.name == "processors")
    );
}

#[test]
fn the_knee_is_the_first_point_near_the_highest_rate() {
    let points = |rates: &[f64]| -> Vec<Point> {
        let point = |(load, rate): (u32, &f64)| Point { load, rate: *rate, mean_us: 0.0, p9995_us: 0.0 };
        (1..).zip(rates).map(point).collect()
    };
    assert_eq!(knee(&points(&[10.0, 50.0, 92.0, 100.0, 99.0])), Some(3));
    assert_eq!(knee(&points(&[10.0, 20.0, 40.0])), None, "it still grows");
    assert_eq!(knee(&points(&[0.0, 0.0])), None);
    let mut cases = Vec::new();
    for (instances, iops) in [(4, 400.0), (1, 100.0), (2, 390.0)] {
        let mut one = measured("a", 0, iops, 100, Observation::default());
        one.case.instances = instances;
        one.case.name = format!("4k random read, {instances}");
        cases.push(one);
    }
    let analysis = analyse(&plan(), &systems(), &cases);
    let [curve] = analysis.curves.as_slice() else { panic!("{:?}", analysis.curves) };
    let loads: Vec<u32> = curve.points.iter().map(|point| point.load).collect();
    assert_eq!((loads, curve.along, curve.knee), (vec![1, 2, 4], Along::Instances, Some(2)));
}
