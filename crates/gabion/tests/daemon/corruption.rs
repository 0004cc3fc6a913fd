//! Bytes flipped on a drive behind the pool's back: every read is right or a clean error, and `check` names the drive.

use std::os::unix::fs::FileExt;

use super::harness::{Daemon, Home, until};
use super::nbd::{Client, pattern};

/// The drive whose bytes are flipped: one, as many as 4+1 bears.
const VICTIM: usize = 3;
const PIECE: u64 = 1 << 20;
const PIECES: u64 = 48;

fn write_everything(home: &Home) {
    let mut client = Client::connect(&home.nbd_socket(), "fast/vm01").unwrap();
    for piece in 0..PIECES {
        client.write(piece * PIECE, &pattern(piece, PIECE as usize)).unwrap();
    }
    // Small ones too, which are mirrored.
    for piece in 0..PIECES {
        client.write(piece * PIECE, &pattern(piece + 1000, 4096)).unwrap();
    }
    client.flush().unwrap();
}

#[track_caller]
fn everything_is_there(home: &Home) {
    let mut client = Client::connect(&home.nbd_socket(), "fast/vm01").unwrap();
    for piece in 0..PIECES {
        let mut right = pattern(piece, PIECE as usize);
        right[..4096].copy_from_slice(&pattern(piece + 1000, 4096));
        assert!(client.read(piece * PIECE, PIECE as usize).unwrap() == right, "piece {piece}");
    }
}

/// Flips `count` bytes anywhere on the victim: superblocks, data, parity, headers, map.
fn flip(home: &Home, seed: u64, count: u64) {
    flip_some(home, seed, count, 16);
}

/// The same, but for the superblocks.
fn flip_zones(home: &Home, seed: u64, count: u64) {
    flip_some(home, seed, count, u64::MAX);
}

/// One byte in `often` is among the superblocks.
fn flip_some(home: &Home, seed: u64, count: u64, often: u64) {
    let path = home.path("drives").join(format!("fast-{VICTIM}.drive"));
    let file = std::fs::File::options().read(true).write(true).open(path).unwrap();
    let size = file.metadata().unwrap().len();
    let mut state = seed | 1;
    for index in 0..count {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        // Some among the superblocks, the rest where there is data: the front of the drive.
        let among = often < u64::MAX && index % often == 0;
        let at = if among {
            (state >> 16) % (4 << 20)
        } else if often < u64::MAX {
            (state >> 16) % (size / 2)
        } else {
            (4 << 20) + (state >> 16) % (size / 2)
        };
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).unwrap();
        byte[0] ^= 1 << (state >> 13 & 7);
        file.write_all_at(&byte, at).unwrap();
    }
    file.sync_all().unwrap();
}

fn make(daemon: &Daemon<'_>) {
    daemon.make_pool();
    daemon.ok(&["export", "create", "fast/vm01", "--nbd"]);
}

fn drives(home: &Home) -> Vec<String> {
    (0..5).map(|index| home.arg(&format!("drives/fast-{index}.drive"))).collect()
}

#[test]
fn a_closed_pool_is_checked_and_read_in_spite_of_flipped_bytes() {
    let home = Home::new();
    let daemon = home.start();
    make(&daemon);
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
        // Where a row holds cells that nobody owns, any of its cells may be the wrong one.
        assert!(finding["drive"].is_null() || finding["drive"] == VICTIM, "{finding}");
    }
    assert!(findings.iter().any(|finding| finding["drive"] == VICTIM), "{report}");

    let daemon = home.start();
    assert_eq!(daemon.pool("fast")["state"], "open");
    everything_is_there(&home);
    daemon.stop();
}

#[test]
fn a_running_pool_serves_what_was_written_while_bytes_flip() {
    let home = Home::new();
    let daemon = home.start();
    make(&daemon);
    write_everything(&home);
    for round in 0..8 {
        flip(&home, 1000 + round, 50);
        everything_is_there(&home);
    }
    // What was read and found damaged was written elsewhere; a restart finds all of it.
    let errors = daemon.pool("fast")["drives"][VICTIM]["read_errors"].as_u64().unwrap();
    assert!(errors > 0);
    daemon.kill();
    let daemon = home.start();
    everything_is_there(&home);
    daemon.stop();
}

#[test]
fn a_drive_that_garbles_is_counted_shown_and_emptied_when_there_is_room() {
    let home = Home::new();
    let daemon = home.start_with(&["--retire-after", "4"]);
    make(&daemon);
    write_everything(&home);
    flip(&home, 4242, 400);
    everything_is_there(&home);
    // Five drives for five columns: it stays.
    until("the drive counts as failing", || daemon.pool("fast")["health"] == "drive_failing");
    let drive = |daemon: &Daemon<'_>| daemon.pool("fast")["drives"][VICTIM].clone();
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
    let counted = drive(&daemon)["checksum_errors"].as_u64().unwrap();
    daemon.kill();

    let daemon = home.start_with(&["--retire-after", "4"]);
    let wrong = drive(&daemon)["checksum_errors"].as_u64().unwrap();
    assert!(wrong > 0 && counted > 0 && drive(&daemon)["failing"] == true, "{wrong} of {counted}");
    daemon.ok(&["drive", "add", "fast", &home.file("another", 64 << 20)]);
    until("it is emptied", || drive(&daemon)["state"] == "removed");
    until("all is well", || daemon.pool("fast")["health"] == "healthy");
    everything_is_there(&home);
    daemon.stop();
}

#[test]
fn what_nobody_reads_is_found_and_healed_by_a_scrub() {
    let home = Home::new();
    let daemon = home.start_with(&["--retire-after", "0"]);
    make(&daemon);
    write_everything(&home);
    let status = home.gabion(&["pool", "status", "fast"]).out;
    assert!(status.contains("scrub       none yet, every 30 days"), "{status}");
    let sound = daemon.ok(&["pool", "scrub", "fast", "--wait"]);
    assert!(sound.contains("nothing damaged"), "{sound}");

    // Under load, again and again; superblocks are left alone, which no scrub looks at.
    let load = std::thread::scope(|scope| {
        let load = scope.spawn(|| (0..3).for_each(|_| everything_is_there(&home)));
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
    let begun = daemon.ok(&["pool", "scrub", "fast"]);
    assert!(begun.contains("started"), "{begun}");
    assert!(daemon.ok(&["pool", "scrub", "fast", "--pause"]).contains("paused"));
    let refusal = daemon.refused(&["pool", "scrub", "fast", "--wait"]);
    assert!(refusal.contains("--resume"), "{refusal}");
    daemon.stop();
    // It goes on, and how often is kept.
    let daemon = home.start_with(&["--retire-after", "0"]);
    let scrub = || daemon.pool("fast")["scrub"].clone();
    assert_eq!(scrub()["every"], 7 * 86_400);
    until("the scrub has ended", || scrub()["current"].is_null());
    daemon.ok(&["pool", "scrub", "fast", "--rate-limit", "64K"]);
    daemon.ok(&["pool", "scrub", "fast"]);
    daemon.ok(&["pool", "scrub", "fast", "--cancel"]);
    assert!(scrub()["current"].is_null());
    everything_is_there(&home);
    daemon.stop();

    let mut check = vec!["check"];
    let drives = drives(&home);
    check.extend(drives.iter().map(String::as_str));
    let ran = home.gabion(&check);
    assert_eq!(ran.code, Some(0), "{ran:?}");
}

#[test]
fn more_damage_than_the_scheme_bears_is_an_error_not_wrong_data() {
    let home = Home::new();
    let daemon = home.start();
    make(&daemon);
    write_everything(&home);
    let mut client = Client::connect(&home.nbd_socket(), "fast/vm01").unwrap();
    // Two of five drives lose everything behind their superblocks.
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
    for piece in 0..PIECES {
        let mut right = pattern(piece, PIECE as usize);
        right[..4096].copy_from_slice(&pattern(piece + 1000, 4096));
        match client.read(piece * PIECE, PIECE as usize) {
            Ok(bytes) => assert!(bytes == right, "piece {piece} is wrong"),
            Err(5) => failed += 1,
            Err(error) => panic!("piece {piece}: error {error}"),
        }
    }
    assert!(failed > 0);
    // Those who can still read and write go on.
    client.write(100 << 20, &[7; 4096]).unwrap();
    assert_eq!(client.read(100 << 20, 4096).unwrap(), [7; 4096]);
    let log = daemon.log();
    assert!(log.contains("cannot be reconstructed"), "the log does not name the lost blocks: {log}");
}
