//! Drives that join, leave, are lost and come back, by the real commands, with data on them.

use serde_json::{Value, json};

use super::harness::{Daemon, Home, until};
use super::restart::{assert_everything_is_there, write_everywhere};

const SIZE: u64 = 64 << 20;

/// A pool of five drives, 4+1, with a volume that holds something.
fn filled(home: &Home) -> Daemon<'_> {
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
fn a_pool_grows_by_a_drive_and_shrinks_by_another() {
    let home = Home::new();
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
    assert_everything_is_there(&home, 5);
    daemon.stop();

    // The daemon knows where the drives are that there are now.
    let daemon = home.start();
    assert_eq!(daemon.pool("fast")["health"], "healthy");
    assert_everything_is_there(&home, 5);
    daemon.stop();
}

#[test]
fn a_drive_is_replaced_before_and_after_it_is_lost() {
    let home = Home::new();
    let daemon = filled(&home);
    daemon.ok(&["drive", "replace", "fast", "2", "--with", &home.file("new-2", SIZE)]);
    assert_eq!(states(&daemon), ["online", "online", "removed", "online", "online", "online"]);

    daemon.ok(&["drive", "fail", "fast", "4", "--yes"]);
    // Mirrored segments find other drives; the rest does not.
    until("repair cannot go on", || daemon.pool("fast")["rebuild"]["state"] == "needs_drive");
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
    assert_everything_is_there(&home, 5);
    let refusal = daemon.refused(&["drive", "replace", "fast", "2", "--with", &full]);
    assert!(refusal.contains("has no drive 2 in use"), "{refusal}");
    // The loss was reported as an error, so the log has one.
    drop(daemon);
}

#[test]
fn a_drive_that_was_taken_out_comes_back() {
    let home = Home::new();
    let daemon = filled(&home);
    let refusal = daemon.refused(&["drive", "return", "fast", "1"]);
    assert!(refusal.contains("is not missing or failed"), "{refusal}");
    daemon.ok(&["drive", "fail", "fast", "1", "--yes"]);
    write_everywhere(&home, 6);
    // It moved meanwhile.
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
    assert_everything_is_there(&home, 6);
    // The loss was reported as an error, so the log has one.
    drop(daemon);
}

#[test]
fn repair_is_paused_and_a_removal_is_given_up() {
    let home = Home::new();
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
    assert_eq!(states(&daemon)[3], "online");
    daemon.ok(&["pool", "rebuild", "fast", "--resume", "--rate-limit", "0"]);
    daemon.ok(&["drive", "remove", "fast", "3"]);
    assert_eq!(states(&daemon)[3], "removed");
    assert_everything_is_there(&home, 5);
    daemon.stop();
}

/// As wide as schemes commonly get, on drives no two of which are of a size.
#[test]
fn a_pool_of_24_unequal_drives_bears_four_losses_again_and_again() {
    let home = Home::new();
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
    assert_everything_is_there(&home, 5);
    until("the pool is whole again", || daemon.pool("fast")["health"] == "healthy");
    let removed = states(&daemon).iter().filter(|state| *state == "removed").count();
    assert_eq!(removed, 4);
    for drive in ["1", "2", "3", "4"] {
        daemon.ok(&["drive", "fail", "fast", drive, "--yes"]);
    }
    let refusal = daemon.refused(&["drive", "fail", "fast", "5", "--yes"]);
    assert!(refusal.contains("cannot tolerate the loss"), "{refusal}");
    assert_everything_is_there(&home, 5);
    daemon.kill();
    let mut check = vec!["check"];
    check.extend(drives.iter().map(String::as_str));
    // The kernel lets go of a killed daemon's drives a little later.
    let free = || !home.gabion(&check).err.contains("in use by another process");
    until("the drives are free", free);
    // Four drives are out of use, and nothing else is wrong.
    let ran = home.gabion(&check);
    assert!(ran.out.contains("drive missing or failed") && ran.out.contains("verified"), "{ran:?}");
    assert!(!ran.out.contains("place") && !ran.out.contains("contradictions"), "{ran:?}");
}
