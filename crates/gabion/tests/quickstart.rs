//! Tests of `gabion quickstart`: complete, interrupted, and with existing files.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};

fn quickstart(directory: &Path, more: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gabion"));
    command
        .args(["quickstart", "--seconds", "1", "--drive-size", "256M", "--dir"])
        .arg(directory)
        .args(more)
        .stdin(Stdio::null());
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn run(command: &mut Command) -> Output {
    command.output().unwrap()
}

/// Every job has a result, the data is verified, and nothing is left.
#[test]
fn the_quickstart_needs_no_other_program_and_leaves_nothing() {
    let home = tempfile::tempdir_in("/var/tmp").unwrap();
    let directory = home.path().join("quick");
    let output = run(&mut quickstart(&directory, &["--built-in", "--json"]));
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let jobs = report["gabion"].as_array().unwrap();
    assert_eq!(jobs.len(), 7);
    for job in jobs {
        let sides = ["read", "write"].map(|side| job[side]["iops"].as_f64().unwrap_or(0.0));
        assert!(sides.iter().sum::<f64>() > 0.0, "{job}");
    }
    let objects = &report["objects"];
    for rate in ["put_bytes_per_s", "get_bytes_per_s"] {
        assert!(objects[rate].as_f64() > Some(0.0), "{objects}");
    }
    let said = text(&output.stderr);
    assert!(said.contains("every byte compared"), "{said}");
    assert_eq!(said.matches("all data verified").count(), 3, "{said}");
    assert!(said.contains("no damage"), "{said}");
    assert!(!directory.exists(), "{said}");
}

/// A kept run is found by the next run, served by the printed command, and removed with --fresh.
#[test]
fn a_kept_run_is_found_and_an_interrupted_one_leaves_nothing() {
    let home = tempfile::tempdir_in("/var/tmp").unwrap();
    let directory = home.path().join("quick");
    let output = run(&mut quickstart(&directory, &["--keep"]));
    assert!(output.status.success(), "{}", text(&output.stderr));
    let said = text(&output.stdout);
    assert!(said.contains("4k random read, one drive lost"), "{said}");
    assert!(said.contains("gabion serve --socket"), "{said}");
    assert!(directory.join("results/report.json").exists());
    for made in ["", "drives", "results"] {
        let mode = std::fs::metadata(directory.join(made)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700, "{made}");
    }

    let output = run(&mut quickstart(&directory, &[]));
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    assert!(said.contains("of an earlier run with --keep") && said.contains("--fresh"), "{said}");
    assert!(directory.exists());

    let mut child = quickstart(&directory, &["--fresh"]).stderr(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let mut interrupted = false;
    let mut said = String::new();
    for line in lines.map_while(Result::ok) {
        if line.starts_with("[4/") && !interrupted {
            interrupted = true;
            assert!(UnixStream::connect(directory.join("gabion.sock")).is_ok());
            let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
            kill_process(pid, Signal::INT).unwrap();
        }
        said += &format!("{line}\n");
    }
    assert_eq!(child.wait().unwrap().code(), Some(1), "{said}");
    assert!(
        said.contains("removed the files of an interrupted run") && said.contains("interrupted"),
        "{said}"
    );
    assert!(!directory.exists(), "{said}");
}

#[test]
fn a_directory_writable_by_others_is_refused() {
    let home = tempfile::tempdir().unwrap();
    let directory = home.path().join("shared");
    std::fs::create_dir(&directory).unwrap();
    std::fs::set_permissions(&directory, std::fs::Permissions::from_mode(0o777)).unwrap();
    let output = run(&mut quickstart(&directory, &[]));
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    assert!(said.contains("other users may write in it"), "{said}");
    assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 0);
}

#[test]
fn a_foreign_directory_is_kept() {
    let home = tempfile::tempdir().unwrap();
    std::fs::write(home.path().join("thesis.txt"), "of mine").unwrap();
    let output = run(&mut quickstart(home.path(), &[]));
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    assert!(said.contains("was not created by a quickstart"), "{said}");
    assert_eq!(std::fs::read(home.path().join("thesis.txt")).unwrap(), b"of mine");
}
