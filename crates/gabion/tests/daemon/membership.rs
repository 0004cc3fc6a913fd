//! Adding, removing, replacing, failing and returning drives with data on them.

use serde_json::{Value, json};

use super::harness::{Daemon, DaemonHome, until};
use super::restart::{verify_everything, write_everywhere};

const SIZE: u64 = 64 << 20;

/// Creates a 4+1 pool on five drives with data in a volume.
fn filled(home: &DaemonHome) -> Daemon<'_> {
    let daemon = home.start();
    daemon.make_pool();
    daemon.ok(&["export", "create", "fast/vm01", "--nbd"]);
    write_everywhere(home, 5);
    daemon
}

fn states(daemon: &Daemon<'_>) -> Vec<String> {
    let pool = daemon.pool("fast");
    let drives = pool["drives"].as_array().unwrap().iter();
    drives.map(|drive| drive["state"].as_str().unwrap().to_owned()).collect()
}

fn holds(daemon: &Daemon<'_>, drive: &str) -> Value {
    daemon.json(&["drive", "identify", drive])[0]["contents"].clone()
}

#[test]
fn drives_are_added_and_removed() {
    let home = DaemonHome::new();
    let daemon = filled(&home);
    let refusal = daemon.refused(&["drive", "remove", "fast", "0"]);
    assert!(
        refusal.contains("needs 5 drives") && refusal.contains("drive replace fast 0 --with"),
        "{refusal}"
    );

    let before = daemon.pool("fast")["space"]["raw"].as_u64().unwrap();
    let drive = home.file("larger", 2 * SIZE);
    let said = daemon.ok(&["drive", "add", "fast", &drive]);
    assert!(said.contains("added to pool 'fast'"), "{said}");
    assert!(daemon.pool("fast")["space"]["raw"].as_u64().unwrap() > before + SIZE);
    let refusal = daemon.refused(&["drive", "add", "fast", &drive]);
    assert!(refusal.contains("in use"), "{refusal}");

    let first = home.arg("drives/fast-0.drive");
    let said = daemon.ok(&["drive", "remove", "fast", "0"]);
    assert!(said.contains("can be unplugged"), "{said}");
    assert_eq!(states(&daemon), ["removed", "online", "online", "online", "online", "online"]);
    assert_eq!(daemon.pool("fast")["health"], "healthy");
    let held = holds(&daemon, &first).to_string();
    assert!(!held.contains("Gabion") && held.contains("data"), "no longer a pool's, and not empty: {held}");
    std::fs::remove_file(&first).unwrap();
    verify_everything(&home, 5);
    daemon.stop();

    // The daemon knows the new set of drives.
    let daemon = home.start();
    assert_eq!(daemon.pool("fast")["health"], "healthy");
    verify_everything(&home, 5);
    daemon.stop();
}

#[test]
fn a_drive_is_replaced_before_and_after_its_failure() {
    let home = DaemonHome::new();
    let daemon = filled(&home);
    daemon.ok(&["drive", "replace", "fast", "2", "--with", &home.file("new-2", SIZE)]);
    assert_eq!(states(&daemon), ["online", "online", "removed", "online", "online", "online"]);

    daemon.ok(&["drive", "fail", "fast", "4", "--yes"]);
    // Mirrored segments are rebuilt on other drives; other segments are not.
    until("repair waits for a drive", || daemon.pool("fast")["rebuild"]["state"] == "needs_drive");
    let pool = daemon.pool("fast");
    assert_eq!(pool["health"], "degraded");
    let action = pool["problems"][0]["action"].as_str().unwrap();
    assert!(action.contains("'gabion drive return fast 4'"), "{action}");
    assert!(action.contains("'gabion drive replace fast 4 --with DRIVE'"), "{action}");
    let status = home.gabion(&["pool", "status", "fast"]);
    assert!(status.out.contains("waiting for another drive"), "{}", status.out);

    let full = home.file("full", SIZE);
    std::os::unix::fs::FileExt::write_all_at(
        &std::fs::File::options().write(true).open(&full).unwrap(),
        b"XFSB",
        0,
    )
    .unwrap();
    let refusal = daemon.refused(&["drive", "replace", "fast", "4", "--with", &full]);
    assert!(refusal.contains("XFS") && refusal.contains("--wipe"), "{refusal}");
    daemon.ok(&["drive", "replace", "fast", "4", "--with", &full, "--wipe", "--yes"]);
    assert_eq!(daemon.pool("fast")["health"], "healthy");
    daemon.ok(&["drive", "fail", "fast", "0", "--yes"]);
    verify_everything(&home, 5);
    let refusal = daemon.refused(&["drive", "replace", "fast", "2", "--with", &full]);
    assert!(refusal.contains("has no drive 2 in use"), "{refusal}");
    // The failure of the drive is an error in the log.
    drop(daemon);
}

#[test]
fn a_failed_drive_is_returned() {
    let home = DaemonHome::new();
    let daemon = filled(&home);
    let refusal = daemon.refused(&["drive", "return", "fast", "1"]);
    assert!(refusal.contains("is not missing or failed"), "{refusal}");
    daemon.ok(&["drive", "fail", "fast", "1", "--yes"]);
    write_everywhere(&home, 6);
    // The drive has a new path.
    let (was, is) = (home.arg("drives/fast-1.drive"), home.arg("moved"));
    std::fs::rename(&was, &is).unwrap();
    let refusal = daemon.refused(&["drive", "return", "fast", "1"]);
    assert!(refusal.contains("--path DRIVE"), "{refusal}");
    let refusal = daemon.refused(&["drive", "return", "fast", "1", "--path", &home.file("other", SIZE)]);
    assert!(refusal.contains("only join as a new drive"), "{refusal}");
    daemon.ok(&["drive", "return", "fast", "1", "--path", &is]);
    until("it is complete", || states(&daemon)[1] == "online");
    assert_eq!(daemon.pool("fast")["health"], "healthy");
    daemon.ok(&["drive", "fail", "fast", "0", "--yes"]);
    verify_everything(&home, 6);
    // The failure of the drive is an error in the log.
    drop(daemon);
}

#[test]
fn a_rebuild_is_paused_and_a_removal_is_cancelled() {
    let home = DaemonHome::new();
    let daemon = filled(&home);
    daemon.ok(&["drive", "add", "fast", &home.file("more", SIZE)]);
    let said = daemon.ok(&["pool", "rebuild", "fast", "--pause", "--rate-limit", "10M"]);
    assert!(said.contains("paused, limited to 10 MiB/s"), "{said}");
    let refusal = daemon.refused(&["drive", "remove", "fast", "3"]);
    assert!(
        refusal.contains("while the rebuild is paused") && refusal.contains("rebuild fast --resume"),
        "{refusal}"
    );
    daemon.ok(&["drive", "remove", "fast", "3", "--no-wait"]);
    let pool = daemon.pool("fast");
    assert_eq!((&pool["drives"][3]["state"], &pool["health"]), (&json!("removing"), &json!("healthy")));
    assert_eq!(pool["rebuild"]["state"], "paused");
    assert!(pool["problems"][0]["action"].as_str().unwrap().contains("'gabion pool rebuild fast --resume'"));
    daemon.ok(&["drive", "remove", "fast", "3", "--cancel"]);
    let refusal = daemon.refused(&["drive", "remove", "fast", "3", "--cancel"]);
    assert!(refusal.contains("drive 3 is not being removed"), "{refusal}");
    assert_eq!(states(&daemon)[3], "online");
    daemon.ok(&["pool", "rebuild", "fast", "--resume", "--rate-limit", "0"]);
    daemon.ok(&["drive", "remove", "fast", "3"]);
    assert_eq!(states(&daemon)[3], "removed");
    verify_everything(&home, 5);
    daemon.stop();
}

/// A wide scheme on drives of different sizes.
#[test]
fn a_pool_of_24_unequal_drives_tolerates_repeated_failures_of_four() {
    let home = DaemonHome::new();
    let daemon = home.start();
    let drives: Vec<String> =
        (0..24).map(|drive| home.file(&format!("drive-{drive}"), SIZE + (drive << 20))).collect();
    let mut create = vec!["pool", "create", "fast", "--scheme", "16+4", "--drives"];
    create.extend(drives.iter().map(String::as_str));
    daemon.ok(&create);
    daemon.ok(&["volume", "create", "fast/vm01", "--size", "1G"]);
    daemon.ok(&["export", "create", "fast/vm01", "--nbd"]);
    write_everywhere(&home, 5);
    for drive in ["0", "9", "16", "23"] {
        daemon.ok(&["drive", "fail", "fast", drive, "--yes"]);
    }
    verify_everything(&home, 5);
    until("the pool is whole again", || daemon.pool("fast")["health"] == "healthy");
    let removed = states(&daemon).iter().filter(|state| *state == "removed").count();
    assert_eq!(removed, 4);
    for drive in ["1", "2", "3", "4"] {
        daemon.ok(&["drive", "fail", "fast", drive, "--yes"]);
    }
    let refusal = daemon.refused(&["drive", "fail", "fast", "5", "--yes"]);
    assert!(refusal.contains("cannot tolerate the loss"), "{refusal}");
    verify_everything(&home, 5);
    daemon.kill();
    let mut check = vec!["check"];
    check.extend(drives.iter().map(String::as_str));
    // The kernel releases the drives of a killed daemon with a delay.
    let free = || !home.gabion(&check).err.contains("in use by another process");
    until("the drives are free", free);
    // Four drives are failed; nothing else is wrong.
    let ran = home.gabion(&check);
    assert!(ran.out.contains("drive missing or failed") && ran.out.contains("verified"), "{ran:?}");
    assert!(!ran.out.contains("place") && !ran.out.contains("contradictions"), "{ran:?}");
}
