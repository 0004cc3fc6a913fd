//! Tests of the order of a run, its folder after a crash, steady-state detection, and the slices of
//! instances.

use std::sync::Mutex;

use super::carry::{slices, use_all_drives};
use super::*;
use crate::load::Target;
use crate::system::{Guarantees, Requirements, System, TargetExtent};

fn plan(suite: &str, targets: &[&str], repeats: u32) -> RunPlan {
    let suite = Suite::find(suite).unwrap();
    let scaling = Scaling { seconds: Some(1.0), only: "4k".into(), ..Scaling::default() };
    RunPlan {
        id: new_id(&suite.name, 1_735_689_599),
        scaled: suite.scaled(&scaling).unwrap(),
        suite,
        scaling,
        targets: targets
            .iter()
            .map(|name| TargetSpec { name: (*name).into(), spec: String::new() })
            .collect(),
        drives: Vec::new(),
        limits: None,
        lab: None,
        own_lab: None,
        absent: Vec::new(),
        overwrite: true,
        repeats,
        command: Vec::new(),
        environment: Environment {
            started: 0,
            machine: String::new(),
            fio: String::new(),
            gabion: String::new(),
        },
    }
}

fn keys(plan: &RunPlan, takes: &[bool]) -> Vec<String> {
    steps(plan, takes).into_iter().map(|step| step.key).collect()
}

#[test]
fn drives_come_first_each_kind_of_operation_once() {
    let mut plan = plan("raid-vm", &["a"], 1);
    plan.drives = vec!["/dev/x".into(), "/dev/y".into()];
    let keys = keys(&plan, &[false]);
    let wanted = [
        "drives/4 KiB random read",
        "drives/4 KiB random write",
        "drives/4 KiB random 70:30",
        "1/a/4k random read",
        "1/a/4k random write",
        "1/a/4k random 70:30",
        "1/a/4k random read, one drive lost",
    ];
    assert_eq!(keys, wanted);
    let raw = raw_cases(&plan.scaled.cases, 2);
    assert!(raw.iter().all(|case| case.instances == 2 && !case.job.degraded && case.job.threads == 1));
}

#[test]
fn concurrent_systems_alternate_at_each_case() {
    let plan = plan("raid-vm", &["a", "b"], 2);
    let keys = keys(&plan, &[false, false]);
    assert_eq!(
        keys[..4],
        ["1/a/4k random read", "1/b/4k random read", "1/a/4k random write", "1/b/4k random write"]
    );
    assert_eq!(keys.len(), 16);
    assert!(keys[8..].iter().all(|key| key.starts_with("2/")));
}

#[test]
fn exclusive_systems_alternate_per_round() {
    let plan = plan("raid-vm", &["a", "b"], 2);
    let keys = keys(&plan, &[true, true]);
    let begins = |from: usize, what: &str| keys[from..from + 4].iter().all(|key| key.starts_with(what));
    assert!(begins(0, "1/a/") && begins(4, "1/b/") && begins(8, "2/b/") && begins(12, "2/a/"), "{keys:#?}");
}

#[test]
fn each_instance_has_its_own_slice() {
    let job = &Suite::raid_vm().jobs[0];
    let extent = |name: &str| TargetExtent { target: Target::File(name.into()), bytes: 10 << 20 };
    let of = |extents: &[TargetExtent], instances, bytes| {
        slices(extents, instances, bytes, job).map(|slices| {
            let show = |slice: &crate::load::Slice| {
                let Target::File(path) = &slice.target else { panic!() };
                (path.display().to_string(), slice.offset >> 20, slice.bytes >> 20)
            };
            slices.iter().map(show).collect::<Vec<_>>()
        })
    };
    let at = |name: &str, offset, bytes| (name.to_owned(), offset, bytes);
    let two = [extent("a"), extent("b")];
    assert_eq!(of(&two, 1, None).unwrap(), [at("a", 0, 10)]);
    assert_eq!(of(&two, 2, Some(4 << 20)).unwrap(), [at("a", 0, 4), at("b", 0, 4)]);
    assert_eq!(of(&two, 3, None).unwrap(), [at("a", 0, 5), at("b", 0, 10), at("a", 5, 5)]);
    assert_eq!(of(&[], 1, None), None);
    assert_eq!(of(&[extent("a")], 11, None), None);
}

#[test]
fn every_independent_drive_has_an_instance() {
    let case = plan("raid-vm", &["a"], 1).scaled.cases.remove(0);
    let layout = |data, parity| Some(crate::bounds::Layout { drives: 10, data, parity, pools: 2 });
    let of = |layout, places| {
        let (case, remark) = use_all_drives(&case, layout, places);
        (case.instances, remark)
    };
    assert_eq!(of(layout(1, 0), 20), (20, Some("20 instances instead of 16: one per drive".into())));
    assert_eq!(
        (of(layout(1, 0), 10), of(layout(4, 1), 20), of(None, 20)),
        ((16, None), (16, None), (16, None))
    );
}

#[test]
fn steady_state_follows_the_specification() {
    let seconds = |values: &[f64]| {
        let second = |(index, value): (usize, &f64)| {
            #[allow(clippy::cast_precision_loss)]
            Second { at: index as f64, read: value / 2.0, write: value / 2.0 }
        };
        values.iter().enumerate().map(second).collect::<Vec<_>>()
    };
    assert_eq!(steadiness(&seconds(&[100.0; 4])), None);
    assert_eq!(steadiness(&seconds(&[0.0; 10])), None);
    let flat = steadiness(&seconds(&[100.0, 101.0, 99.0, 100.0, 100.0, 100.0, 102.0])).unwrap();
    assert!(flat.steady, "{flat:?}");
    let falls = steadiness(&seconds(&[108.0, 104.0, 100.0, 96.0, 92.0])).unwrap();
    assert!(!falls.steady && falls.range < 0.2 && (falls.slope + 0.16).abs() < 1e-9, "{falls:?}");
    let jumps = steadiness(&seconds(&[100.0, 88.0, 112.0, 88.0, 112.0, 100.0])).unwrap();
    assert!(!jumps.steady && jumps.range > 0.2, "{jumps:?}");
}

fn measured(step: &str, missing: Option<Missing>) -> Measured {
    let case = plan("raid-vm", &["a"], 1).scaled.cases.remove(0);
    Measured {
        step: step.into(),
        target: "a".into(),
        repeat: 1,
        case,
        runner: "fio-3".into(),
        at: 1,
        all: None,
        others: std::collections::BTreeMap::new(),
        instance_iops: vec![1.5],
        seconds: Vec::new(),
        steady: None,
        attempts: 1,
        observation: Observation::default(),
        state: None,
        missing,
    }
}

#[test]
fn a_truncated_result_line_is_ignored() {
    let place = tempfile::tempdir().unwrap();
    let plan = plan("raid-vm", &["a"], 1);
    assert_eq!(plan.id, "raid-vm-20241231-235959");
    let store = Store::create(place.path(), &plan).unwrap();
    assert!(matches!(Store::create(place.path(), &plan), Err(RunError::File { .. })));
    store.add(&[measured("x", None)]).unwrap();
    let path = store.folder().join("results.jsonl");
    let mut text = std::fs::read_to_string(&path).unwrap();
    text.push_str("{\"step\": \"y\", \"tar");
    std::fs::write(&path, text).unwrap();
    assert_eq!(store.results().unwrap(), [measured("x", None)]);
    store.add(&[measured("z", Some(Missing::Failed("f".into())))]).unwrap();
    let results = store.results().unwrap();
    assert_eq!(results.iter().map(|one| one.step.as_str()).collect::<Vec<_>>(), ["x", "z"]);
    assert!(Store::is_done(&results, "x", 1));
    assert!(
        !Store::is_done(&results, "x", 2)
            && !Store::is_done(&results, "z", 1)
            && !Store::is_done(&results, "y", 1)
    );
    // A second attempt replaces the first.
    store.add(&[measured("z", None)]).unwrap();
    assert!(Store::is_done(&store.results().unwrap(), "z", 1));
    // The lock is free again, and the run is found.
    let mut other = Store::open(place.path(), &plan.id).unwrap();
    assert!(matches!(other.lock(&plan.id), Err(RunError::Busy(_))));
    assert_eq!(other.plan().unwrap(), plan);
    drop(store);
    other.lock(&plan.id).unwrap();
    assert!(matches!(Store::open(place.path(), "../x"), Err(RunError::Unknown { .. })));
    assert_eq!(Store::all(place.path()).unwrap(), [plan.id]);
}

/// A system on a file that records its calls.
struct RecordingSystem {
    file: PathBuf,
    notes: std::sync::Arc<Mutex<Vec<String>>>,
    fails: bool,
    takes_drives: bool,
}

impl RecordingSystem {
    fn note(&self, what: &str) {
        self.notes.lock().unwrap().push(what.into());
    }
}

impl System for RecordingSystem {
    fn info(&self) -> SystemInfo {
        SystemInfo {
            name: "a".into(),
            what: "a file".into(),
            guarantees: Guarantees::default(),
            takes_drives: self.takes_drives,
            own_contents: false,
            degrades: true,
            layout: None,
            remark: None,
            network: None,
            is_remote: false,
        }
    }

    fn set_up(&mut self, requirements: &Requirements<'_>) -> Result<(), SystemError> {
        self.note(&format!("up {} {:?}", requirements.instances, requirements.scheme));
        if self.fails { Err(SystemError::new("a", "trying", "no such luck")) } else { Ok(()) }
    }

    fn targets(&self) -> Vec<TargetExtent> {
        vec![TargetExtent { target: Target::File(self.file.clone()), bytes: 4 << 20 }]
    }

    fn processes(&self) -> Vec<u32> {
        Vec::new()
    }

    fn degrade(&mut self) -> Result<String, SystemError> {
        self.note("degrade");
        Ok("lost one".into())
    }

    fn tear_down(&mut self) -> Result<(), SystemError> {
        self.note("down");
        Ok(())
    }
}

/// Runs a plan on a file, or completes its earlier run.
fn go(place: &std::path::Path, plan: &RunPlan, fails: bool) -> (Vec<Measured>, Vec<String>) {
    go_with(place, plan, fails, true)
}

/// As [`go`], on a target that takes drives or does not.
fn go_with(
    place: &std::path::Path,
    plan: &RunPlan,
    fails: bool,
    takes_drives: bool,
) -> (Vec<Measured>, Vec<String>) {
    let file = place.join("file.img");
    std::fs::write(&file, vec![7; 4 << 20]).unwrap();
    let notes = std::sync::Arc::new(Mutex::new(Vec::new()));
    let system = RecordingSystem { file, notes: notes.clone(), fails, takes_drives };
    let mut store = match Store::open(place, &plan.id) {
        Ok(store) => store,
        Err(_) => Store::create(place, plan).unwrap(),
    };
    store.lock(&plan.id).unwrap();
    let stop = std::sync::atomic::AtomicBool::new(false);
    let mut tell = |_| {};
    let results = Run::new(store, plan.clone(), vec![Box::new(system)], &stop, &mut tell).go().unwrap();
    let notes = notes.lock().unwrap().clone();
    (results, notes)
}

/// Volumes of later cases with more instances are written as well: reads of unwritten blocks never
/// reach the drives.
#[test]
fn a_case_with_more_instances_fills_their_slices_first() {
    if !test_support::has_program("fio") {
        return;
    }
    let place = tempfile::tempdir_in("/var/tmp").unwrap();
    let mut plan = plan("raid-vm", &["a"], 1);
    plan.scaled.cases.retain(|case| case.job.read_percent == 100 && !case.job.degraded);
    plan.scaled.instance_bytes = Some(1 << 20);
    let mut case = plan.scaled.cases.swap_remove(0);
    (case.job.threads, case.job.fixed_buffers, case.job.prepare) = (1, false, None);
    plan.scaled.cases = [1, 3, 2]
        .map(|instances| Case { instances, name: format!("{instances} instances"), ..case.clone() })
        .into();
    let (results, _) = go(place.path(), &plan, false);
    assert!(results.iter().all(|one| one.missing.is_none()), "{results:?}");
    // Two instances use the beginnings of the halves.
    let bytes = std::fs::read(place.path().join("file.img")).unwrap();
    let is_old = |part: usize| bytes[part << 20..(part + 1) << 20].iter().all(|byte| *byte == 7);
    assert_eq!([0, 1, 2].map(is_old), [false; 3], "written for one and for three instances");
    let fills = std::fs::read_dir(place.path().join(&plan.id).join("fio")).unwrap();
    let fills = fills.filter(|file| {
        file.as_ref().unwrap().file_name().to_str().is_some_and(|name| name.ends_with("-fill.fio"))
    });
    assert_eq!(fills.count(), 2, "the last case uses written parts");
}

#[test]
fn a_target_is_torn_down_before_its_next_round() {
    if !test_support::has_program("fio") {
        return;
    }
    for takes_drives in [true, false] {
        let place = tempfile::tempdir_in("/var/tmp").unwrap();
        let mut plan = plan("raid-vm", &["a"], 2);
        plan.scaled.cases.retain(|case| case.job.read_percent == 100 && !case.job.degraded);
        for case in &mut plan.scaled.cases {
            (case.instances, case.job.threads, case.job.fixed_buffers) = (2, 1, false);
        }
        let (results, notes) = go_with(place.path(), &plan, false, takes_drives);
        assert!(results.iter().all(|one| one.missing.is_none()), "{results:?}");
        let up = "up 2 Some(\"4+1\")";
        assert_eq!(notes, [up, "down", up, "down"], "takes_drives: {takes_drives}");
    }
}

/// fio would otherwise meet a target that has gone.
#[test]
fn a_resumed_run_ends_fio_before_its_target() {
    let place = tempfile::tempdir_in("/var/tmp").unwrap();
    let mut plan = plan("raid-vm", &["a"], 1);
    plan.scaled.cases.clear();
    let store = Store::create(place.path(), &plan).unwrap();
    let start = |script: String, folder: &std::path::Path| {
        let mut command = std::process::Command::new("sh");
        command.arg("-c").arg(script).stdin(std::process::Stdio::null());
        crate::stale_processes::tag(&mut command, folder).unwrap();
        command.spawn().unwrap()
    };
    let (ready, order) = (place.path().join("ready"), place.path().join("order"));
    let noting = |name: &str| {
        let (order, ready) = (order.display(), ready.display());
        format!("trap 'echo {name} >>{order}; exit' TERM; echo >>{ready}; while :; do sleep 0.01; done")
    };
    let server = start(noting("target"), store.folder());
    let fio = start(noting("fio"), &store.fio_folder());
    while std::fs::read(&ready).map_or(0, |lines| lines.len()) < 2 {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    drop(store);
    let reapers = [server, fio].map(|mut child| std::thread::spawn(move || child.wait().unwrap()));
    go(place.path(), &plan, false);
    for reaper in reapers {
        reaper.join().unwrap();
    }
    assert_eq!(std::fs::read_to_string(&order).unwrap(), "fio\ntarget\n");
}

#[test]
fn a_run_completes_missing_steps_and_tears_down() {
    if !test_support::has_program("fio") {
        return;
    }
    let place = tempfile::tempdir_in("/var/tmp").unwrap();
    let mut plan = plan("raid-vm", &["a"], 1);
    plan.scaled.cases.retain(|case| case.job.read_percent == 100);
    for case in &mut plan.scaled.cases {
        (case.instances, case.job.threads, case.job.fixed_buffers) = (2, 1, false);
    }
    // A failed set-up is a result, and a resumed run tries again.
    let (results, notes) = go(place.path(), &plan, true);
    assert!(
        results
            .iter()
            .all(|one| matches!(&one.missing, Some(Missing::Failed(why)) if why.contains("no such luck")))
    );
    assert_eq!(notes, ["up 2 Some(\"4+1\")", "up 2 Some(\"4+1\")"]);
    let (results, notes) = go(place.path(), &plan, false);
    assert_eq!(notes, ["up 2 Some(\"4+1\")", "degrade", "down"]);
    assert_eq!(results.len(), 2);
    for one in &results {
        assert_eq!((one.missing.clone(), one.instance_iops.len()), (None, 2), "{}", one.step);
        let all = one.all.as_ref().unwrap();
        assert!(all.iops() > 0.0 && all.write.is_none());
        // fio also records operations that were in flight when the measurement began.
        let read = all.read.as_ref().unwrap();
        assert!((read.ios..=read.ios + 2 * 32).contains(&read.latencies.count()), "{}", one.step);
    }
    assert_eq!(results[1].state.as_deref(), Some("lost one"));
    // Nothing remains to be done.
    let (again, notes) = go(place.path(), &plan, false);
    assert_eq!((again, notes), (results, Vec::<String>::new()));
}
