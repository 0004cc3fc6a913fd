//! Tests of `gabion lab` with loop devices: limits, refusal to touch other devices, complete
//! removal.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "all of this is tests")]

use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// O_DIRECT on x86 and most other architectures.
const O_DIRECT: i32 = 0o40_000;

/// Serializes the tests: loop devices have few numbers, and one test removes a device of a lab.
static ALONE: Mutex<()> = Mutex::new(());

fn exclusive() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn gabion(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_gabion")).args(arguments).stdin(Stdio::null()).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A lab, removed on drop.
struct Lab {
    name: String,
    devices: Vec<PathBuf>,
}

impl Lab {
    /// Creates a lab; returns `None` if tests that need one are skipped.
    fn up(suffix: &str, arguments: &[&str]) -> Option<Self> {
        if !test_support::has_loop() || !test_support::has("lab", Ok(())) {
            return None;
        }
        let name = format!("test-{suffix}-{}", std::process::id());
        let output = gabion(&[&["lab", "up", &name], arguments].concat());
        let found = output.status.success().then_some(()).ok_or_else(|| text(&output.stderr));
        if !test_support::has("lab", found) {
            return None;
        }
        let shown = gabion(&["lab", "status", "--json"]);
        let labs: serde_json::Value = serde_json::from_slice(&shown.stdout).unwrap();
        let lab = labs.as_array().unwrap().iter().find(|lab| lab["name"] == name.as_str()).unwrap().clone();
        let device = |drive: &serde_json::Value| PathBuf::from(drive["device"].as_str().unwrap());
        let devices = lab["drives"].as_array().unwrap().iter().map(device).collect();
        Some(Self { name, devices })
    }

    fn down(&self) -> Output {
        gabion(&["lab", "down", &self.name])
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        let _ = self.down();
    }
}

fn backing_file(device: &Path) -> Option<String> {
    let name = device.file_name().unwrap().to_str().unwrap();
    std::fs::read_to_string(format!("/sys/block/{name}/loop/backing_file")).ok()
}

fn queue(device: &Path, file: &str) -> String {
    let name = device.file_name().unwrap().to_str().unwrap();
    std::fs::read_to_string(format!("/sys/block/{name}/queue/{file}")).unwrap()
}

/// An aligned buffer for direct I/O.
#[repr(align(4096))]
struct Block([u8; 4096]);

#[test]
fn a_lab_drive_reaches_and_keeps_its_limit() {
    let _alone = exclusive();
    let arguments = ["--drives", "2", "--size", "64M", "--model", "disk-7200", "--fraction", "1/1"];
    let Some(lab) = Lab::up("limit", &arguments) else { return };
    // The disk does 79 reads per second; without a limit this takes a few milliseconds.
    let script = format!("exec dd if={} of=/dev/null bs=4k count=79 iflag=direct", lab.devices[0].display());
    let started = Instant::now();
    let ran = gabion(&["lab", "run", "--lab", &lab.name, "--", "sh", "-c", &script]);
    assert!(ran.status.success(), "{}", text(&ran.stderr));
    let took = started.elapsed().as_secs_f64();
    assert!(took > 0.7, "79 reads took {took} s");
    // A loop device's queue must be as deep as that of a drive.
    if queue(&lab.devices[1], "scheduler").contains("mq-deadline") {
        assert_eq!(queue(&lab.devices[1], "nr_requests").trim(), "1023");
        assert!(lab.down().status.success());
        assert!(queue(&lab.devices[1], "scheduler").contains("[none]"), "the scheduler is unchanged");
    }
}

#[test]
fn devices_in_use_or_of_others_are_kept() {
    let _alone = exclusive();
    let Some(lab) = Lab::up("use", &["--drives", "2", "--size", "64M"]) else { return };
    let again = gabion(&["lab", "up", &lab.name]);
    assert!(text(&again.stderr).contains("already"), "{}", text(&again.stderr));
    // A process reads a drive.
    let device = &lab.devices[1];
    let mut open = std::fs::File::options().read(true).custom_flags(O_DIRECT).open(device).unwrap();
    let refused = lab.down();
    assert!(text(&refused.stderr).contains("in use"), "{}", text(&refused.stderr));
    assert!(lab.devices.iter().all(|device| backing_file(device).is_some()));
    let mut block = Box::new(Block([0; 4096]));
    open.seek(SeekFrom::Start(4096)).unwrap();
    open.read_exact(&mut block.0).unwrap();
    drop(open);
    // Another file is attached to the device.
    let place = tempfile::tempdir().unwrap();
    let other = place.path().join("other.img");
    std::fs::File::create(&other).unwrap().set_len(1 << 20).unwrap();
    let losetup = |arguments: &[&str]| {
        assert!(Command::new("losetup").args(arguments).status().unwrap().success(), "{arguments:?}");
    };
    let device = device.to_str().unwrap();
    losetup(&["--detach", device]);
    losetup(&[device, other.to_str().unwrap()]);
    let refused = lab.down();
    assert!(text(&refused.stderr).contains("does not match the lab's record"), "{}", text(&refused.stderr));
    assert!(backing_file(Path::new(device)).unwrap().contains("other.img"));
    losetup(&["--detach", device]);
    let done = lab.down();
    assert!(done.status.success(), "{}", text(&done.stderr));
    assert!(!text(&gabion(&["lab", "status"]).stdout).contains(&lab.name));
    assert!(text(&lab.down().stderr).contains("does not exist"));
    // The device numbers are free again.
    let again = Lab::up("again", &["--drives", "2", "--size", "64M"]).unwrap();
    assert!(again.down().status.success());
}

#[test]
fn an_interrupted_or_failed_creation_leaves_nothing() {
    let _alone = exclusive();
    let Some(lab) = Lab::up("probe", &["--drives", "1", "--size", "64M"]) else { return };
    drop(lab);
    let name = format!("test-cut-{}", std::process::id());
    let child = Command::new(env!("CARGO_BIN_EXE_gabion"))
        .args(["lab", "up", &name, "--drives", "64", "--size", "64M"])
        .stderr(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    // As soon as the record lists drives.
    let record = PathBuf::from(format!("/run/gabion-lab/{name}/lab.json"));
    let begun = || std::fs::read_to_string(&record).is_ok_and(|text| text.contains("\"device\""));
    let deadline = Instant::now() + std::time::Duration::from_secs(60);
    while !begun() && Instant::now() < deadline {
        std::thread::yield_now();
    }
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    let error = text(&output.stderr);
    assert!(!output.status.success() && error.contains("nothing was left behind"), "{error}");
    assert!(!record.exists());
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(!mounts.contains(&name));
    // Names, sizes and free space are checked first.
    for (arguments, expected) in [
        (["lab", "up", "a/b", "--size", "64M"], "invalid lab name"),
        (["lab", "up", "x", "--size", "4K"], "at least"),
        (["lab", "up", "x", "--size", "64T"], "do not fit into memory"),
        (["lab", "up", "x", "--model", "floppy"], "unknown drive model 'floppy'"),
    ] {
        let error = text(&gabion(&arguments).stderr);
        assert!(error.contains(expected), "{error}");
    }
}
