//! `gabion bench` with suites, as a user meets it: runs on files and on Gabion, interrupted, killed, compared, refused.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "all of this is tests")]

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

const SUITE: &str = "
name = 'tiny'
title = 'two jobs'
source = 'this test'
scheme = '2+1'
instances = [2]
ramp_s = 1
run_s = 1
[[jobs]]
name = 'read'
block_bytes = 4096
read_percent = 100
random = true
depth = 4
threads = 1
[[jobs]]
name = 'write'
block_bytes = 65536
read_percent = 0
random = false
depth = 2
threads = 1
refill = true
[[jobs]]
name = 'read, one drive lost'
block_bytes = 4096
read_percent = 100
random = true
depth = 4
threads = 1
degraded = true
";

struct Home(tempfile::TempDir);

impl Home {
    /// A place on a file system with direct I/O; `None` without fio, which all of this takes.
    fn new() -> Option<Self> {
        let there = Command::new("fio").arg("--version").stdout(Stdio::null()).status();
        if !there.is_ok_and(|status| status.success()) {
            assert!(
                std::env::var_os("GABION_REQUIRE_CLIENTS").is_none(),
                "fio is missing: './run setup' installs it"
            );
            eprintln!("this test does not apply: there is no fio");
            return None;
        }
        let home = Self(tempfile::tempdir_in("/var/tmp").unwrap());
        std::fs::write(home.path("tiny.toml"), SUITE).unwrap();
        Some(home)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// A file with something in it.
    fn file(&self, name: &str, bytes: u64) -> String {
        let path = self.path(name);
        std::fs::write(&path, vec![1; usize::try_from(bytes).unwrap()]).unwrap();
        path.display().to_string()
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gabion"));
        command.arg("bench").args(arguments).arg("--results").arg(self.path("runs")).stdin(Stdio::null());
        command
    }

    fn bench(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    fn suite(&self) -> String {
        self.path("tiny.toml").display().to_string()
    }

    fn runs(&self) -> Vec<String> {
        text(&self.bench(&["runs", "-q"]).stdout).lines().map(str::to_owned).collect()
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn json(output: &Output) -> Value {
    assert!(output.status.success(), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The results of a target: case, and operations a second or why there are none.
fn results(summary: &Value, target: &str) -> Vec<(String, Result<f64, String>)> {
    let of = |one: &Value| {
        let side = ["read", "write"].iter().find_map(|side| one[*side]["iops"].as_f64());
        let why = || one["missing"].to_string();
        (one["case"].as_str().unwrap().to_owned(), side.ok_or_else(why))
    };
    let lines = summary["results"].as_array().unwrap();
    lines.iter().filter(|one| one["target"] == target).map(of).collect()
}

#[test]
fn files_are_measured_in_turns_and_only_overwritten_if_that_may_be() {
    let Some(home) = Home::new() else { return };
    let (left, right) = (home.file("left.img", 16 << 20), home.file("right.img", 16 << 20));
    let targets = [format!("left={left}"), format!("right={right}")];
    let run = ["run", &home.suite(), "--target", &targets[0], "--target", &targets[1], "--json"];
    let summary = json(&home.bench(&run));
    for target in ["left", "right"] {
        let results = results(&summary, target);
        assert!(results[0].1.as_ref().is_ok_and(|iops| *iops > 0.0), "{results:?}");
        assert!(results[1].1.as_ref().unwrap_err().contains("--overwrite"), "{results:?}");
        assert!(results[2].1.as_ref().unwrap_err().contains("cannot be failed"), "{results:?}");
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
    assert!(page.contains("<h2>In short</h2>") && page.contains("left") && page.contains("</html>"));
    let report: Value = serde_json::from_slice(&std::fs::read(&files[3]).unwrap()).unwrap();
    assert_eq!(report["plan"]["id"], id);
    assert!(report["analysis"]["cases"][0]["bottleneck"]["what"].is_string());

    let run = [&run[..], &["--overwrite", "--repeats", "2", "--only", "write"]].concat();
    let summary = json(&home.bench(&run));
    assert_eq!(results(&summary, "left").len(), 2);
    assert!(results(&summary, "right").iter().all(|(_, iops)| iops.is_ok()), "{summary}");
    assert!(std::fs::read(&left).unwrap().iter().any(|byte| *byte != 1));
    // Everything that fio was told and said is there.
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
fn what_makes_no_sense_is_refused_before_anything_is_done() {
    let Some(home) = Home::new() else { return };
    let suite = home.suite();
    for (arguments, says) in [
        (vec!["run", "nosuch", "--target", "/x"], "there is no suite 'nosuch'"),
        (vec!["run", &suite], "nothing to measure"),
        (vec!["run", &suite, "--target", "a=/x", "--target", "a=/y"], "two targets are called 'a'"),
        (vec!["run", &suite, "--target", "vhost-user:/x"], "gabion bench vhost"),
        (vec!["run", &suite, "--lab", "nosuch", "--target", "gabion"], "there is no lab 'nosuch'"),
        (vec!["resume", "nosuch"], "there is no run 'nosuch'"),
        (vec!["compare", "a", "b"], "there is no run 'a'"),
    ] {
        let output = home.bench(&arguments);
        let error = text(&output.stderr);
        assert!(!output.status.success() && error.contains(says), "{arguments:?}: {error}");
    }
    assert!(home.runs().is_empty());
    // A file that is not there is known only when its turn comes, and a result.
    let output = home.bench(&["run", &suite, "--target", "a=/nosuch", "--only", "read"]);
    assert!(text(&output.stderr).contains("measurements failed"), "{}", text(&output.stderr));
    assert_eq!(home.runs().len(), 1);
}

/// Processes whose command line has a word in it.
fn alive(word: &str) -> usize {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let lines = entries.filter_map(|entry| std::fs::read_to_string(entry.path().join("cmdline")).ok());
    lines.filter(|line| line.contains(word)).count()
}

/// Starts a run and ends its process when it has said that a measurement is done.
fn cut(home: &Home, arguments: &[&str], after: &str, signal: Signal) {
    let mut child = home.command(arguments).stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    let mut seen = Vec::new();
    let done = lines.by_ref().inspect(|line| seen.push(line.clone())).any(|line| line.starts_with(after));
    assert!(done, "{seen:#?}");
    kill_process(Pid::from_child(&child), signal).unwrap();
    // It must be able to go on talking.
    lines.for_each(drop);
    assert!(!child.wait().unwrap().success());
}

#[test]
fn gabion_is_set_up_measured_degraded_and_taken_down_however_a_run_ends() {
    let Some(home) = Home::new() else { return };
    if !text(&Command::new("fio").arg("--enghelp").output().unwrap().stdout).contains("nbd") {
        eprintln!("this test does not apply: fio has no NBD");
        return;
    }
    let drives: Vec<String> =
        (0..3).map(|number| home.file(&format!("drive{number}.img"), 256 << 20)).collect();
    let mut arguments = vec!["run".to_owned(), home.suite(), "--overwrite".into(), "--drives".into()];
    arguments.extend(drives);
    // Drives in files: the raw ones are not what this is about.
    arguments.extend(["--target", "gabion:fill=20"].map(str::to_owned));
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let word = home.path("runs").display().to_string();
    cut(&home, &arguments, "gabion read:", Signal::INT);
    let id = home.runs().pop().unwrap();
    let folder = home.path("runs").join(&id);
    assert_eq!((alive(&word), leftovers(&folder)), (0, 0), "an interrupted run takes everything down");
    cut(&home, &["resume", &id], "gabion write:", Signal::KILL);
    assert!(leftovers(&folder) > 0, "a killed one cannot");
    let summary = json(&home.bench(&["resume", &id, "--json"]));
    assert_eq!((alive(&word), leftovers(&folder)), (0, 0), "but whoever goes on does");
    let gabion = results(&summary, "gabion");
    assert_eq!(gabion.len(), 3);
    assert!(gabion.iter().all(|(_, iops)| iops.as_ref().is_ok_and(|iops| *iops > 0.0)), "{summary}");
    assert!(results(&summary, "drives").iter().all(|(_, iops)| iops.is_ok()), "{summary}");
    let line = summary["results"].as_array().unwrap().iter().find(|one| one["target"] == "gabion").unwrap();
    assert!(line["cpu"]["gabion"].as_f64().unwrap() > 0.0, "{line}");
}

/// Processes that a run has on file.
fn leftovers(folder: &Path) -> usize {
    let count = |folder: &Path| {
        let entries = std::fs::read_dir(folder).unwrap().flatten();
        entries.filter(|entry| entry.path().extension().is_some_and(|ending| ending == "process")).count()
    };
    count(folder) + count(&folder.join("fio"))
}
