//! The event log, space thresholds and thick volumes.

use std::process::Stdio;

use serde_json::Value;

use super::harness::{Daemon, DaemonHome, until};
use super::nbd::{Client, pattern};

fn kinds(daemon: &Daemon<'_>) -> Vec<String> {
    let events = daemon.json(&["pool", "events", "fast"]);
    events.as_array().unwrap().iter().map(|event| event["kind"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn the_event_log_survives_a_restart() {
    let home = DaemonHome::new();
    let daemon = home.start();
    daemon.make_pool();
    daemon.ok(&["volume", "snapshot", "fast/vm01@one"]);
    daemon.ok(&["drive", "fail", "fast", "2", "--yes"]);
    daemon.kill();

    let daemon = home.start();
    let events = daemon.json(&["pool", "events", "fast"]);
    let numbers: Vec<_> =
        events.as_array().unwrap().iter().map(|event| event["number"].as_u64().unwrap()).collect();
    assert_eq!(numbers, (1..=numbers.len() as u64).collect::<Vec<_>>());
    let known = kinds(&daemon);
    let expected = ["pool_opened", "volume_created", "snapshot_created", "drive_failed", "pool_recovered"];
    assert_eq!(known, expected);
    assert_eq!((&events[3]["drive"], &events[3]["severity"]), (&2.into(), &"error".into()));
    let text = daemon.ok(&["pool", "events", "fast", "--last", "2"]);
    assert!(text.lines().count() == 2 && text.contains("X drive 2 failed ("), "{text}");
    assert!(text.contains("opened after a crash"), "{text}");
    assert!(daemon.refused(&["pool", "events", "none"]).contains("no pool 'none'"));

    // Also new events.
    let mut follow = home.client(&["pool", "events", "fast", "--follow", "--json"]);
    let mut follow = follow.stdout(Stdio::piped()).spawn().unwrap();
    daemon.ok(&["volume", "create", "fast/another", "--size", "1M"]);
    let lines = std::io::BufRead::lines(std::io::BufReader::new(follow.stdout.take().unwrap()));
    let followed = lines.map(|line| serde_json::from_str::<Value>(&line.unwrap()).unwrap());
    let followed: Vec<Value> = followed.take(expected.len() + 1).collect();
    follow.kill().unwrap();
    follow.wait().unwrap();
    assert!(
        followed[expected.len()]["message"].as_str().unwrap().contains("'another' created with 1 MiB"),
        "{followed:?}"
    );
    daemon.stop();
}

#[test]
fn space_thresholds_are_reported_and_thick_volumes_keep_their_space() {
    let home = DaemonHome::new();
    let daemon = home.start_with(&["--warn-at", "40,60"]);
    daemon.make_pool();
    let space = || daemon.pool("fast")["space"].clone();
    let capacity = space()["capacity"].as_u64().unwrap();
    let half = (capacity / 2).to_string();
    daemon.ok(&["volume", "create", "fast/db", "--size", &half, "--thick"]);
    let shown = daemon.ok(&["volume", "show", "fast/db"]);
    assert!(shown.contains("thick"), "{shown}");
    assert!(space()["reserved"].as_u64().unwrap() >= capacity / 2);
    let refusal = daemon.refused(&["volume", "create", "fast/more", "--size", &half, "--thick"]);
    assert!(refusal.contains("has no space for it") && refusal.contains("drive add"), "{refusal}");
    let status = home.gabion(&["pool", "status", "fast"]).out;
    assert!(
        status.contains("% of the space is used") && status.contains("reserved for thick volumes"),
        "{status}"
    );
    until("the threshold is reported", || kinds(&daemon).contains(&"space_low".to_owned()));

    daemon.ok(&["volume", "set", "fast/db", "--thin"]);
    assert_eq!(space()["reserved"], 0);
    until("the space is available again", || {
        kinds(&daemon).last().is_some_and(|kind| kind == "space_available")
    });
    daemon.ok(&["volume", "set", "fast/db", "--thick"]);
    daemon.ok(&["export", "create", "fast/db", "--nbd"]);
    daemon.ok(&["export", "create", "fast/vm01", "--nbd"]);
    // Another volume uses all remaining space.
    let chunk = 1 << 20;
    let mut greedy = Client::connect(&home.nbd_socket(), "fast/vm01").unwrap();
    let mut offset = 0;
    while greedy.write(offset, &pattern(offset, chunk)).is_ok() {
        offset += chunk as u64;
    }
    let mut thick = Client::connect(&home.nbd_socket(), "fast/db").unwrap();
    for offset in (0..capacity / 2 - chunk as u64).step_by(chunk) {
        thick.write(offset, &pattern(offset, chunk)).unwrap();
    }
    // The log can contain the error that the pool is full.
    drop(daemon);
}
