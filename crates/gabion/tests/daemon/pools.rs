//! Creation, status, check and destruction of pools.

use serde_json::json;

use super::harness::{DaemonHome, command, names, run, until};

#[test]
fn a_pool_is_created_and_destroyed() {
    let home = DaemonHome::new();
    let daemon = home.start();
    daemon.make_pool();
    let pool = daemon.pool("fast");
    assert_eq!(
        (&pool["state"], &pool["health"], &pool["scheme"]),
        (&json!("open"), &json!("healthy"), &json!("4+1"))
    );
    assert_eq!(pool["problems"], json!([]));
    assert_eq!(pool["drives"].as_array().unwrap().len(), 5);
    assert_eq!(pool["space"]["volumes"], 1);
    let text = daemon.ok(&["pool", "status"]);
    for expected in [
        "pool 'fast': healthy",
        "tolerates the failure of any one drive",
        "after a clean close",
        "fast-4.drive",
    ] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
    assert_eq!(daemon.ok(&["pool", "list", "-q"]), "fast\n");
    daemon.ok(&["pool", "close", "fast"]);
    assert_eq!(daemon.pool("fast")["state"], "closed");
    let refusal = daemon.refused(&["volume", "list", "fast"]);
    assert!(refusal.contains("is closed") && refusal.contains("gabion pool open fast"), "{refusal}");
    daemon.ok(&["pool", "open", "fast"]);
    assert_eq!(daemon.pool("fast")["opened"]["clean"], true);
    daemon.ok(&["pool", "destroy", "fast", "--yes"]);
    assert_eq!(daemon.json(&["pool", "list"]), json!([]));
    let drive = home.arg("drives/fast-0.drive");
    let ran = run(&mut command(&["drive", "identify", &drive, "--json"]));
    let identified: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    let holds = identified[0]["contents"].to_string();
    assert_eq!(identified[0]["pool"], json!(null));
    assert!(!holds.contains("Gabion") && holds.contains("data"), "{holds}");
    daemon.stop();
}

#[test]
fn raid_levels_select_a_scheme() {
    let home = DaemonHome::new();
    let daemon = home.start();
    for (level, count, scheme) in
        [("0", "2", "2+0"), ("1", "3", "1+2"), ("5", "3", "2+1"), ("6", "4", "2+2"), ("10", "4", "1+1")]
    {
        let (name, files) = (format!("level{level}"), home.arg(&format!("level{level}")));
        let how = ["--level", level, "--files", &files, "--file-size", "32M", "--count", count];
        daemon.ok(&[&["pool", "create", &name][..], &how[..]].concat());
        assert_eq!(daemon.pool(&name)["scheme"], scheme);
        daemon.ok(&["pool", "destroy", &name, "--yes"]);
    }
    daemon.stop();
}

#[test]
fn a_missing_drive_is_reported_with_an_action() {
    let home = DaemonHome::new();
    let daemon = home.start();
    daemon.make_pool();
    daemon.ok(&["drive", "fail", "fast", "2", "--yes"]);
    // Mirrored segments are rebuilt on other drives; other segments are not.
    until("repair waits for a drive", || daemon.pool("fast")["health"] == "degraded");
    let ran = home.gabion(&["pool", "status", "fast"]);
    assert_eq!(ran.code, Some(3), "{ran:?}");
    for expected in ["degraded", "drive 2", "the failure of another drive", "action: "] {
        assert!(ran.out.contains(expected), "{expected}: {}", ran.out);
    }
    let brief = home.gabion(&["pool", "status", "-q"]);
    assert_eq!((brief.code, brief.out.as_str()), (Some(3), "fast degraded\n"));
    let refusal = daemon.refused(&["drive", "fail", "fast", "3", "--yes"]);
    assert!(
        refusal.contains("cannot tolerate the loss") && refusal.contains("nothing was changed"),
        "{refusal}"
    );
    let refusal = daemon.refused(&["drive", "fail", "fast", "2", "--yes"]);
    assert!(refusal.contains("has no drive 2 in use"), "{refusal}");
    let listed = daemon.json(&["drive", "list", "fast"]);
    assert_eq!(listed[2]["state"], "failed");
    // The failure of the drive is the only error in the log.
    drop(daemon);
}

#[test]
fn a_failed_creation_leaves_no_files() {
    let home = DaemonHome::new();
    let daemon = home.start();
    let files = home.arg("drives");
    // The third file already exists.
    std::fs::create_dir(&files).unwrap();
    std::fs::write(home.path("drives/fast-2.drive"), "precious").unwrap();
    let refusal = daemon.refused(&[
        "pool",
        "create",
        "fast",
        "--scheme",
        "4+1",
        "--files",
        &files,
        "--file-size",
        "64M",
        "--count",
        "5",
    ]);
    assert!(refusal.contains("fast-2.drive") && refusal.contains("already exists"), "{refusal}");
    assert_eq!(names(&home.path("drives")), ["fast-2.drive"]);
    assert_eq!(std::fs::read(home.path("drives/fast-2.drive")).unwrap(), b"precious");
    assert_eq!(daemon.json(&["pool", "list"]), json!([]));
    daemon.stop();
}

#[test]
fn a_new_daemon_opens_a_pool_from_its_drives() {
    let (home, other) = (DaemonHome::new(), DaemonHome::new());
    let daemon = home.start();
    daemon.make_pool();
    daemon.stop();
    let stranger = other.start();
    let drives: Vec<String> =
        (0..5).rev().map(|index| home.arg(&format!("drives/fast-{index}.drive"))).collect();
    let mut open = vec!["pool", "open", "fast", "--drives"];
    open.extend(drives.iter().map(String::as_str));
    stranger.ok(&open);
    assert_eq!(stranger.ok(&["volume", "list", "-q"]), "fast/vm01\n");
    let refusal = stranger.refused(&open);
    assert!(refusal.contains("is open already"), "{refusal}");
    stranger.ok(&["pool", "close", "fast", "--forget"]);
    // One drive names the others.
    stranger.ok(&["pool", "open", "fast", "--drives", &drives[2]]);
    assert_eq!(stranger.pool("fast")["health"], "healthy");
    stranger.ok(&["pool", "close", "fast", "--forget"]);
    let refusal = stranger.refused(&["pool", "open", "slow", "--drives", &drives[0]]);
    assert!(refusal.contains("belongs to pool 'fast', not to 'slow'"), "{refusal}");
    let refusal = stranger.refused(&["pool", "open", "fast"]);
    assert!(refusal.contains("no pool 'fast'"), "{refusal}");
    stranger.stop();
}

#[test]
fn a_closed_pool_is_checked_and_damage_is_found() {
    let home = DaemonHome::new();
    let daemon = home.start();
    daemon.make_pool();
    daemon.ok(&["export", "create", "fast/vm01", "--nbd"]);
    let mut client = super::nbd::Client::connect(&home.nbd_socket(), "fast/vm01").unwrap();
    for index in 0..8 {
        client.write(index << 20, &super::nbd::pattern(index, 1 << 20)).unwrap();
    }
    client.flush().unwrap();
    drop(client);
    let drives: Vec<String> = (0..5).map(|index| home.arg(&format!("drives/fast-{index}.drive"))).collect();
    let check: Vec<&str> = ["check"].into_iter().chain(drives.iter().map(String::as_str)).collect();
    let ran = run(&mut command(&check));
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.err.contains("in use") && ran.err.contains("gabion pool close"), "{ran:?}");
    daemon.stop();

    let ran = run(&mut command(&check));
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.out.contains("is sound") && ran.out.contains("8 MiB of data in 1 volumes"), "{ran:?}");
    // All data of one drive after its superblocks.
    let before = std::fs::read(&drives[1]).unwrap();
    let mut bytes = before.clone();
    bytes[4 << 20..].iter_mut().for_each(|byte| *byte ^= 0xA5);
    std::fs::write(&drives[1], &bytes).unwrap();
    let ran = run(command(&check).arg("--json"));
    assert_eq!(ran.code, Some(3), "{ran:?}");
    let report: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(report["sound"], false);
    let findings = report["findings"].as_array().unwrap();
    assert!(!findings.is_empty());
    assert!(findings.iter().all(|finding| finding["damage"] == "repairable"), "{findings:#?}");
    assert_eq!(std::fs::read(&drives[1]).unwrap(), bytes, "a check writes nothing");
    // Two drives are missing, one more than the scheme tolerates: the remaining data is verified.
    let ran = run(command(&check[..4]).arg("--json"));
    assert_eq!(ran.code, Some(3), "{ran:?}");
    let report: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    let findings = report["findings"].as_array().unwrap();
    let lost = findings.iter().filter(|finding| finding["damage"] == "lost");
    assert!(lost.count() > 1 && report["rows"].as_u64().unwrap() > 0, "{report:#}");

    // Another drive is missing, and a data block is damaged, which cannot be reconstructed now.
    let data = super::nbd::pattern(3, 1 << 20);
    let block = before.chunks(4096).position(|block| data.chunks(4096).any(|of| of == block)).unwrap();
    let mut bytes = before.clone();
    bytes[block * 4096] ^= 0xA5;
    std::fs::write(&drives[1], &bytes).unwrap();
    let without_last = |json: bool| {
        let mut check = command(&check[..5]);
        let ran = run(if json { check.arg("--json") } else { &mut check });
        assert_eq!(ran.code, Some(3), "{ran:?}");
        ran.out
    };
    let said = without_last(false);
    assert!(said.contains("is NOT sound, and degraded") && said.contains("places with lost data"), "{said}");
    // One drive is missing; nothing else is wrong.
    std::fs::write(&drives[1], &before).unwrap();
    let said = without_last(false);
    assert!(said.contains("is degraded but sound") && said.contains("drive missing"), "{said}");
    assert!(said.contains("fast-4.drive") && said.contains("8 MiB of data in 1 volumes"), "{said}");
    let report: serde_json::Value = serde_json::from_str(&without_last(true)).unwrap();
    assert_eq!((&report["sound"], &report["degraded"]), (&true.into(), &true.into()));
    assert_eq!(report["findings"].as_array().unwrap().len(), 0);
}
