//! Tests of job files and of the parsing of fio's output.

use super::*;
use crate::load::Second;
use crate::suite::Suite;

fn text(suite: &str, job: &str, target: Target, length: Length) -> String {
    let suite = Suite::find(suite).unwrap();
    let job = suite.jobs.iter().find(|candidate| candidate.name == job).unwrap();
    let slices = [Slice { target, offset: 4096, bytes: 1 << 30 }];
    Load { job, slices: &slices, length, log: Some("x"), stamped: false }.text()
}

#[test]
fn job_files_match_the_suite() {
    let device = || Target::File("/dev/loop0".into());
    let length = Length::Seconds { ramp: 1.0, run: 30.0 };
    let has = |text: &str, lines: &[&str]| {
        for line in lines {
            assert!(text.lines().any(|other| other == *line), "no '{line}' in\n{text}");
        }
    };
    let small = text("raid-vm", "4k random read", device(), length);
    has(
        &small,
        &["rw=randread", "bs=4096", "iodepth=32", "numjobs=6", "norandommap=1", "random_generator=lfsr"],
    );
    has(
        &small,
        &[
            "ioengine=io_uring",
            "direct=1",
            "allow_file_create=0",
            "fixedbufs=1",
            "registerfiles=1",
            "offset=4096",
            "size=1073741824",
        ],
    );
    has(&small, &["time_based=1", "ramp_time=1", "runtime=30", "write_iops_log=x", "per_job_logs=0"]);
    // A loop device does not support polled completions, and fio would fail.
    assert!(!small.contains("hipri"), "{small}");

    let mixed = text("raid-vm", "4k random 70:30", Target::Nbd("nbd+unix:///p/v?socket=/s".into()), length);
    has(&mixed, &["rw=randrw", "rwmixread=70", "ioengine=nbd", "uri=nbd+unix:///p/v?socket=/s"]);
    assert!(!mixed.contains("direct=1") && !mixed.contains("fixedbufs"), "{mixed}");

    let large = text("raid-vm", "1M write", device(), length);
    // Two threads, with offsets of a fifth of the size; both stay within the slice.
    has(
        &large,
        &["rw=write", "ioengine=libaio", "numjobs=2", "offset_increment=213909504", "size=859832320"],
    );
    assert_eq!(large.matches("size=").count(), 1, "{large}");

    let target = text("sweep", "64k random write", device(), length);
    has(
        &target,
        &[
            "latency_target=20000us",
            "latency_window=5000000us",
            "latency_percentile=99.99999",
            "refill_buffers=1",
        ],
    );
    let once = text("sweep", "64k random write", device(), Length::Once);
    assert!(!once.contains("time_based") && !once.contains("latency_target"), "{once}");
}

#[test]
fn a_missing_target_is_named_and_not_created() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("device");
    let suite = Suite::find("raid-vm").unwrap();
    let job = suite.jobs.iter().find(|job| job.name == "1M write").unwrap();
    let slices = [Slice { target: Target::File(path.clone()), offset: 0, bytes: 1 << 20 }];
    let load = Load { job, slices: &slices, length: Length::Once, log: None, stamped: false };
    let error = run(&load, folder.path(), "x", &AtomicBool::new(false), |_| {}).unwrap_err().to_string();
    assert!(error.contains(path.to_str().unwrap()) && error.contains("No such file"), "{error}");
    // It may disappear later, too.
    std::fs::write(folder.path().join("x.fio"), load.text()).unwrap();
    if test_support::has_program("fio") {
        let ran = Command::new("fio").arg("x.fio").current_dir(folder.path()).output().unwrap();
        assert!(!ran.status.success(), "{ran:?}");
    }
    assert!(!path.exists());
}

#[test]
fn colons_in_file_names_are_escaped() {
    let text = text("raid-vm", "1M read", Target::File("/dev/disk/by-path/pci-0000:01".into()), Length::Once);
    assert!(text.contains("filename=/dev/disk/by-path/pci-0000\\:01\n"), "{text}");
}

#[test]
fn output_after_warnings_is_parsed_per_instance() {
    let side = |ios: u64, nanos: u64| {
        // Some operations were in flight when the measurement began.
        let begun = ios / 2;
        format!(
            r#"{{"total_ios": {begun}, "runtime": 2000, "bw_bytes": 4096, "lat_ns": {{"mean": 3000.0,
            "bins": {{"{nanos}": {ios}}}}}}}"#
        )
    };
    let job = |ios, nanos, error| {
        format!(
            r#"{{"jobname": "0", "error": {error}, "read": {}, "write": {}}}"#,
            side(ios, nanos),
            r#"{"total_ios": 0, "runtime": 0, "bw_bytes": 0, "lat_ns": {"mean": 0}}"#
        )
    };
    let text =
        |jobs: &str| format!("note: a {{warning}}\n{{\"fio version\": \"fio-3.33\", \"jobs\": [{jobs}]}}");
    let output = output::parse("j", &text(&format!("{}, {}", job(300, 1000, 0), job(100, 9000, 0)))).unwrap();
    assert_eq!((output.version.as_str(), output.instances.len()), ("fio-3.33", 2));
    assert_eq!(output.instances[0].write, None);
    let read = output.merged().read.unwrap().figures();
    assert_eq!((read.iops, read.mean_us, read.p50_us, read.p99_us), (200.0, 3.0, 1.0, 9.0));
    let error = output::parse("j", &text(&job(1, 1, 5))).unwrap_err().to_string();
    assert!(error.contains("Input/output error"), "{error}");
    assert!(output::parse("j", "fio: no such device").is_err());
}

#[test]
fn lines_of_one_second_are_summed() {
    let log = "502, 10, 0, 0, 0\n1001, 10, 0, 0, 0\n1003, 5, 1, 0, 0\n2000, 7, 1, 0, 0\n2000, 3, 0, 0, 0\n1999, 1, 0, 0, 0\nbroken\n";
    let seconds = output::parse_log(log);
    let second = |at, read, write| Second { at, read, write };
    assert_eq!(seconds, [second(1.0, 20.0, 5.0), second(2.0, 4.0, 7.0)]);
    // A second without lines of all instances is dropped.
    let cut = format!("{log}3000, 9, 0, 0, 0\n");
    assert_eq!(output::parse_log(&cut), seconds);
}
