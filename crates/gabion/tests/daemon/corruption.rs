//! Flipped bytes on one drive: every read returns correct data or an error, and `check` names the
//! drive.

use std::os::unix::fs::FileExt;

use super::bit_flips::{flip_bits, open_direct};
use super::harness::{Daemon, DaemonHome, until};
use super::nbd::{Client, pattern};

/// The drive with flipped bytes; 4+1 tolerates one.
const DAMAGED_DRIVE: usize = 3;
const CHUNK: u64 = 1 << 20;
const CHUNKS: u64 = 48;

fn write_everything(home: &DaemonHome) {
    let mut client = Client::connect(&home.nbd_socket(), "fast/vm01").unwrap();
    for chunk in 0..CHUNKS {
        client.write(chunk * CHUNK, &pattern(chunk, CHUNK as usize)).unwrap();
    }
    // Also small writes, which are mirrored.
    for chunk in 0..CHUNKS {
        client.write(chunk * CHUNK, &pattern(chunk + 1000, 4096)).unwrap();
    }
    client.flush().unwrap();
}

#[track_caller]
fn verify_everything(home: &DaemonHome) {
    let mut client = Client::connect(&home.nbd_socket(), "fast/vm01").unwrap();
    for chunk in 0..CHUNKS {
        let mut expected = pattern(chunk, CHUNK as usize);
        expected[..4096].copy_from_slice(&pattern(chunk + 1000, 4096));
        assert!(client.read(chunk * CHUNK, CHUNK as usize).unwrap() == expected, "piece {chunk}");
    }
}

/// Flips `count` bytes of the drive: superblocks, data, parity, headers, map.
fn flip(home: &DaemonHome, seed: u64, count: u64) {
    flip_some(home, seed, count, 16);
}

/// Flips bytes outside of the superblocks.
fn flip_zones(home: &DaemonHome, seed: u64, count: u64) {
    flip_some(home, seed, count, u64::MAX);
}

/// Flips bytes; one in `superblock_interval` is in the superblocks.
fn flip_some(home: &DaemonHome, seed: u64, count: u64, superblock_interval: u64) {
    let path = home.path("drives").join(format!("fast-{DAMAGED_DRIVE}.drive"));
    let file = open_direct(&path);
    let size = file.metadata().unwrap().len();
    let mut state = seed | 1;
    for index in 0..count {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        // The other bytes are in the first half of the drive, which holds data.
        let in_superblocks = superblock_interval < u64::MAX && index % superblock_interval == 0;
        let at = if in_superblocks {
            (state >> 16) % (4 << 20)
        } else if superblock_interval < u64::MAX {
            (state >> 16) % (size / 2)
        } else {
            (4 << 20) + (state >> 16) % (size / 2)
        };
        flip_bits(&file, at, 1 << (state >> 13 & 7));
    }
    file.sync_all().unwrap();
}

fn create(daemon: &Daemon<'_>) {
    daemon.make_pool();
    daemon.ok(&["export", "create", "fast/vm01", "--nbd"]);
}

fn drives(home: &DaemonHome) -> Vec<String> {
    (0..5).map(|index| home.arg(&format!("drives/fast-{index}.drive"))).collect()
}

#[test]
fn a_pool_with_flipped_bytes_is_checked_and_readable() {
    let home = DaemonHome::new();
    let daemon = home.start();
    create(&daemon);
    write_everything(&home);
    daemon.stop();
    flip(&home, 77, 400);

    let mut check = vec!["check", "--json"];
    let drives = drives(&home);
    check.extend(drives.iter().map(String::as_str));
    let ran = home.gabion(&check);
    assert_eq!(ran.code, Some(3), "{ran:?}");
    let report: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    let findings = report["findings"].as_array().unwrap();
    assert!(findings.len() > 20, "{report}");
    for finding in findings {
        assert_eq!(finding["damage"], "repairable", "{finding}");
        // In a row with unallocated cells, the damaged drive may be unknown.
        assert!(finding["drive"].is_null() || finding["drive"] == DAMAGED_DRIVE, "{finding}");
    }
    assert!(findings.iter().any(|finding| finding["drive"] == DAMAGED_DRIVE), "{report}");

    let daemon = home.start();
    assert_eq!(daemon.pool("fast")["state"], "open");
    verify_everything(&home);
    daemon.stop();
}

#[test]
fn a_running_pool_returns_written_data_while_bytes_flip() {
    let home = DaemonHome::new();
    let daemon = home.start();
    create(&daemon);
    write_everything(&home);
    for round in 0..8 {
        flip(&home, 1000 + round, 50);
        verify_everything(&home);
    }
    // Damaged blocks that were read are rewritten; a restart finds all data.
    let errors = daemon.pool("fast")["drives"][DAMAGED_DRIVE]["read_errors"].as_u64().unwrap();
    assert!(errors > 0);
    daemon.kill();
    let daemon = home.start();
    verify_everything(&home);
    daemon.stop();
}

/// A pool with damage that waits for repair is not healthy, and remembers the damage.
#[test]
fn damage_that_waits_for_repair_is_a_problem() {
    let home = DaemonHome::new();
    // So many zones with damage would otherwise make the drive count as failing.
    let daemon = home.start_with(&["--retire-after", "0"]);
    create(&daemon);
    write_everything(&home);
    daemon.ok(&["pool", "rebuild", "fast", "--pause"]);
    flip_zones(&home, 5, 40);
    daemon.ok(&["pool", "scrub", "fast"]);
    let is_reported = |pool: &serde_json::Value| {
        pool["health"] == "degraded" && pool["problems"].to_string().contains("is not repaired yet")
    };
    until("the damage is reported", || is_reported(&daemon.pool("fast")));
    daemon.kill();
    // The new daemon repairs it, without another scrub: it continues the one that the kill
    // interrupted. A pool is healthy while no damage is known, also before the scrub ends.
    let daemon = home.start_with(&["--retire-after", "0"]);
    until("the scrub ends", || {
        let scrub = daemon.pool("fast")["scrub"].clone();
        scrub["current"].is_null() && !scrub["last"].is_null()
    });
    until("the damage is repaired", || daemon.pool("fast")["health"] == "healthy");
    verify_everything(&home);
    daemon.stop();
    let mut check = vec!["check"];
    let drives = drives(&home);
    check.extend(drives.iter().map(String::as_str));
    let ran = home.gabion(&check);
    assert_eq!(ran.code, Some(0), "{ran:?}");
}

#[test]
fn a_drive_with_checksum_errors_is_reported_and_drained() {
    let home = DaemonHome::new();
    let daemon = home.start_with(&["--retire-after", "4"]);
    create(&daemon);
    write_everything(&home);
    flip(&home, 4242, 400);
    verify_everything(&home);
    // With five drives for five columns, the drive stays in the pool.
    until("the drive counts as failing", || daemon.pool("fast")["health"] == "drive_failing");
    let drive = |daemon: &Daemon<'_>| daemon.pool("fast")["drives"][DAMAGED_DRIVE].clone();
    assert_eq!((&drive(&daemon)["state"], &drive(&daemon)["failing"]), (&"online".into(), &true.into()));
    let status = home.gabion(&["pool", "status", "fast"]);
    assert_eq!(status.code, Some(3), "{status:?}");
    assert!(status.out.contains("pool 'fast': drive failing"), "{}", status.out);
    assert!(status.out.contains("returned wrong data, the last just now"), "{}", status.out);
    assert!(status.out.contains("'gabion drive replace fast 3 --with DRIVE'"), "{}", status.out);
    let list = daemon.ok(&["drive", "list", "fast"]);
    assert!(list.contains("online, failing") && list.contains("0 unreadable, "), "{list}");
    let events = daemon.json(&["pool", "events", "fast"]).to_string();
    assert!(events.contains("drive_read_errors") && events.contains("drive_failing"), "{events}");
    let before = drive(&daemon)["checksum_errors"].as_u64().unwrap();
    daemon.kill();

    let daemon = home.start_with(&["--retire-after", "4"]);
    let wrong = drive(&daemon)["checksum_errors"].as_u64().unwrap();
    assert!(wrong > 0 && before > 0 && drive(&daemon)["failing"] == true, "{wrong} of {before}");
    daemon.ok(&["drive", "add", "fast", &home.file("another", 64 << 20)]);
    until("the drive is drained", || drive(&daemon)["state"] == "removed");
    until("the pool is healthy", || daemon.pool("fast")["health"] == "healthy");
    verify_everything(&home);
    daemon.stop();
}

#[test]
fn a_scrub_finds_and_repairs_unread_damage() {
    let home = DaemonHome::new();
    let daemon = home.start_with(&["--retire-after", "0"]);
    create(&daemon);
    write_everything(&home);
    let status = home.gabion(&["pool", "status", "fast"]).out;
    assert!(status.contains("scrub       none yet, every 30 days"), "{status}");
    let sound = daemon.ok(&["pool", "scrub", "fast", "--wait"]);
    assert!(sound.contains("nothing damaged"), "{sound}");

    // Repeated scrubs under load, without damage to superblocks, which a scrub does not read.
    let load = std::thread::scope(|scope| {
        let load = scope.spawn(|| (0..3).for_each(|_| verify_everything(&home)));
        for round in 0..3 {
            flip_zones(&home, 5000 + round, 60);
            daemon.ok(&["pool", "scrub", "fast", "--wait"]);
        }
        load.join()
    });
    load.unwrap();
    let last = daemon.json(&["pool", "scrub", "fast", "--wait"])["scrub"].clone();
    assert_eq!((&last["unrepaired"], &last["last"]["lost"]), (&0.into(), &0.into()), "{last}");
    let events = daemon.json(&["pool", "events", "fast", "--last", "500"]).to_string();
    assert!(events.contains("\"blocks_damaged\"") && events.contains("scrub_finished"), "{events}");

    assert!(
        daemon
            .ok(&["pool", "scrub", "fast", "--every", "7d", "--rate-limit", "64K"])
            .contains("every 7 days")
    );
    let started = daemon.ok(&["pool", "scrub", "fast"]);
    assert!(started.contains("started"), "{started}");
    assert!(daemon.ok(&["pool", "scrub", "fast", "--pause"]).contains("paused"));
    let refusal = daemon.refused(&["pool", "scrub", "fast", "--wait"]);
    assert!(refusal.contains("--resume"), "{refusal}");
    daemon.stop();
    // The scrub continues after the restart, and its interval is persistent.
    let daemon = home.start_with(&["--retire-after", "0"]);
    let scrub = || daemon.pool("fast")["scrub"].clone();
    assert_eq!(scrub()["every"], 7 * 86_400);
    until("the scrub has ended", || scrub()["current"].is_null());
    daemon.ok(&["pool", "scrub", "fast", "--rate-limit", "64K"]);
    daemon.ok(&["pool", "scrub", "fast"]);
    daemon.ok(&["pool", "scrub", "fast", "--cancel"]);
    assert!(scrub()["current"].is_null());
    verify_everything(&home);
    daemon.stop();

    let mut check = vec!["check"];
    let drives = drives(&home);
    check.extend(drives.iter().map(String::as_str));
    let ran = home.gabion(&check);
    assert_eq!(ran.code, Some(0), "{ran:?}");
}

#[test]
fn damage_beyond_the_scheme_is_a_read_error() {
    let home = DaemonHome::new();
    let daemon = home.start();
    create(&daemon);
    write_everything(&home);
    let mut client = Client::connect(&home.nbd_socket(), "fast/vm01").unwrap();
    // Two of five drives lose all data after their superblocks.
    for index in [1, 3] {
        let path = home.path("drives").join(format!("fast-{index}.drive"));
        let file = std::fs::File::options().write(true).open(path).unwrap();
        let zeros = vec![0x55; 1 << 20];
        for at in (4..60).map(|mib| mib << 20) {
            file.write_all_at(&zeros, at).unwrap();
        }
        file.sync_all().unwrap();
    }
    let mut failed = 0;
    for chunk in 0..CHUNKS {
        let mut expected = pattern(chunk, CHUNK as usize);
        expected[..4096].copy_from_slice(&pattern(chunk + 1000, 4096));
        match client.read(chunk * CHUNK, CHUNK as usize) {
            Ok(bytes) => assert!(bytes == expected, "piece {chunk} is wrong"),
            Err(5) => failed += 1,
            Err(error) => panic!("piece {chunk}: error {error}"),
        }
    }
    assert!(failed > 0);
    // Other reads and writes still succeed.
    client.write(100 << 20, &[7; 4096]).unwrap();
    assert_eq!(client.read(100 << 20, 4096).unwrap(), [7; 4096]);
    let log = daemon.log();
    assert!(log.contains("cannot be reconstructed"), "the log does not name the lost blocks: {log}");
}
