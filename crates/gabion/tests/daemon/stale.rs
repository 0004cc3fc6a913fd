//! Drives that hold something else than the pool left on them, by the real commands.

use std::fs::File;

use super::harness::{Daemon, Home, command, run, until};
use super::restart::{assert_everything_is_there, write_everywhere};

fn drive(home: &Home, index: usize) -> String {
    home.arg(&format!("drives/fast-{index}.drive"))
}

/// A pool of two drives, 1+1, on files.
fn pair(daemon: &Daemon<'_>, home: &Home) {
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

fn volumes(daemon: &Daemon<'_>) -> Vec<String> {
    let list = daemon.json(&["volume", "list", "fast"]);
    list.as_array().unwrap().iter().map(|volume| volume["name"].as_str().unwrap().to_owned()).collect()
}

/// A half of a pool that was left out while the other was used is not opened by itself, also by a daemon that was restarted.
#[test]
fn an_older_half_is_refused_until_that_is_accepted() {
    let home = Home::new();
    let daemon = home.start();
    pair(&daemon, &home);
    daemon.ok(&["volume", "create", "fast/old", "--size", "16M"]);
    daemon.ok(&["pool", "close", "fast", "--force"]);
    daemon.ok(&open_with(&[drive(&home, 0)], &["--degraded"]));
    daemon.ok(&["volume", "create", "fast/new", "--size", "16M"]);
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

/// An old copy of a drive is put back: the status says so until it is rebuilt, and then it can stand in for another.
#[test]
fn an_old_copy_of_a_drive_is_rebuilt() {
    let home = Home::new();
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
    assert_everything_is_there(&home, 9);
    // The log has the lost drive as an error.
    drop(daemon);
}

/// A copy of one drive in another's place is not used: without it, and with `--drives`, the pool opens.
#[test]
fn a_copy_of_a_drive_in_anothers_place_does_not_keep_the_pool_closed() {
    let home = Home::new();
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
    assert_everything_is_there(&home, 4);
    daemon.ok(&["pool", "close", "fast", "--force"]);
    let said = daemon.ok(&["pool", "open", "fast", "--degraded"]);
    assert!(said.contains("degraded"), "{said}");
    assert_everything_is_there(&home, 4);
    daemon.stop();
}

/// A drive file that was cut counts as missing, by `check` and in the status, with both sizes.
#[test]
fn a_drive_that_shrank_is_not_used() {
    let home = Home::new();
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
