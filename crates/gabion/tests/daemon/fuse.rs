//! FUSE exports: creation, restart, resize, removal, stale mounts of killed daemons, and file
//! systems on them.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::fs::OFlags;
use serde_json::json;

use super::harness::{Daemon, DaemonHome, until};
use super::mounts::{LoopDevice, UnmountGuard, is_mounted, run, unmount};
use super::nbd::pattern;

const BLOCK: usize = 4096;

fn mount_point(home: &DaemonHome) -> PathBuf {
    home.path("fuse/fast/vm01")
}

/// Creates a pool and exports a volume. Returns false if FUSE tests are skipped.
fn export(daemon: &Daemon<'_>, extra: &[&str]) -> bool {
    if !test_support::has_fuse() {
        return false;
    }
    daemon.make_pool();
    daemon.ok(&[&["export", "create", "fast/vm01", "--fuse"], extra].concat());
    true
}

fn open(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).open(path).unwrap()
}

#[test]
fn a_fuse_export_survives_a_restart() {
    let home = DaemonHome::new();
    let daemon = home.start_with(&["--threads", "2"]);
    if !export(&daemon, &[]) {
        return;
    }
    let mount_point = mount_point(&home);
    let _mounted = UnmountGuard(&mount_point);
    let listed = &daemon.json(&["export", "list"])[0];
    assert_eq!(
        (&listed["protocol"], &listed["uris"], &listed["connections"]),
        (&json!("fuse"), &json!([mount_point]), &json!(0))
    );
    let file = open(&mount_point);
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
    assert!(!is_mounted(&mount_point) && !mount_point.exists());

    let daemon = home.start_with(&["--threads", "2"]);
    let mut found = vec![0; data.len()];
    open(&mount_point).read_exact_at(&mut found, 12345).unwrap();
    assert!(found == data);
    let refusal = daemon.refused(&["export", "create", "fast/vm01", "--nbd"]);
    assert!(refusal.contains("exported already"), "{refusal}");
    daemon.ok(&["export", "delete", "fast/vm01"]);
    assert!(!is_mounted(&mount_point) && !mount_point.exists());
    daemon.ok(&["volume", "delete", "fast/vm01", "--yes"]);
    daemon.stop();
}

#[test]
fn an_open_fuse_export_is_removed_by_force_only() {
    let home = DaemonHome::new();
    let daemon = home.start();
    if !export(&daemon, &[]) {
        return;
    }
    let mount_point = mount_point(&home);
    let _mounted = UnmountGuard(&mount_point);
    let file = open(&mount_point);
    file.write_all_at(&[5; BLOCK], 0).unwrap();
    let refusal = daemon.refused(&["export", "delete", "fast/vm01"]);
    assert!(refusal.contains("in use as") && refusal.contains("--force"), "{refusal}");
    let refusal = daemon.refused(&["pool", "close", "fast"]);
    assert!(refusal.contains("exported"), "{refusal}");
    file.write_all_at(&[6; BLOCK], 0).unwrap();
    // The export is removed with its pool and returns with it.
    daemon.ok(&["pool", "close", "fast", "--force"]);
    assert!(file.write_at(&[7; BLOCK], 0).is_err());
    assert!(!is_mounted(&mount_point));
    assert_eq!(daemon.json(&["export", "list"])[0]["state"], "waiting");
    daemon.ok(&["pool", "open", "fast"]);
    let file = open(&mount_point);
    let mut found = [0; BLOCK];
    file.read_exact_at(&mut found, 0).unwrap();
    assert_eq!(found, [6; BLOCK]);
    daemon.ok(&["export", "delete", "fast/vm01", "--force"]);
    assert!(file.read_at(&mut found, 0).is_err());
    assert!(!is_mounted(&mount_point) && !mount_point.exists());
    assert_eq!(daemon.json(&["export", "list"]), json!([]));
    daemon.stop();
}

#[test]
fn an_interrupted_daemon_unmounts_open_files() {
    let home = DaemonHome::new();
    let mut daemon = home.start();
    if !export(&daemon, &[]) {
        return;
    }
    let mount_point = mount_point(&home);
    let _mounted = UnmountGuard(&mount_point);
    let file = open(&mount_point);
    file.write_all_at(&[5; BLOCK], 0).unwrap();
    file.sync_all().unwrap();
    daemon.signal("INT");
    assert_eq!(daemon.wait().code(), Some(0), "{}", daemon.log());
    assert!(daemon.log().contains("removed a file that is open"), "{}", daemon.log());
    assert!(!is_mounted(&mount_point) && !mount_point.exists());
    assert!(file.read_at(&mut [0; BLOCK], 0).is_err());
    drop(daemon);
    let daemon = home.start();
    let mut found = [0; BLOCK];
    open(&mount_point).read_exact_at(&mut found, 0).unwrap();
    assert_eq!(found, [5; BLOCK]);
    daemon.stop();
}

#[test]
fn snapshots_are_read_only_files() {
    let home = DaemonHome::new();
    let daemon = home.start();
    if !export(&daemon, &[]) {
        return;
    }
    let (mount_point, before) = (mount_point(&home), home.path("fuse/fast/vm01@before"));
    let _mounted = (UnmountGuard(&mount_point), UnmountGuard(&before));
    let file = open(&mount_point);
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
fn an_existing_file_at_the_mount_point_is_kept() {
    let home = DaemonHome::new();
    let daemon = home.start();
    std::fs::create_dir_all(home.path("fuse/fast")).unwrap();
    let mount_point = mount_point(&home);
    std::fs::write(&mount_point, "precious").unwrap();
    daemon.make_pool();
    let refusal = daemon.refused(&["export", "create", "fast/vm01", "--fuse"]);
    assert!(
        refusal.contains("was not created by this program") && refusal.contains("--fuse-directory"),
        "{refusal}"
    );
    assert_eq!(std::fs::read(&mount_point).unwrap(), b"precious");
    assert_eq!(daemon.json(&["export", "list"]), json!([]));
    daemon.stop();
}

/// Writes versioned blocks and syncs sometimes, until a write fails. Synced versions must survive;
/// later ones may.
struct SyncingWriter {
    version: AtomicU64,
    synced: Mutex<Vec<u64>>,
    stop: AtomicBool,
}

impl SyncingWriter {
    const BLOCKS: u64 = 512;

    fn content(block: u64, version: u64) -> Vec<u8> {
        match version {
            0 => vec![0; BLOCK],
            version => pattern(block << 32 | version, BLOCK),
        }
    }

    /// Writes until a write fails.
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

    /// Checks that every block holds its synced version or a later one.
    fn check(&self, file: &File) {
        let latest = self.version.load(Ordering::Relaxed);
        let mut synced = self.synced.lock().unwrap();
        for (block, version) in (0..).zip(synced.iter_mut()) {
            let mut found = vec![0; BLOCK];
            file.read_exact_at(&mut found, block * BLOCK as u64).unwrap();
            let fits = |candidate: &u64| found == Self::content(block, *candidate);
            let now = std::iter::once(*version).chain(*version..=latest).find(fits);
            *version = now.unwrap_or_else(|| panic!("block {block} lost version {version}"));
        }
    }
}

#[test]
fn synced_data_survives_kills_and_stale_mounts_are_removed() {
    let rounds: u64 = std::env::var("GABION_CRASH_ROUNDS").map_or(4, |rounds| rounds.parse().unwrap());
    let home = DaemonHome::new();
    let mut daemon = home.start_with(&["--threads", "2"]);
    if !export(&daemon, &[]) {
        return;
    }
    let mount_point = mount_point(&home);
    let _mounted = UnmountGuard(&mount_point);
    let writer = SyncingWriter {
        version: AtomicU64::new(0),
        synced: Mutex::new(vec![0; SyncingWriter::BLOCKS as usize]),
        stop: AtomicBool::new(false),
    };
    for round in 0..rounds {
        writer.stop.store(false, Ordering::Relaxed);
        let before = writer.version.load(Ordering::Relaxed);
        let options = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(OFlags::DIRECT.bits() as i32)
            .open(&mount_point);
        // A file that stays open during the kill, as for a loop device.
        let open_file = options.unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| writer.run(&open(&mount_point)));
            let enough = before + 200 + round * 150;
            until("the writer makes progress", || writer.version.load(Ordering::Relaxed) > enough);
            daemon.kill();
            until("the writer gets an error", || writer.stop.load(Ordering::Relaxed));
        });
        assert!(open_file.metadata().is_err() || open_file.read_at(&mut [0; BLOCK], 0).is_err());
        assert!(std::fs::metadata(&mount_point).is_err(), "the stale mount point is inaccessible");
        daemon = home.start_with(&["--threads", "2"]);
        assert!(daemon.log().contains("removed a stale mount"), "{}", daemon.log());
        let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        let mounts = table.lines().filter(|line| line.split(' ').nth(4) == mount_point.to_str()).count();
        assert_eq!(mounts, 1, "one mount without another one below");
        writer.check(&open(&mount_point));
    }
    daemon.stop();
}

#[test]
fn a_file_system_works_on_a_fuse_export() {
    if !test_support::has_loop() || !test_support::has_programs(&["losetup", "mkfs.ext4", "e2fsck", "fstrim"])
    {
        return;
    }
    let home = DaemonHome::new();
    let daemon = home.start_with(&["--threads", "2"]);
    if !export(&daemon, &[]) {
        return;
    }
    let (mount_point, at) = (mount_point(&home), home.path("mnt"));
    let (file, mnt) = (mount_point.to_str().unwrap(), at.to_str().unwrap());
    let _mounted = UnmountGuard(&mount_point);
    run("mkfs.ext4", &["-q", file]);
    let device = LoopDevice::attach(file);
    std::fs::create_dir(&at).unwrap();
    run("mount", &[&device.0, mnt]);
    let _at = UnmountGuard(&at);
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
    assert!(stored() < full + (4 << 20), "trimmed space is not free: {} after {full}", stored());
    let refusal = daemon.refused(&["export", "delete", "fast/vm01"]);
    assert!(refusal.contains("in use"), "{refusal}");
    unmount(mnt);
    drop(device);
    // Another program that looks at all devices can delay it, and `mount` would use the old device.
    until("the device is detached", || run("losetup", &["--associated", file]).is_empty());
    run("e2fsck", &["-fn", file]);

    // Again with a new daemon and a failed drive.
    daemon.kill();
    let daemon = home.start_with(&["--threads", "2"]);
    daemon.ok(&["drive", "fail", "fast", "2", "--yes"]);
    run("mount", &["-o", "loop,ro", file, mnt]);
    assert!(std::fs::read(at.join("data")).unwrap() == data);
    unmount(mnt);
    until("the file is closed", || daemon.json(&["export", "list"])[0]["connections"] == 0);
    daemon.ok(&["export", "delete", "fast/vm01"]);
}

#[test]
fn loop_devices_of_a_killed_daemon_are_detached() {
    if !test_support::has_loop() || !test_support::has_programs(&["losetup"]) {
        return;
    }
    let home = DaemonHome::new();
    let daemon = home.start();
    if !export(&daemon, &[]) {
        return;
    }
    let mount_point = mount_point(&home);
    let _mounted = UnmountGuard(&mount_point);
    let device = LoopDevice::attach(mount_point.to_str().unwrap());
    let attributes = Path::new("/sys/block").join(device.0.trim_start_matches("/dev/")).join("loop");
    daemon.kill();
    // The kernel still has the device, and nothing else uses it.
    assert!(attributes.exists());
    let daemon = home.start();
    assert!(daemon.log().contains("detached a loop device"), "{}", daemon.log());
    until("the device is detached", || !attributes.exists());
    // A new device of the same file works.
    drop(device);
    let device = LoopDevice::attach(mount_point.to_str().unwrap());
    std::fs::read(&device.0).unwrap();
}

/// Returns true if the path can neither be opened nor created, even by root.
fn is_inaccessible(mount_point: &Path) -> bool {
    let open = |create| OpenOptions::new().write(true).create(create).open(mount_point).is_ok();
    !open(false) && !open(true)
}

#[test]
fn the_mount_point_is_inaccessible_while_the_pool_is_closed() {
    let home = DaemonHome::new();
    let daemon = home.start();
    if !export(&daemon, &[]) {
        return;
    }
    let mount_point = mount_point(&home);
    let _mounted = UnmountGuard(&mount_point);
    open(&mount_point).write_all_at(&[5; BLOCK], 0).unwrap();
    daemon.kill();
    // The next daemon cannot open the pool.
    std::fs::rename(home.path("drives"), home.path("elsewhere")).unwrap();
    let mut daemon = home.start();
    assert_eq!(daemon.json(&["export", "list"])[0]["state"], "waiting");
    assert!(!is_mounted(&mount_point), "the stale mount is removed");
    assert!(is_inaccessible(&mount_point));
    std::fs::rename(home.path("elsewhere"), home.path("drives")).unwrap();
    daemon.ok(&["pool", "open", "fast"]);
    let mut found = [0; BLOCK];
    open(&mount_point).read_exact_at(&mut found, 0).unwrap();
    assert_eq!(found, [5; BLOCK]);
    // The path is also inaccessible while the pool is closed, and removed with the daemon or the
    // export.
    daemon.ok(&["pool", "close", "fast", "--force"]);
    assert!(is_inaccessible(&mount_point));
    // The daemon shuts down cleanly, although its log has the error of the missing pool.
    daemon.signal("TERM");
    assert_eq!(daemon.wait().code(), Some(0), "{}", daemon.log());
    assert!(std::fs::symlink_metadata(&mount_point).is_err());
    let daemon = home.start();
    assert!(is_inaccessible(&mount_point));
    daemon.ok(&["export", "delete", "fast/vm01"]);
    assert!(std::fs::symlink_metadata(&mount_point).is_err());
}
