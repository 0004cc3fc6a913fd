//! State and data after a restart, a clean one or a kill.

use serde_json::json;

use super::harness::{DaemonHome, until};
use super::nbd::{Client, pattern};

const AT: [u64; 4] = [0, 5 << 20, (37 << 20) + 512, (1 << 30) - (1 << 20)];

pub(crate) fn write_everywhere(home: &DaemonHome, seed: u64) {
    let mut client = Client::connect(&home.nbd_socket(), "fast/vm01").unwrap();
    for offset in AT {
        client.write(offset, &pattern(seed ^ offset, 1 << 18)).unwrap();
    }
    client.flush().unwrap();
}

#[track_caller]
pub(crate) fn verify_everything(home: &DaemonHome, seed: u64) {
    let mut client = Client::connect(&home.nbd_socket(), "fast/vm01").unwrap();
    for offset in AT {
        assert!(client.read(offset, 1 << 18).unwrap() == pattern(seed ^ offset, 1 << 18), "at {offset}");
    }
    assert_eq!(client.read(100 << 20, 4096).unwrap(), [0; 4096]);
}

#[test]
fn pools_volumes_and_exports_survive_a_restart() {
    let home = DaemonHome::new();
    let daemon = home.start();
    daemon.make_pool();
    daemon.ok(&["export", "create", "fast/vm01", "--nbd"]);
    let export = daemon.json(&["export", "list"]);
    write_everywhere(&home, 1);
    let log = daemon.stop();
    assert!(log.contains("pool closed") && log.contains("stopped"), "{log}");

    let daemon = home.start();
    assert_eq!(daemon.pool("fast")["opened"]["clean"], true);
    assert_eq!(daemon.json(&["export", "list"]), export);
    verify_everything(&home, 1);
    daemon.stop();
}

#[test]
fn flushed_data_survives_a_kill() {
    let home = DaemonHome::new();
    let daemon = home.start();
    daemon.make_pool();
    daemon.ok(&["export", "create", "fast/vm01", "--nbd"]);
    daemon.ok(&["volume", "create", "fast/other", "--size", "1T"]);
    let mut daemon = daemon;
    for round in 1..5 {
        write_everywhere(&home, round);
        daemon.kill();
        daemon = home.start();
        let pool = daemon.pool("fast");
        assert_eq!((&pool["health"], &pool["opened"]["clean"]), (&json!("healthy"), &json!(false)));
        verify_everything(&home, round);
        assert_eq!(daemon.ok(&["volume", "list", "-q"]), "fast/other\nfast/vm01\n");
    }
    daemon.stop();
}

#[test]
fn a_restart_completes_with_connected_clients() {
    let home = DaemonHome::new();
    let daemon = home.start();
    daemon.make_pool();
    daemon.ok(&["export", "create", "fast/vm01", "--nbd"]);
    let mut client = Client::connect(&home.nbd_socket(), "fast/vm01").unwrap();
    client.write(0, &[9; 4096]).unwrap();
    let log = daemon.stop();
    assert!(!log.contains("cut with requests in flight"), "{log}");
    assert!(client.read(0, 4096).is_err());
    let daemon = home.start();
    let mut client = Client::connect(&home.nbd_socket(), "fast/vm01").unwrap();
    assert_eq!(client.read(0, 4096).unwrap(), [9; 4096]);
    daemon.stop();
}

#[test]
fn a_pool_that_was_closed_stays_closed() {
    let home = DaemonHome::new();
    let daemon = home.start();
    daemon.make_pool();
    daemon.ok(&["pool", "close", "fast"]);
    daemon.stop();
    let daemon = home.start();
    assert_eq!(daemon.pool("fast")["state"], "closed");
    daemon.ok(&["pool", "open", "fast"]);
    daemon.stop();
    let daemon = home.start();
    assert_eq!(daemon.pool("fast")["state"], "open");
    daemon.stop();
}

#[test]
fn a_pool_with_a_missing_drive_opens_degraded() {
    let home = DaemonHome::new();
    let daemon = home.start();
    daemon.make_pool();
    daemon.ok(&["export", "create", "fast/vm01", "--nbd"]);
    write_everywhere(&home, 7);
    daemon.ok(&["pool", "close", "fast", "--force"]);
    let (drive, away) = (home.path("drives/fast-3.drive"), home.path("away"));
    std::fs::rename(&drive, &away).unwrap();

    // Without --degraded, an open by command is refused.
    let refusal = daemon.refused(&["pool", "open", "fast"]);
    assert!(refusal.contains("are missing: ") && refusal.contains("fast-3.drive"), "{refusal}");
    assert!(refusal.contains("--degraded"), "{refusal}");
    daemon.ok(&["pool", "open", "fast", "--degraded"]);
    verify_everything(&home, 7);
    // Mirrored segments are rebuilt on other drives; other segments are not.
    until("repair waits for a drive", || daemon.pool("fast")["health"] == "degraded");
    assert_eq!(daemon.pool("fast")["drives"][3]["state"], "missing");
    daemon.stop();

    // A returned drive is resynced.
    std::fs::rename(&away, &drive).unwrap();
    let daemon = home.start();
    assert!(daemon.pool("fast")["opened"]["returned"][0].as_str().unwrap().ends_with("fast-3.drive"));
    until("the drive is complete", || daemon.pool("fast")["drives"][3]["state"] == "online");
    assert_eq!(daemon.pool("fast")["health"], "healthy");
    daemon.ok(&["drive", "fail", "fast", "0", "--yes"]);
    verify_everything(&home, 7);
    // The failure of the drive is an error in the log.
    drop(daemon);
}

#[test]
fn the_daemon_waits_for_late_drives() {
    let home = DaemonHome::new();
    let daemon = home.start();
    daemon.make_pool();
    daemon.stop();
    let (drive, away) = (home.path("drives/fast-3.drive"), home.path("away"));
    std::fs::rename(&drive, &away).unwrap();
    let late = std::thread::scope(|scope| {
        let starting = scope.spawn(|| home.start_with(&["--drive-wait", "1min"]));
        let waits = || {
            let ran = home.gabion(&["pool", "status", "fast"]);
            ran.out.contains("being opened: waiting up to") && ran.out.contains("fast-3.drive")
        };
        until("the daemon waits", waits);
        std::fs::rename(&away, &drive).unwrap();
        starting.join().unwrap()
    });
    assert_eq!(late.pool("fast")["health"], "healthy");
    late.stop();
}

#[test]
fn a_daemon_waiting_for_drives_can_be_stopped() {
    let home = DaemonHome::new();
    let daemon = home.start();
    daemon.make_pool();
    daemon.stop();
    std::fs::rename(home.path("drives/fast-3.drive"), home.path("away")).unwrap();
    let mut child =
        home.serve(&["--drive-wait", "1000min"]).stderr(std::process::Stdio::null()).spawn().unwrap();
    until("the daemon waits", || home.gabion(&["pool", "list", "--json"]).out.contains("being opened"));
    let sent = std::process::Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap();
    assert!(sent.success());
    assert_eq!(child.wait().unwrap().code(), Some(0));
    std::fs::rename(home.path("away"), home.path("drives/fast-3.drive")).unwrap();
    let daemon = home.start();
    assert_eq!(daemon.pool("fast")["health"], "healthy");
    daemon.stop();
}

#[test]
fn the_daemon_starts_despite_an_unavailable_pool() {
    let home = DaemonHome::new();
    let daemon = home.start();
    daemon.make_pool();
    daemon.ok(&["export", "create", "fast/vm01", "--nbd"]);
    daemon.stop();
    let moved = home.path("moved");
    std::fs::rename(home.path("drives"), &moved).unwrap();
    let daemon = home.start();
    let ran = home.gabion(&["pool", "status"]);
    assert_eq!(ran.code, Some(3), "{ran:?}");
    for expected in ["unavailable", "the pool is not open", "fast-0.drive", "action: "] {
        assert!(ran.out.contains(expected), "{expected}: {}", ran.out);
    }
    assert_eq!(daemon.json(&["export", "list"])[0]["state"], "waiting");
    let drive = moved.join("fast-0.drive");
    let drives: Vec<String> =
        (0..5).map(|index| moved.join(format!("fast-{index}.drive")).to_str().unwrap().into()).collect();
    assert!(drive.exists());
    let mut open = vec!["pool", "open", "fast", "--drives"];
    open.extend(drives.iter().map(String::as_str));
    daemon.ok(&open);
    assert_eq!(daemon.json(&["export", "list"])[0]["state"], "active");
    drop(daemon);
    // The new paths are stored.
    let daemon = home.start();
    assert_eq!(daemon.pool("fast")["health"], "healthy");
    daemon.stop();
}

#[test]
fn a_damaged_state_file_is_reported_and_kept() {
    let home = DaemonHome::new();
    home.start().stop();
    let file = home.path("state/state.json");
    std::fs::create_dir_all(home.path("state")).unwrap();
    std::fs::write(&file, "{\"version\": 1, \"po").unwrap();
    let ran = super::harness::run(&mut home.serve(&[]));
    assert_eq!(ran.code, Some(1));
    assert!(
        ran.err.contains("state.json is damaged") && ran.err.contains("hint: move the file away"),
        "{ran:?}"
    );
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "{\"version\": 1, \"po");
}
