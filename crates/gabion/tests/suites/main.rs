//! Tests of `gabion bench` with suites: runs on files and on Gabion, interruption, kill, resume,
//! comparison, refusal.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "all of this is tests")]

mod harness;
mod kubernetes;
mod objects;
mod peers;
mod vms;

use std::path::PathBuf;

use rustix::process::Signal;
use serde_json::Value;

use harness::{BenchHome, alive, cut, json, leftovers, results, text};

#[test]
fn files_are_measured_alternately_and_overwritten_with_permission_only() {
    let Some(home) = BenchHome::new() else { return };
    let (left, right) = (home.file("left.img", 16 << 20), home.file("right.img", 16 << 20));
    let targets = [format!("left={left}"), format!("right={right}")];
    let run = ["run", &home.suite(), "--target", &targets[0], "--target", &targets[1], "--json"];
    let summary = json(&home.bench(&run));
    for target in ["left", "right"] {
        let results = results(&summary, target);
        assert!(results[0].1.as_ref().is_ok_and(|iops| *iops > 0.0), "{results:?}");
        assert!(results[1].1.as_ref().unwrap_err().contains("--overwrite"), "{results:?}");
        assert!(
            results[2].1.as_ref().unwrap_err().contains("does not support failing a drive"),
            "{results:?}"
        );
    }
    assert!(std::fs::read(&left).unwrap().iter().all(|byte| *byte == 1), "it was only to be read");
    let id = summary["run"].as_str().unwrap();
    let compared = json(&home.bench(&["compare", &format!("{id}:left"), &format!("{id}:right"), "--json"]));
    assert!(compared[0]["change"].is_f64(), "{compared}");
    let written = home.bench(&["report", id]);
    assert!(written.status.success(), "{}", text(&written.stderr));
    let files: Vec<String> = text(&written.stdout).lines().map(str::to_owned).collect();
    let endings: Vec<&str> = files.iter().filter_map(|file| Some(file.rsplit_once('.')?.1)).collect();
    assert_eq!(endings, ["html", "md", "csv", "json"]);
    let page = std::fs::read_to_string(&files[0]).unwrap();
    assert!(page.contains("<h2>Summary</h2>") && page.contains("left") && page.contains("</html>"));
    let report: Value = serde_json::from_slice(&std::fs::read(&files[3]).unwrap()).unwrap();
    assert_eq!(report["plan"]["id"], id);
    assert!(report["analysis"]["cases"][0]["bottleneck"]["what"].is_string());

    let run = [&run[..], &["--overwrite", "--repeats", "2", "--only", "write"]].concat();
    let summary = json(&home.bench(&run));
    assert_eq!(results(&summary, "left").len(), 2);
    assert!(results(&summary, "right").iter().all(|(_, iops)| iops.is_ok()), "{summary}");
    assert!(std::fs::read(&left).unwrap().iter().any(|byte| *byte != 1));
    // The job files and output of fio are stored.
    let fio = PathBuf::from(summary["folder"].as_str().unwrap()).join("fio");
    let names: Vec<String> = std::fs::read_dir(fio)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    for ending in [".fio", ".json", "_iops.log"] {
        assert!(names.iter().any(|name| name.ends_with(ending)), "{names:?}");
    }
}

#[test]
fn invalid_runs_are_refused_before_any_change() {
    let Some(home) = BenchHome::new() else { return };
    let suite = home.suite();
    for (arguments, expected) in [
        (vec!["run", "nosuch", "--target", "/x"], "unknown suite 'nosuch'"),
        (vec!["run", &suite], "nothing to measure"),
        (vec!["run", &suite, "--target", "a=/x", "--target", "a=/y"], "two targets have the name 'a'"),
        (vec!["run", &suite, "--target", "vhost:x"], "vhost:/SOCKET"),
        (vec!["run", &suite, "--lab", "nosuch", "--target", "gabion"], "lab 'nosuch' does not exist"),
        (vec!["resume", "nosuch"], "run 'nosuch' does not exist"),
        (vec!["compare", "a", "b"], "run 'a' does not exist"),
    ] {
        let output = home.bench(&arguments);
        let error = text(&output.stderr);
        assert!(!output.status.success() && error.contains(expected), "{arguments:?}: {error}");
    }
    assert!(home.runs().is_empty());
    // A missing file is detected at its turn, and is a result.
    let output = home.bench(&["run", &suite, "--target", "a=/nosuch", "--only", "read"]);
    assert!(text(&output.stderr).contains("measurements failed"), "{}", text(&output.stderr));
    assert_eq!(home.runs().len(), 1);
}

#[test]
fn a_gabion_target_is_torn_down_at_any_end_of_a_run() {
    let Some(home) = BenchHome::new() else { return };
    if !test_support::has_fio_nbd() {
        return;
    }
    let drives: Vec<String> =
        (0..3).map(|number| home.file(&format!("drive{number}.img"), 256 << 20)).collect();
    let mut arguments = vec!["run".to_owned(), home.suite(), "--overwrite".into(), "--drives".into()];
    arguments.extend(drives);
    // File drives; the raw drives are not tested here.
    arguments.extend(["--target", "gabion:fill=20"].map(str::to_owned));
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let run_path = home.path("runs").display().to_string();
    cut(&home, &arguments, "gabion read:", Signal::INT);
    let id = home.runs().pop().unwrap();
    let folder = home.path("runs").join(&id);
    assert_eq!((alive(&run_path), leftovers(&folder)), (0, 0), "an interrupted run stops all its processes");
    cut(&home, &["resume", &id], "gabion write:", Signal::KILL);
    assert!(leftovers(&folder) > 0, "a killed run leaves processes");
    let summary = json(&home.bench(&["resume", &id, "--json"]));
    assert_eq!((alive(&run_path), leftovers(&folder)), (0, 0), "the resumed run removes them");
    let gabion = results(&summary, "gabion");
    assert_eq!(gabion.len(), 3);
    assert!(gabion.iter().all(|(_, iops)| iops.as_ref().is_ok_and(|iops| *iops > 0.0)), "{summary}");
    assert!(results(&summary, "drives").iter().all(|(_, iops)| iops.is_ok()), "{summary}");
    let results = summary["results"].as_array().unwrap();
    let uses_cpu = |one: &Value| one["target"] == "gabion" && one["cpu"]["gabion"].as_f64() > Some(0.0);
    assert!(results.iter().any(uses_cpu), "{summary}");
}

#[test]
fn gabion_is_measured_over_vhost_user() {
    let Some(home) = BenchHome::new() else { return };
    let drives: Vec<String> =
        (0..3).map(|number| home.file(&format!("drive{number}.img"), 256 << 20)).collect();
    let suite = home.suite();
    let mut arguments = vec!["run", &suite, "--overwrite", "--json", "--only", "write", "--drives"];
    arguments.extend(drives.iter().map(String::as_str));
    arguments.extend(["--target", "gabion:fill=20,by=vhost"]);
    let summary = json(&home.bench(&arguments));
    let gabion = results(&summary, "gabion");
    assert!(gabion.iter().all(|(_, iops)| iops.as_ref().is_ok_and(|iops| *iops > 0.0)), "{summary}");
    let line = summary["results"].as_array().unwrap().iter().find(|one| one["target"] == "gabion").unwrap();
    assert!(line["cpu"]["load"].as_f64().unwrap() > 0.0, "{line}");
}

#[test]
fn a_benchmark_erases_drives_only_with_permission() {
    let directory = tempfile::tempdir().unwrap();
    let path = |number: u32| directory.path().join(format!("{number}.img")).display().to_string();
    let paths: Vec<String> = (1..=5).map(path).collect();
    for path in &paths {
        std::fs::write(path, vec![1; 1 << 20]).unwrap();
    }
    for kind in ["engine", "vhost", "nvme"] {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_gabion"));
        let output = command.args(["bench", kind, "--drives", &paths.join(",")]).output().unwrap();
        let error = text(&output.stderr);
        assert!(!output.status.success() && error.contains("--overwrite permits it"), "{kind}: {error}");
        assert!(paths.iter().all(|path| error.contains(path.as_str())), "{kind}: {error}");
    }
    assert!(paths.iter().all(|path| std::fs::read(path).unwrap() == vec![1; 1 << 20]));
}
