//! Volumes as files: made, restored, resized, taken away, left behind by daemons that were killed, and file systems in them.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::fs::OFlags;
use serde_json::json;

use super::harness::{Daemon, Home, until};
use super::nbd::pattern;

const BLOCK: usize = 4096;

fn place(home: &Home) -> PathBuf {
    home.path("fuse/fast/vm01")
}

/// Makes a pool and exports a volume of it. False if tests that mount are skipped.
fn export(daemon: &Daemon<'_>, more: &[&str]) -> bool {
    if !test_support::has_fuse() {
        return false;
    }
    daemon.make_pool();
    daemon.ok(&[&["export", "create", "fast/vm01", "--fuse"], more].concat());
    true
}

fn open(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).open(path).unwrap()
}

fn is_mounted(place: &Path) -> bool {
    let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    table.lines().any(|line| line.split(' ').nth(4) == place.to_str())
}

/// What a test that fails has mounted.
struct Mounted<'a>(&'a Path);

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        while is_mounted(self.0) && Command::new("umount").arg("-l").arg(self.0).status().unwrap().success() {
        }
    }
}

#[test]
fn a_volume_is_a_file_and_still_is_after_a_restart() {
    let home = Home::new();
    let daemon = home.start_with(&["--threads", "2"]);
    if !export(&daemon, &[]) {
        return;
    }
    let place = place(&home);
    let _mounted = Mounted(&place);
    let listed = &daemon.json(&["export", "list"])[0];
    assert_eq!(
        (&listed["protocol"], &listed["uris"], &listed["connections"]),
        (&json!("fuse"), &json!([place]), &json!(0))
    );
    let file = open(&place);
    assert_eq!(file.metadata().unwrap().len(), 1 << 30);
    until("the file is counted as open", || daemon.json(&["export", "list"])[0]["connections"] == 1);
    let data = pattern(1, 1 << 20);
    file.write_all_at(&data, 12345).unwrap();
    file.sync_all().unwrap();
    daemon.ok(&["volume", "resize", "fast/vm01", "--size", "2G"]);
    assert_eq!(file.metadata().unwrap().len(), 2 << 30);
    file.write_all_at(&[3; 512], (2 << 30) - 512).unwrap();
    drop(file);
    daemon.stop();
    assert!(!is_mounted(&place) && !place.exists());

    let daemon = home.start_with(&["--threads", "2"]);
    let mut found = vec![0; data.len()];
    open(&place).read_exact_at(&mut found, 12345).unwrap();
    assert!(found == data);
    let refusal = daemon.refused(&["export", "create", "fast/vm01", "--nbd"]);
    assert!(refusal.contains("exported already"), "{refusal}");
    daemon.ok(&["export", "delete", "fast/vm01"]);
    assert!(!is_mounted(&place) && !place.exists());
    daemon.ok(&["volume", "delete", "fast/vm01", "--yes"]);
    daemon.stop();
}

#[test]
fn a_file_that_is_open_is_taken_away_by_force_only() {
    let home = Home::new();
    let daemon = home.start();
    if !export(&daemon, &[]) {
        return;
    }
    let place = place(&home);
    let _mounted = Mounted(&place);
    let file = open(&place);
    file.write_all_at(&[5; BLOCK], 0).unwrap();
    let refusal = daemon.refused(&["export", "delete", "fast/vm01"]);
    assert!(refusal.contains("in use as") && refusal.contains("--force"), "{refusal}");
    let refusal = daemon.refused(&["pool", "close", "fast"]);
    assert!(refusal.contains("exported"), "{refusal}");
    file.write_all_at(&[6; BLOCK], 0).unwrap();
    // With its pool, and back with it.
    daemon.ok(&["pool", "close", "fast", "--force"]);
    assert!(file.write_at(&[7; BLOCK], 0).is_err());
    assert!(!is_mounted(&place));
    assert_eq!(daemon.json(&["export", "list"])[0]["state"], "waiting");
    daemon.ok(&["pool", "open", "fast"]);
    let file = open(&place);
    let mut found = [0; BLOCK];
    file.read_exact_at(&mut found, 0).unwrap();
    assert_eq!(found, [6; BLOCK]);
    daemon.ok(&["export", "delete", "fast/vm01", "--force"]);
    assert!(file.read_at(&mut found, 0).is_err());
    assert!(!is_mounted(&place) && !place.exists());
    assert_eq!(daemon.json(&["export", "list"]), json!([]));
    daemon.stop();
}

#[test]
fn a_daemon_that_is_interrupted_leaves_no_mount_although_a_file_is_open() {
    let home = Home::new();
    let mut daemon = home.start();
    if !export(&daemon, &[]) {
        return;
    }
    let place = place(&home);
    let _mounted = Mounted(&place);
    let file = open(&place);
    file.write_all_at(&[5; BLOCK], 0).unwrap();
    file.sync_all().unwrap();
    daemon.signal("INT");
    assert_eq!(daemon.wait().code(), Some(0), "{}", daemon.log());
    assert!(daemon.log().contains("removed a file that is open"), "{}", daemon.log());
    assert!(!is_mounted(&place) && !place.exists());
    assert!(file.read_at(&mut [0; BLOCK], 0).is_err());
    drop(daemon);
    let daemon = home.start();
    let mut found = [0; BLOCK];
    open(&place).read_exact_at(&mut found, 0).unwrap();
    assert_eq!(found, [5; BLOCK]);
    daemon.stop();
}

#[test]
fn snapshots_are_files_that_are_only_read() {
    let home = Home::new();
    let daemon = home.start();
    if !export(&daemon, &[]) {
        return;
    }
    let (place, before) = (place(&home), home.path("fuse/fast/vm01@before"));
    let _mounted = (Mounted(&place), Mounted(&before));
    let file = open(&place);
    file.write_all_at(&[1; BLOCK], 0).unwrap();
    daemon.ok(&["volume", "snapshot", "fast/vm01@before"]);
    daemon.ok(&["export", "create", "fast/vm01@before", "--fuse"]);
    file.write_all_at(&[2; BLOCK], 0).unwrap();
    assert!(OpenOptions::new().write(true).open(&before).is_err());
    let mut found = [0; BLOCK];
    File::open(&before).unwrap().read_exact_at(&mut found, 0).unwrap();
    assert_eq!(found, [1; BLOCK]);
    drop(file);
    daemon.stop();
}

#[test]
fn what_is_in_the_place_of_a_file_is_left_alone() {
    let home = Home::new();
    let daemon = home.start();
    std::fs::create_dir_all(home.path("fuse/fast")).unwrap();
    let place = place(&home);
    std::fs::write(&place, "precious").unwrap();
    daemon.make_pool();
    let refusal = daemon.refused(&["export", "create", "fast/vm01", "--fuse"]);
    assert!(
        refusal.contains("was not created by this program") && refusal.contains("--fuse-directory"),
        "{refusal}"
    );
    assert_eq!(std::fs::read(&place).unwrap(), b"precious");
    assert_eq!(daemon.json(&["export", "list"]), json!([]));
    daemon.stop();
}

/// Writes with a version each and syncs now and then, until it is cut off. What was synced must be there, what came later may
/// be.
struct Writer {
    version: AtomicU64,
    synced: Mutex<Vec<u64>>,
    stop: AtomicBool,
}

impl Writer {
    const BLOCKS: u64 = 512;

    fn content(block: u64, version: u64) -> Vec<u8> {
        match version {
            0 => vec![0; BLOCK],
            version => pattern(block << 32 | version, BLOCK),
        }
    }

    /// Writes until something fails.
    fn run(&self, file: &File) {
        let mut written = self.synced.lock().unwrap().clone();
        for round in 0u64.. {
            let block = round.wrapping_mul(0x9E37_79B9) % Self::BLOCKS;
            let version = self.version.fetch_add(1, Ordering::Relaxed) + 1;
            if file.write_all_at(&Self::content(block, version), block * BLOCK as u64).is_err() {
                break;
            }
            written[block as usize] = version;
            if round % 16 == 15 {
                if file.sync_data().is_err() {
                    break;
                }
                self.synced.lock().unwrap().clone_from(&written);
            }
        }
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Every block has the version that was synced, or a later one.
    fn check(&self, file: &File) {
        let latest = self.version.load(Ordering::Relaxed);
        let mut synced = self.synced.lock().unwrap();
        for (block, version) in (0..).zip(synced.iter_mut()) {
            let mut found = vec![0; BLOCK];
            file.read_exact_at(&mut found, block * BLOCK as u64).unwrap();
            let fits = |candidate: &u64| found == Self::content(block, *candidate);
            let now = std::iter::once(*version).chain(*version..=latest).find(fits);
            *version = now.unwrap_or_else(|| panic!("block {block} has lost version {version}"));
        }
    }
}

#[test]
fn what_was_synced_is_there_after_kills_and_no_mount_is_left_behind() {
    let rounds: u64 = std::env::var("GABION_CRASH_ROUNDS").map_or(4, |rounds| rounds.parse().unwrap());
    let home = Home::new();
    let mut daemon = home.start_with(&["--threads", "2"]);
    if !export(&daemon, &[]) {
        return;
    }
    let place = place(&home);
    let _mounted = Mounted(&place);
    let writer = Writer {
        version: AtomicU64::new(0),
        synced: Mutex::new(vec![0; Writer::BLOCKS as usize]),
        stop: AtomicBool::new(false),
    };
    for round in 0..rounds {
        writer.stop.store(false, Ordering::Relaxed);
        let before = writer.version.load(Ordering::Relaxed);
        let options =
            OpenOptions::new().read(true).write(true).custom_flags(OFlags::DIRECT.bits() as i32).open(&place);
        // One that is open over the kill, as a loop device would have it.
        let held = options.unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| writer.run(&open(&place)));
            let enough = before + 200 + round * 150;
            until("it writes", || writer.version.load(Ordering::Relaxed) > enough);
            daemon.kill();
            until("the writer has noticed", || writer.stop.load(Ordering::Relaxed));
        });
        assert!(held.metadata().is_err() || held.read_at(&mut [0; BLOCK], 0).is_err());
        assert!(std::fs::metadata(&place).is_err(), "it does not look as if it were there");
        daemon = home.start_with(&["--threads", "2"]);
        assert!(daemon.log().contains("removed a stale mount"), "{}", daemon.log());
        let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        let here = table.lines().filter(|line| line.split(' ').nth(4) == place.to_str()).count();
        assert_eq!(here, 1, "one mount, and none below it");
        writer.check(&open(&place));
    }
    daemon.stop();
}

/// A loop device that is there as long as this is.
struct Loop(String);

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["--detach", &self.0]).output();
    }
}

#[track_caller]
fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap();
    assert!(output.status.success(), "{program} {arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_file_system_lives_in_a_file() {
    if !test_support::has_loop() || !test_support::has_programs(&["losetup", "mkfs.ext4", "e2fsck", "fstrim"])
    {
        return;
    }
    let home = Home::new();
    let daemon = home.start_with(&["--threads", "2"]);
    if !export(&daemon, &[]) {
        return;
    }
    let (place, at) = (place(&home), home.path("mnt"));
    let (file, mnt) = (place.to_str().unwrap(), at.to_str().unwrap());
    let _mounted = Mounted(&place);
    run("mkfs.ext4", &["-q", file]);
    let output = Command::new("losetup").args(["--direct-io=on", "--find", "--show", file]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let device = Loop(String::from_utf8(output.stdout).unwrap().trim().to_owned());
    std::fs::create_dir(&at).unwrap();
    run("mount", &[&device.0, mnt]);
    let _at = Mounted(&at);
    let data = pattern(9, 20 << 20);
    std::fs::write(at.join("data"), &data).unwrap();
    run("sync", &["-f", mnt]);
    let stored = || daemon.json(&["volume", "show", "fast/vm01"])["stored"].as_u64().unwrap();
    let full = stored();
    assert!(full > 20 << 20, "{full}");
    std::fs::write(at.join("more"), &data).unwrap();
    run("sync", &["-f", mnt]);
    std::fs::remove_file(at.join("more")).unwrap();
    run("sync", &["-f", mnt]);
    run("fstrim", &[mnt]);
    assert!(stored() < full + (4 << 20), "what is trimmed is free: {} after {full}", stored());
    let refusal = daemon.refused(&["export", "delete", "fast/vm01"]);
    assert!(refusal.contains("in use"), "{refusal}");
    run("umount", &[mnt]);
    drop(device);
    run("e2fsck", &["-fn", file]);

    // And again, by another daemon, with a drive lost.
    daemon.kill();
    let daemon = home.start_with(&["--threads", "2"]);
    daemon.ok(&["drive", "fail", "fast", "2", "--yes"]);
    run("mount", &["-o", "loop,ro", file, mnt]);
    assert!(std::fs::read(at.join("data")).unwrap() == data);
    run("umount", &[mnt]);
    until("nobody has it open", || daemon.json(&["export", "list"])[0]["connections"] == 0);
    daemon.ok(&["export", "delete", "fast/vm01"]);
}

/// True if nobody can open a place or make a file there, root neither.
fn is_out_of_reach(place: &Path) -> bool {
    let open = |create| OpenOptions::new().write(true).create(create).open(place).is_ok();
    !open(false) && !open(true)
}

#[test]
fn nobody_can_write_in_the_place_of_a_file_while_its_pool_is_not_open() {
    let home = Home::new();
    let daemon = home.start();
    if !export(&daemon, &[]) {
        return;
    }
    let place = place(&home);
    let _mounted = Mounted(&place);
    open(&place).write_all_at(&[5; BLOCK], 0).unwrap();
    daemon.kill();
    // The next daemon cannot open the pool yet, as while that takes its time.
    std::fs::rename(home.path("drives"), home.path("elsewhere")).unwrap();
    let mut daemon = home.start();
    assert_eq!(daemon.json(&["export", "list"])[0]["state"], "waiting");
    assert!(!is_mounted(&place), "what the last daemon had mounted is gone");
    assert!(is_out_of_reach(&place));
    std::fs::rename(home.path("elsewhere"), home.path("drives")).unwrap();
    daemon.ok(&["pool", "open", "fast"]);
    let mut found = [0; BLOCK];
    open(&place).read_exact_at(&mut found, 0).unwrap();
    assert_eq!(found, [5; BLOCK]);
    // Nor while the pool is closed; and no daemon or export that is gone leaves anything.
    daemon.ok(&["pool", "close", "fast", "--force"]);
    assert!(is_out_of_reach(&place));
    // In order, although its log has the pool that was not there.
    daemon.signal("TERM");
    assert_eq!(daemon.wait().code(), Some(0), "{}", daemon.log());
    assert!(std::fs::symlink_metadata(&place).is_err());
    let daemon = home.start();
    assert!(is_out_of_reach(&place));
    daemon.ok(&["export", "delete", "fast/vm01"]);
    assert!(std::fs::symlink_metadata(&place).is_err());
}
