//! Tests of the counter parsers and of observations.

use super::counters::{Cpu, parse_cpu, parse_drives, parse_network, parse_process};
use super::*;

#[test]
fn counters_are_parsed() {
    let cpu = parse_cpu("cpu  100 5 30 4000 77 6 7 9 0 0\ncpu0 1 2 3");
    assert_eq!(cpu, Cpu { busy: 148, interrupts: 13, steal: 9 });
    let drives = parse_drives("   7       3 loop3 10 1 80 4 20 2 160 9 0 55 13 0 0 0 0 0 0\n");
    let drive = drives["loop3"];
    assert_eq!((drive.reads, drive.read_bytes, drive.read_ms), (10, 40_960, 4));
    assert_eq!((drive.writes, drive.written_bytes, drive.write_ms, drive.busy_ms), (20, 81_920, 9, 55));
    let network = "Inter-|\n face |\n    lo: 9 9 0 0 0 0 0 0 9 9\n  eth0: 100 1 0 0 0 0 0 0 200 2 0\n  eth1: 1 1 0 0 0 0 0 0 2 2\n";
    assert_eq!(parse_network(network), [101, 202]);
    let process = parse_process("77 (a) b (c) S 5 1 1 0 -1 0 1 2 3 4 11 22 0 0 20 0 1 0 5").unwrap();
    assert_eq!((process.parent, process.name.as_str(), process.ticks), (5, "a) b (c", 33));
}

fn counters(busy: u64, ticks: &[(u32, u32, u64)], reads: u64) -> Counters {
    let process =
        |&(id, parent, ticks): &(u32, u32, u64)| (id, counters::Process { parent, name: "x".into(), ticks });
    let drive = Drive { reads, read_bytes: reads * 4096, read_ms: reads / 10, ..Drive::default() };
    Counters {
        cpu: Cpu { busy, interrupts: 0, steal: 0 },
        processes: ticks.iter().map(process).collect(),
        // Each process has two threads, of which the first one does three quarters of the work.
        threads: ticks
            .iter()
            .flat_map(|&(id, _, ticks)| [((id, id), ticks - ticks / 4), ((id, id + 1), ticks / 4)])
            .collect(),
        drives: [("loop3".to_owned(), drive)].into(),
        network: [0, 0],
    }
}

#[test]
fn processor_time_is_attributed_by_kind() {
    let hz = rustix::param::clock_ticks_per_second();
    let start = Instant::now();
    // The system (300) with a child (301), the load (310), a kernel thread (20), another program
    // (400).
    let tree = |system, child, load, kernel, other| {
        [(300, 1, system), (301, 300, child), (310, 1, load), (20, 2, kernel), (400, 1, other), (1, 0, 0)]
    };
    let first = (start, counters(0, &tree(0, 0, 0, 0, 0), 0));
    let middle = (start + Duration::from_secs(1), counters(hz, &tree(0, 0, 0, 0, 0), 100));
    let last =
        (start + Duration::from_secs(2), counters(4 * hz, &tree(hz, hz / 2, hz, hz / 5, hz / 10), 1000));
    let watch = Watch {
        processes: vec![("system".into(), 300), ("load".into(), 310)],
        drives: vec!["/dev/loop3".into()],
        here: "bench".into(),
    };
    let seen = summarise(&watch, &[&first, &middle, &last]);
    assert_eq!(seen.seconds, 2.0);
    assert_eq!((seen.cpu["system"], seen.cpu["load"], seen.cpu["kernel"]), (0.75, 0.5, 0.1));
    // The busiest thread of the system is that of its first process.
    assert_eq!(seen.busiest_thread, [("load".to_owned(), 0.375), ("system".to_owned(), 0.375)].into());
    // 1.35 of two busy processors are attributed; the rest belongs to processes that have exited.
    assert!((seen.cpu["others"] - 0.65).abs() < 1e-9, "{seen:?}");
    assert!(seen.disturbed[0].contains("other programs used 0.65"), "{seen:?}");
    let drive = &seen.drives[0];
    assert_eq!((drive.read_iops, drive.read_bps, drive.read_us), (500.0, 2_048_000.0, 100.0));
    assert_eq!(drive.timeline, [[100.0, 0.0], [900.0, 0.0]]);
}

#[test]
fn samples_after_the_end_are_dropped() {
    let start = Instant::now();
    let at = |second| start + Duration::from_secs(second);
    let looks = |last_of_load: u64| {
        let tree = |second: u64| {
            let load = (second <= last_of_load).then_some((310, 1, second));
            [(1, 0, 0)].into_iter().chain(load).collect::<Vec<_>>()
        };
        (0..6).map(|second| (at(second), counters(0, &tree(second), second))).collect::<Vec<_>>()
    };
    let watch = Watch { processes: vec![("load".into(), 310)], ..Watch::default() };
    let left = |last_of_load, ended| {
        let mut looks = looks(last_of_load);
        cut(&watch, &mut looks, ended);
        looks.len()
    };
    assert_eq!((left(9, None), left(4, None), left(9, Some(at(3)))), (6, 5, 4));
    assert_eq!((left(2, Some(at(3))), left(9, Some(at(9)))), (3, 6));
}

#[test]
fn this_machine_is_observed() {
    let observer = Observer::start(Watch { here: "bench".into(), ..Watch::default() });
    let begun = Instant::now();
    let mut sum = 0u64;
    while begun.elapsed() < Duration::from_millis(300) {
        sum = std::hint::black_box(sum.wrapping_add(1));
    }
    let seen = observer.finish(60.0, None);
    assert!(seen.seconds >= 0.1 && seen.cpus > 0, "{seen:?}");
    assert!(seen.cpu["bench"] > 0.0, "{seen:?}");
    assert!(seen.busiest_thread["bench"] > 0.0, "{seen:?}");
}
