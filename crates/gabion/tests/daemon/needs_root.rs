//! Tests that need root: read-only drives, mounted drives, full file systems.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::harness::{DaemonHome, Holder};
use super::mounts::LoopDevice;
use super::nbd::{Client, pattern};

/// Error numbers of NBD.
const NO_SPACE: u32 = 28;

/// A tmpfs mount, unmounted on drop.
struct TmpfsMount(PathBuf);

impl TmpfsMount {
    /// Mounts a tmpfs; returns `None` if tests that mount are skipped.
    fn memory(at: PathBuf, size: &str) -> Option<Self> {
        if !test_support::has_root() {
            return None;
        }
        std::fs::create_dir_all(&at).unwrap();
        let options = format!("size={size}");
        mount(&["-t", "tmpfs", "-o", &options, "none"], &at);
        Some(Self(at))
    }

    fn remount(&self, options: &str) {
        let options = format!("remount,{options}");
        mount(&["-o", &options], &self.0);
    }
}

#[track_caller]
fn mount(arguments: &[&str], at: &Path) {
    let output = Command::new("mount").args(arguments).arg(at).output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

impl Drop for TmpfsMount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// Attaches a file to a loop device, with options of losetup. Returns `None` where that is not
/// possible.
fn attach(file: &str, options: &[&str]) -> Option<LoopDevice> {
    let is_possible = test_support::has_loop() && test_support::has_program("losetup");
    is_possible.then(|| LoopDevice::attach_with(file, options))
}

#[test]
fn a_full_file_system_below_file_drives_fails_writes_without_data_loss() {
    let home = DaemonHome::new();
    let Some(filesystem) = TmpfsMount::memory(home.path("small"), "64M") else { return };
    let daemon = home.start();
    let files = home.arg("small/drives");
    daemon.ok(&[
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
    daemon.ok(&["volume", "create", "fast/vm01", "--size", "1G"]);
    daemon.ok(&["export", "create", "fast/vm01", "--nbd"]);
    let mut client = Client::connect(&home.nbd_socket(), "fast/vm01").unwrap();
    let mut written = 0;
    let error = loop {
        match client.write(written << 20, &pattern(written, 1 << 20)) {
            Ok(()) => written += 1,
            Err(error) => break error,
        }
        assert!(written < 64, "more was written than there is room for");
    };
    assert_eq!(error, NO_SPACE, "after {written} MiB");
    assert!(written > 4, "only {written} MiB");
    client.flush().unwrap();
    for index in 0..written {
        assert!(client.read(index << 20, 1 << 20).unwrap() == pattern(index, 1 << 20), "{index}");
    }
    let pool = daemon.pool("fast");
    assert_eq!(pool["health"], "healthy", "{pool:#}");

    // The state directory is elsewhere; the pool continues when space is available.
    filesystem.remount("size=400M");
    client.write(written << 20, &pattern(written, 1 << 20)).unwrap();
    client.flush().unwrap();
    drop(client);
    daemon.kill();
    let daemon = home.start();
    let mut client = Client::connect(&home.nbd_socket(), "fast/vm01").unwrap();
    for index in 0..=written {
        assert!(client.read(index << 20, 1 << 20).unwrap() == pattern(index, 1 << 20), "{index}");
    }
    drop(client);
    daemon.stop();
}

#[test]
fn a_pool_is_refused_without_space_for_its_files() {
    let home = DaemonHome::new();
    let Some(_filesystem) = TmpfsMount::memory(home.path("small"), "8M") else { return };
    let daemon = home.start();
    let files = home.arg("small/drives");
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
    assert!(refusal.contains("has no room for it"), "{refusal}");
    assert!(super::harness::names(&home.path("small/drives")).is_empty());
    daemon.stop();
}

#[test]
fn a_full_state_directory_refuses_changes() {
    let home = DaemonHome::new();
    let Some(filesystem) = TmpfsMount::memory(home.path("state"), "1M") else { return };
    let daemon = home.start();
    daemon.make_pool();
    let fill = std::fs::write(home.path("state/filler"), vec![1; 2 << 20]);
    assert!(fill.is_err());
    let refusal = daemon.refused(&["export", "create", "fast/vm01", "--nbd"]);
    assert!(
        refusal.contains("cannot write the daemon's state") && refusal.contains("hint: check the free space"),
        "{refusal}"
    );
    assert_eq!(daemon.json(&["export", "list"]), serde_json::json!([]));
    let files = home.arg("more");
    let refusal = daemon.refused(&[
        "pool",
        "create",
        "more",
        "--scheme",
        "1+1",
        "--files",
        &files,
        "--file-size",
        "32M",
        "--count",
        "2",
    ]);
    assert!(refusal.contains("cannot write the daemon's state"), "{refusal}");
    assert!(!home.path("more").exists());
    std::fs::remove_file(home.path("state/filler")).unwrap();
    daemon.ok(&["export", "create", "fast/vm01", "--nbd"]);
    daemon.stop();
    drop(filesystem);
}

#[test]
fn a_read_only_drive_is_refused() {
    let home = DaemonHome::new();
    let drives: Vec<_> = (0..5).map(|index| home.file(&format!("d{index}"), 64 << 20)).collect();
    let Some(device) = attach(&drives[4], &["--read-only"]) else { return };
    let daemon = home.start();
    let mut create = vec!["pool", "create", "fast", "--scheme", "4+1", "--drives"];
    create.extend(drives[..4].iter().map(String::as_str));
    create.push(&device.0);
    let refusal = daemon.refused(&create);
    assert!(refusal.contains(&device.0) && refusal.contains("hint: make it writable"), "{refusal}");
    daemon.stop();
}

#[test]
fn a_mounted_drive_is_refused_with_its_mount_point() {
    let home = DaemonHome::new();
    let drives: Vec<_> = (0..5).map(|index| home.file(&format!("d{index}"), 64 << 20)).collect();
    if !test_support::has_program("mkfs.ext4") {
        return;
    }
    assert!(Command::new("mkfs.ext4").args(["-q", "-F", &drives[4]]).status().unwrap().success());
    let Some(device) = attach(&drives[4], &[]) else { return };
    let at = home.path("mounted");
    std::fs::create_dir(&at).unwrap();
    mount(&[&device.0], &at);
    let mounted = TmpfsMount(at);
    let daemon = home.start();
    let mut create = vec!["pool", "create", "fast", "--scheme", "4+1", "--wipe", "--yes", "--drives"];
    create.extend(drives[..4].iter().map(String::as_str));
    create.push(&device.0);
    let refusal = daemon.refused(&create);
    let mount = format!("is mounted at {}", mounted.0.display());
    assert!(
        refusal.contains(&mount) && refusal.contains("--wipe does not apply to drives in use"),
        "{refusal}"
    );
    // The file below the device is refused as well.
    *create.last_mut().unwrap() = &drives[4];
    let refusal = daemon.refused(&create);
    assert!(refusal.contains(&format!("in use as {}", device.0)), "{refusal}");
    assert!(std::fs::read_dir(&mounted.0).unwrap().count() > 0);
    daemon.stop();
}

#[test]
fn a_device_open_for_writing_is_refused_even_with_wipe() {
    let home = DaemonHome::new();
    let drives: Vec<_> = (0..5).map(|index| home.file(&format!("d{index}"), 64 << 20)).collect();
    let Some(device) = attach(&drives[4], &[]) else { return };
    let daemon = home.start();
    let mut create = vec!["pool", "create", "fast", "--scheme", "4+1", "--wipe", "--yes", "--drives"];
    create.extend(drives[..4].iter().map(String::as_str));
    create.push(&device.0);
    let writer = Holder::of(&device.0, ">>");
    let refusal = daemon.refused(&create);
    let name = device.0.strip_prefix("/dev/").unwrap();
    let expected = format!("process {} (cat) has {name} open for writing", writer.pid());
    assert!(
        refusal.contains(&expected) && refusal.contains("--wipe does not apply to drives in use"),
        "{refusal}"
    );
    drop(writer);
    daemon.ok(&create);
    daemon.stop();
}

#[test]
fn a_pool_is_created_on_block_devices() {
    let home = DaemonHome::new();
    let drives: Vec<_> = (0..3).map(|index| home.file(&format!("d{index}"), 64 << 20)).collect();
    let devices: Vec<_> = drives.iter().map_while(|drive| attach(drive, &[])).collect();
    if devices.len() < drives.len() {
        return;
    }
    let daemon = home.start();
    let mut create = vec!["pool", "create", "fast", "--level", "5", "--drives"];
    create.extend(devices.iter().map(|device| device.0.as_str()));
    daemon.ok(&create);
    daemon.ok(&["volume", "create", "fast/vm01", "--size", "1G"]);
    daemon.ok(&["export", "create", "fast/vm01", "--nbd"]);
    let mut client = Client::connect(&home.nbd_socket(), "fast/vm01").unwrap();
    client.write(0, &pattern(1, 1 << 20)).unwrap();
    client.flush().unwrap();
    drop(client);
    daemon.kill();
    let daemon = home.start();
    let mut client = Client::connect(&home.nbd_socket(), "fast/vm01").unwrap();
    assert!(client.read(0, 1 << 20).unwrap() == pattern(1, 1 << 20));
    drop(client);
    daemon.stop();
}
