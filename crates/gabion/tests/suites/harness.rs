//! Test harness: directories of runs, commands and results.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

pub(crate) const SUITE: &str = "
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

pub(crate) struct BenchHome(tempfile::TempDir);

impl BenchHome {
    /// Creates a directory with direct I/O; returns `None` if tests that need fio are skipped.
    pub(crate) fn new() -> Option<Self> {
        if !test_support::has_program("fio") {
            return None;
        }
        let home = Self(tempfile::tempdir_in("/var/tmp").unwrap());
        std::fs::write(home.path("tiny.toml"), SUITE).unwrap();
        Some(home)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Creates a file with data.
    pub(crate) fn file(&self, name: &str, bytes: u64) -> String {
        let path = self.path(name);
        std::fs::write(&path, vec![1; usize::try_from(bytes).unwrap()]).unwrap();
        path.display().to_string()
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gabion"));
        command.arg("bench").args(arguments).arg("--results").arg(self.path("runs")).stdin(Stdio::null());
        command
    }

    pub(crate) fn bench(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    pub(crate) fn suite(&self) -> String {
        self.path("tiny.toml").display().to_string()
    }

    pub(crate) fn runs(&self) -> Vec<String> {
        text(&self.bench(&["runs", "-q"]).stdout).lines().map(str::to_owned).collect()
    }
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

pub(crate) fn json(output: &Output) -> Value {
    assert!(output.status.success(), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Returns the results of a target: case, and operations per second or the reason of a missing
/// result.
pub(crate) fn results(summary: &Value, target: &str) -> Vec<(String, Result<f64, String>)> {
    let of = |one: &Value| {
        let side = ["read", "write"].iter().find_map(|side| one[*side]["iops"].as_f64());
        let why = || one["missing"].to_string();
        (one["case"].as_str().unwrap().to_owned(), side.ok_or_else(why))
    };
    let lines = summary["results"].as_array().unwrap();
    lines.iter().filter(|one| one["target"] == target).map(of).collect()
}

/// Counts the processes with a text in their command line.
pub(crate) fn alive(word: &str) -> usize {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let lines = entries.filter_map(|entry| std::fs::read_to_string(entry.path().join("cmdline")).ok());
    lines.filter(|line| line.contains(word)).count()
}

/// Starts a run and ends its process after the first completed measurement.
pub(crate) fn cut(home: &BenchHome, arguments: &[&str], after: &str, signal: Signal) {
    let mut child = home.command(arguments).stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    let mut seen = Vec::new();
    let done = lines.by_ref().inspect(|line| seen.push(line.clone())).any(|line| line.starts_with(after));
    assert!(done, "{seen:#?}");
    kill_process(Pid::from_child(&child), signal).unwrap();
    // The process needs an open standard error.
    lines.for_each(drop);
    assert!(!child.wait().unwrap().success());
}

/// Counts the recorded processes of a run.
pub(crate) fn leftovers(folder: &Path) -> usize {
    let marks = [folder.to_owned(), folder.join("fio")]
        .map(|folder| format!("GABION_BENCH_FOLDER={}", folder.canonicalize().unwrap().display()));
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let environments = entries.filter_map(|entry| std::fs::read(entry.path().join("environ")).ok());
    let carries = |variable: &[u8]| marks.iter().any(|mark| mark.as_bytes() == variable);
    environments.filter(|all| all.split(|byte| *byte == 0).any(carries)).count()
}
