//! Other systems as targets: setup, measurement, teardown at any end of a run; temporary labs.

use std::path::Path;
use std::process::Command;

use rustix::process::Signal;
use serde_json::Value;

use crate::harness::{BenchHome, alive, cut, json, leftovers, results, text};

#[test]
fn drives_behind_other_servers_are_measured() {
    let Some(home) = BenchHome::new() else { return };
    if !test_support::has_programs(&["qemu-storage-daemon", "nbdkit"]) || !test_support::has_fio_nbd() {
        return;
    }
    let targets = ["vhost=qemu-storage-daemon:by=vhost", "nbd=qemu-storage-daemon", "nbdkit"];
    let drives: Vec<String> =
        (0..3).map(|number| home.file(&format!("drive{number}.img"), 16 << 20)).collect();
    let suite = home.suite();
    let mut arguments = vec!["run", &suite, "--only", "read", "--json", "--report", "--drives"];
    arguments.extend(drives.iter().map(String::as_str));
    targets.iter().for_each(|target| arguments.extend(["--target", target]));
    // Without --overwrite.
    let refused = home.bench(&arguments);
    assert!(text(&refused.stderr).contains("--overwrite"), "{}", text(&refused.stderr));
    arguments.push("--overwrite");
    let summary = json(&home.bench(&arguments));
    for target in targets {
        let name = target.split_once('=').map_or(target, |(name, _)| name);
        let results = results(&summary, name);
        assert!(results[0].1.as_ref().is_ok_and(|iops| *iops > 0.0), "{target}: {results:?}");
        assert!(
            results[1].1.as_ref().unwrap_err().contains("does not support failing a drive"),
            "{target}: {results:?}"
        );
        assert!(text(&refused.stderr).contains("failed"));
    }
    let folder = summary["folder"].as_str().unwrap();
    assert_eq!((alive(folder), leftovers(Path::new(folder))), (0, 0));
    assert!(Path::new(folder).join("report/report.html").is_file());
}

/// The temporary lab of a run, removed on drop.
struct TemporaryLab(String);

impl TemporaryLab {
    fn of(folder: &Path) -> Self {
        let plan: Value = serde_json::from_slice(&std::fs::read(folder.join("run.json")).unwrap()).unwrap();
        Self(plan["own_lab"]["name"].as_str().unwrap().to_owned())
    }

    fn is_there(&self) -> bool {
        let labs = Command::new(env!("CARGO_BIN_EXE_gabion")).args(["lab", "status"]).output().unwrap();
        text(&labs.stdout).contains(&self.0)
    }
}

impl Drop for TemporaryLab {
    fn drop(&mut self) {
        let _ = Command::new(env!("CARGO_BIN_EXE_gabion")).args(["lab", "down", &self.0]).output();
    }
}

fn mounts(word: &str) -> usize {
    std::fs::read_to_string("/proc/self/mountinfo")
        .unwrap()
        .lines()
        .filter(|line| line.contains(word))
        .count()
}

#[test]
fn a_run_removes_its_temporary_lab_and_file_system() {
    let Some(home) = BenchHome::new() else { return };
    if !test_support::has_loop()
        || !test_support::has_program("mkfs.btrfs")
        || !test_support::has("lab", Ok(()))
    {
        return;
    }
    let suite = home.suite();
    let text_of_suite =
        std::fs::read_to_string(&suite).unwrap().replace("instances", "drives = 3\ninstances");
    std::fs::write(&suite, text_of_suite).unwrap();
    // Wide limits, which are not tested here.
    let arguments = ["run", &suite, "--make-lab", "1", "--lab-size", "256M", "--target", "btrfs:fill=20"];
    let word = home.path("runs").display().to_string();
    let first = home.command(&arguments).args(["--only", "nothing"]).output().unwrap();
    assert!(text(&first.stderr).contains("no job name contains"), "{}", text(&first.stderr));
    let output =
        home.command(&["run", &suite, "--make-lab", "1", "--lab-size", "64M", "--only", "write"]).output();
    let output = output.unwrap();
    if !test_support::has("lab", output.status.success().then_some(()).ok_or_else(|| text(&output.stderr))) {
        return;
    }
    let id = home.runs().pop().unwrap();
    assert!(!TemporaryLab::of(&home.path("runs").join(id)).is_there(), "the lab went with its run");
    cut(&home, &arguments, "btrfs read:", Signal::INT);
    let id = home.runs().pop().unwrap();
    let folder = home.path("runs").join(&id);
    let lab = TemporaryLab::of(&folder);
    assert_eq!((lab.is_there(), mounts(&word), alive(&word)), (false, 0, 0), "an interrupted run, too");
    cut(&home, &["resume", &id], "  writing", Signal::KILL);
    assert_eq!((lab.is_there(), mounts(&word)), (true, 1), "a killed one cannot");
    let summary = json(&home.bench(&["resume", &id, "--json"]));
    assert_eq!(
        (lab.is_there(), mounts(&word), leftovers(&folder)),
        (false, 0, 0),
        "the resumed run removes them"
    );
    let btrfs = results(&summary, "btrfs");
    assert_eq!(btrfs.len(), 3);
    assert!(btrfs.iter().all(|(_, iops)| iops.as_ref().is_ok_and(|iops| *iops > 0.0)), "{summary}");
}
