//! File systems on a loop device over a FUSE export, while the daemon is killed repeatedly.
//!
//! After each kill, the file system replays its journal and holds every file that was synced,
//! in the synced version or a later one. `GABION_CRASH_ROUNDS` sets the number of kills.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};

use super::harness::{DaemonHome, until};
use super::mounts::{LoopDevice, UnmountGuard, run, unmount};
use super::nbd::pattern;

const FILES: u64 = 24;

/// A file system with the program that checks it without changes.
struct FileSystem {
    make: &'static [&'static str],
    check: &'static [&'static str],
    mount_options: &'static str,
}

const EXT4: FileSystem =
    FileSystem { make: &["mkfs.ext4", "-q"], check: &["e2fsck", "-fn"], mount_options: "noatime" };
// A clone of a file system with the same UUID may be mounted on the host.
const XFS: FileSystem =
    FileSystem { make: &["mkfs.xfs", "-q"], check: &["xfs_repair", "-n"], mount_options: "nouuid" };

/// Replaces files by new versions in a directory, each synced before the next one.
struct FileReplacer {
    /// The synced version of each file; 0 if there is none.
    synced: Vec<u64>,
    version: u64,
}

impl FileReplacer {
    fn content(file: u64, version: u64) -> Vec<u8> {
        let length = 1 + (file * 7919 + version * 104_729) % 200_000;
        let mut content = version.to_le_bytes().to_vec();
        content.extend(pattern(file << 32 | version, length as usize));
        content
    }

    fn replace(&mut self, directory: &Path) -> std::io::Result<()> {
        self.version += 1;
        let file = self.version % FILES;
        let temporary = directory.join("new");
        let mut new = File::create(&temporary)?;
        new.write_all(&Self::content(file, self.version))?;
        new.sync_all()?;
        std::fs::rename(&temporary, directory.join(file.to_string()))?;
        File::open(directory)?.sync_all()?;
        self.synced[file as usize] = self.version;
        Ok(())
    }

    /// Replaces files until the daemon is killed.
    fn replace_until_killed(&mut self, directory: &Path, replaced: &AtomicU64) {
        while self.replace(directory).is_ok() {
            replaced.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[track_caller]
    fn verify(&mut self, directory: &Path) {
        for file in 0..FILES {
            let synced = self.synced[file as usize];
            let Ok(found) = std::fs::read(directory.join(file.to_string())) else {
                assert_eq!(synced, 0, "file {file} is missing");
                continue;
            };
            let version = u64::from_le_bytes(found[..8].try_into().unwrap());
            assert!((synced..=self.version).contains(&version), "file {file}: {version} after {synced}");
            assert!(found == Self::content(file, version), "file {file}: wrong content of version {version}");
            self.synced[file as usize] = version;
        }
    }
}

fn survives_kills(file_system: &FileSystem) {
    let rounds: u64 = std::env::var("GABION_CRASH_ROUNDS").map_or(3, |rounds| rounds.parse().unwrap());
    let programs = ["losetup", file_system.make[0], file_system.check[0]];
    if !test_support::has_fuse() || !test_support::has_loop() || !test_support::has_programs(&programs) {
        return;
    }
    let home = DaemonHome::new();
    let mut daemon = home.start_with(&["--threads", "2"]);
    daemon.make_pool();
    daemon.ok(&["export", "create", "fast/vm01", "--fuse"]);
    let export = home.path("fuse/fast/vm01");
    let (path, at) = (export.to_str().unwrap().to_owned(), home.path("mnt"));
    let mnt = at.to_str().unwrap();
    std::fs::create_dir(&at).unwrap();
    let _export = UnmountGuard(&export);
    run(file_system.make[0], &[&file_system.make[1..], &[&path]].concat());
    let mut files = FileReplacer { synced: vec![0; FILES as usize], version: 0 };
    for round in 0..rounds {
        let device = LoopDevice::attach(&path);
        run("mount", &["-o", file_system.mount_options, &device.0, mnt]);
        let mounted = UnmountGuard(&at);
        files.verify(&at);
        let replaced = AtomicU64::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| files.replace_until_killed(&at, &replaced));
            until("files are replaced", || replaced.load(Ordering::Relaxed) >= 5 + round * 7 % 40);
            daemon.kill();
        });
        // The file system cannot write its journal any more.
        let _ = Command::new("umount").arg(mnt).output().unwrap();
        drop(mounted);
        drop(device);
        daemon = home.start_with(&["--threads", "2"]);
    }
    let device = LoopDevice::attach(&path);
    run("mount", &["-o", file_system.mount_options, &device.0, mnt]);
    let mounted = UnmountGuard(&at);
    files.verify(&at);
    unmount(mnt);
    drop(mounted);
    run(file_system.check[0], &[&file_system.check[1..], &[&device.0]].concat());
    drop(device);
    until("the file is closed", || daemon.json(&["export", "list"])[0]["connections"] == 0);
    daemon.stop();
}

#[test]
fn ext4_survives_kills_of_the_daemon() {
    survives_kills(&EXT4);
}

#[test]
fn xfs_survives_kills_of_the_daemon() {
    survives_kills(&XFS);
}
