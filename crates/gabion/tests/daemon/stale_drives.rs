//! Drives with other contents than the pool's last state.

use std::fs::File;

use super::harness::{Daemon, DaemonHome, command, run, until};
use super::restart::{verify_everything, write_everywhere};

fn drive(home: &DaemonHome, index: usize) -> String {
    home.arg(&format!("drives/fast-{index}.drive"))
}

/// Creates a 1+1 pool on two files.
fn pair(daemon: &Daemon<'_>, home: &DaemonHome) {
    let files = home.arg("drives");
    let create = [
        "pool",
        "create",
        "fast",
        "--scheme",
        "1+1",
        "--files",
        &files,
        "--file-size",
        "64M",
        "--count",
        "2",
    ];
    daemon.ok(&create);
}

fn open_with<'a>(drives: &'a [String], more: &[&'a str]) -> Vec<&'a str> {
    let mut open = vec!["pool", "open", "fast", "--drives"];
    open.extend(drives.iter().map(String::as_str));
    open.extend(more);
    open
}

/// Creates a 1+1 pool with the volume `old`, and then the volume `new` on its first drive alone.
fn pair_used_without_the_second(daemon: &Daemon<'_>, home: &DaemonHome) {
    pair(daemon, home);
    daemon.ok(&["volume", "create", "fast/old", "--size", "16M"]);
    daemon.ok(&["pool", "close", "fast", "--force"]);
    daemon.ok(&open_with(&[drive(home, 0)], &["--degraded"]));
    daemon.ok(&["volume", "create", "fast/new", "--size", "16M"]);
}

fn volumes(daemon: &Daemon<'_>) -> Vec<String> {
    let list = daemon.json(&["volume", "list", "fast"]);
    list.as_array().unwrap().iter().map(|volume| volume["name"].as_str().unwrap().to_owned()).collect()
}

/// A half of a mirror that missed writes is not opened automatically, even by a restarted daemon.
#[test]
fn a_stale_half_of_a_mirror_needs_accept_stale() {
    let home = DaemonHome::new();
    let daemon = home.start();
    pair_used_without_the_second(&daemon, &home);
    daemon.ok(&["pool", "close", "fast", "--force"]);
    daemon.stop();

    let daemon = home.start();
    let older = [drive(&home, 1)];
    let refusal = daemon.refused(&open_with(&older, &["--degraded"]));
    assert!(refusal.contains("old state of pool 'fast'") && refusal.contains("--accept-stale"), "{refusal}");
    daemon.ok(&open_with(&older, &["--degraded", "--accept-stale"]));
    assert_eq!(volumes(&daemon), ["old"]);
    daemon.ok(&["pool", "close", "fast", "--force"]);
    let refusal = daemon.refused(&open_with(&[drive(&home, 0), drive(&home, 1)], &[]));
    assert!(refusal.contains("used without the other"), "{refusal}");
    daemon.stop();
}

/// The half that missed writes appears at the path of the other one, as when device names change: a
/// daemon that starts opens nothing, and its status names the way out.
#[test]
fn a_stale_half_is_not_opened_at_the_start_of_the_daemon() {
    let home = DaemonHome::new();
    let swap = |from: &str, to: &str| std::fs::rename(from, to).unwrap();
    let unplugged = home.arg("unplugged");
    let daemon = home.start();
    pair_used_without_the_second(&daemon, &home);
    daemon.stop();
    swap(&drive(&home, 0), &unplugged);
    swap(&drive(&home, 1), &drive(&home, 0));

    let daemon = home.start();
    until("the automatic opening ends", || daemon.pool("fast")["error"].is_object());
    let shown = daemon.pool("fast");
    let problem = shown["problems"][0].to_string();
    assert!(shown["health"] == "failed" && problem.contains("--accept-stale"), "{shown}");
    daemon.refused(&["volume", "list", "fast"]);
    swap(&drive(&home, 0), &drive(&home, 1));
    swap(&unplugged, &drive(&home, 0));
    daemon.ok(&["pool", "open", "fast"]);
    assert_eq!(volumes(&daemon), ["new", "old"]);
    // The refused opening is an error in the log.
    drop(daemon);
}

/// A state that cannot be recorded in the state directory is a problem until it is recorded.
#[test]
fn a_state_that_is_not_recorded_is_a_problem() {
    let home = DaemonHome::new();
    let daemon = home.start();
    daemon.make_pool();
    let problems = || daemon.pool("fast")["problems"].to_string();
    std::fs::rename(home.path("state"), home.path("moved")).unwrap();
    daemon.ok(&["drive", "fail", "fast", "1", "--yes"]);
    until("the failure is a problem", || problems().contains("not recorded in the daemon's state directory"));
    std::fs::rename(home.path("moved"), home.path("state")).unwrap();
    daemon.ok(&["drive", "return", "fast", "1"]);
    until("the state is recorded", || !problems().contains("not recorded"));
    // The failures are errors in the log.
    drop(daemon);
}

/// An old copy of a drive is put back: the status reports it until it is rebuilt; then it can
/// replace the other drive.
#[test]
fn an_old_copy_of_a_drive_is_rebuilt() {
    let home = DaemonHome::new();
    let daemon = home.start();
    daemon.make_pool();
    daemon.ok(&["export", "create", "fast/vm01", "--nbd"]);
    daemon.ok(&["pool", "close", "fast", "--force"]);
    std::fs::copy(drive(&home, 0), home.path("copy")).unwrap();
    daemon.ok(&["pool", "open", "fast"]);
    write_everywhere(&home, 9);
    daemon.ok(&["pool", "close", "fast", "--force"]);
    std::fs::copy(home.path("copy"), drive(&home, 0)).unwrap();
    let checked = run(&mut command(&[
        "check",
        &drive(&home, 0),
        &drive(&home, 1),
        &drive(&home, 2),
        &drive(&home, 3),
        &drive(&home, 4),
    ]));
    assert!(checked.code == Some(3) && checked.out.contains("outdated copy"), "{checked:?}");
    let said = daemon.ok(&["pool", "open", "fast"]);
    assert!(said.contains("outdated and rebuilt"), "{said}");
    until("the drive is rebuilt", || daemon.pool("fast")["drives"][0]["state"] == "online");
    daemon.ok(&["drive", "fail", "fast", "1", "--yes"]);
    verify_everything(&home, 9);
    // The failed drive is an error in the log.
    drop(daemon);
}

/// A copy of one drive at the path of another is not used; the pool opens without it and with
/// `--drives`.
#[test]
fn a_copy_at_the_path_of_another_drive_does_not_block_the_open() {
    let home = DaemonHome::new();
    let daemon = home.start();
    daemon.make_pool();
    daemon.ok(&["export", "create", "fast/vm01", "--nbd"]);
    write_everywhere(&home, 4);
    daemon.ok(&["pool", "close", "fast", "--force"]);
    std::fs::copy(drive(&home, 1), drive(&home, 0)).unwrap();
    let refusal = daemon.refused(&["pool", "open", "fast"]);
    assert!(refusal.contains("one is a copy of the other") && refusal.contains("--degraded"), "{refusal}");
    let good: Vec<String> = (1..5).map(|index| drive(&home, index)).collect();
    daemon.ok(&open_with(&good, &["--degraded"]));
    verify_everything(&home, 4);
    daemon.ok(&["pool", "close", "fast", "--force"]);
    let said = daemon.ok(&["pool", "open", "fast", "--degraded"]);
    assert!(said.contains("degraded"), "{said}");
    verify_everything(&home, 4);
    daemon.stop();
}

/// A truncated drive file counts as missing in `check` and in the status, which print both sizes.
#[test]
fn a_shrunk_drive_is_not_used() {
    let home = DaemonHome::new();
    let daemon = home.start();
    daemon.make_pool();
    daemon.ok(&["pool", "close", "fast", "--force"]);
    File::options().write(true).open(drive(&home, 3)).unwrap().set_len((64 << 20) - 4096).unwrap();
    let drives: Vec<String> = (0..5).map(|index| drive(&home, index)).collect();
    let mut check = vec!["check"];
    check.extend(drives.iter().map(String::as_str));
    let checked = run(&mut command(&check));
    assert!(checked.code == Some(3) && checked.out.contains("smaller than when it joined"), "{checked:?}");
    daemon.ok(&["pool", "open", "fast"]);
    let pool = daemon.pool("fast");
    assert_eq!(pool["health"], "degraded");
    let action = pool["problems"][0]["action"].as_str().unwrap();
    assert!(action.contains("smaller") && action.contains("67104768 of 67108864 bytes"), "{action}");
    daemon.stop();
}
