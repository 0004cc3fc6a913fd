//! Tests of drives on real block devices and full file systems: loop devices and a small mount,
//! which require root.
//!
//! Without root each test fails, unless it is skipped by name (`test_support::SKIP`).
#![allow(clippy::unwrap_used, reason = "all of this file is tests")]

use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::Command;
use std::rc::Rc;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use reactor::{
    Backend, Buffer, Clock, Drive, DriveHandle, DriveOptions, FileDrive, IoErrorKind, OpenDriveErrorKind,
    Platform, Reactor, SystemClock, create_file,
};
use tempfile::TempDir;

const SIZE: u64 = 16 << 20;
const NO_WAIT: DriveOptions = DriveOptions { read_only: false, direct: true, busy_timeout: Duration::ZERO };

/// Serialises the tests: a program started by another test would briefly inherit this one's
/// descriptors and keep its devices in use.
fn serialise() -> Option<MutexGuard<'static, ()>> {
    static TURN: Mutex<()> = Mutex::new(());
    let has_all = test_support::has_loop() && test_support::has_program("losetup");
    has_all.then(|| TURN.lock().unwrap_or_else(|poisoned| poisoned.into_inner()))
}

fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{program} {arguments:?}: {errors}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// A loop device on a file of its own.
struct Loop {
    device: String,
    file: PathBuf,
    _directory: TempDir,
}

impl Loop {
    fn new(options: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("backing");
        create_file(&file, SIZE).unwrap();
        let arguments: Vec<&str> =
            ["--find", "--show"].into_iter().chain(options.iter().copied()).chain(file.to_str()).collect();
        Self { device: run("losetup", &arguments), file, _directory: directory }
    }

    fn open(&self) -> DriveHandle {
        FileDrive::open(&self.device, NO_WAIT).unwrap()
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        run("losetup", &["--detach", &self.device]);
    }
}

fn on_each_backend<F: Future<Output = ()>>(test: impl Fn(Rc<Platform>) -> F) {
    for backend in [Backend::Uring, Backend::Threads] {
        let clock: Rc<dyn Clock> = Rc::new(SystemClock::new());
        let platform = Platform::new(backend, clock.clone()).unwrap();
        let reactor = Reactor::new(platform.clone(), clock);
        reactor.run(test(platform));
    }
}

async fn round_trip(drive: &dyn Drive, offset: u64, shift: usize) {
    let data: Vec<u8> = (0..65536u32).map(|index| ((index * 31) >> 3) as u8).collect();
    let span = Buffer::new(131_072).span();
    let (from, into) = (span.slice(shift..shift + data.len()), Buffer::zeroed(data.len()).span());
    from.copy_from(0, &data);
    assert_eq!(drive.write(offset, &[from]).await, Ok(data.len()));
    assert_eq!(drive.flush().await, Ok(0));
    assert_eq!(drive.read(offset, std::slice::from_ref(&into)).await, Ok(data.len()));
    let mut back = vec![0; data.len()];
    into.copy_to(0, &mut back);
    assert!(back == data);
}

#[test]
fn a_block_device_is_a_drive() {
    let Some(_turn) = serialise() else { return };
    let device = Loop::new(&[]);
    let handle = device.open();
    assert!(handle.is_block_device() && handle.is_direct() && !handle.is_read_only());
    let properties = handle.properties();
    assert_eq!((properties.size, properties.logical_sector), (SIZE, 512));
    assert!(properties.discard);
    on_each_backend(async |platform| {
        let drive = handle.open_on(&platform);
        for shift in [0, 512, 1, 4095] {
            round_trip(&*drive, SIZE - 65536, shift).await;
        }
        assert_eq!(drive.reserve(0, SIZE).await, Ok(0));
        let past = drive.write(SIZE, &[Buffer::zeroed(4096).span()]).await;
        assert_eq!(past.unwrap_err().kind(), IoErrorKind::OutOfRange);
    });
}

#[test]
fn a_discarded_block_device_gives_its_space_back() {
    let Some(_turn) = serialise() else { return };
    let device = Loop::new(&[]);
    let handle = device.open();
    let allocated = || std::fs::metadata(&device.file).unwrap().blocks() * 512;
    on_each_backend(async |platform| {
        let drive = handle.open_on(&platform);
        let whole = Buffer::copy_of(&[0x5a; SIZE as usize]);
        assert_eq!(drive.write(0, &[whole.span()]).await, Ok(SIZE as usize));
        assert_eq!(drive.flush().await, Ok(0));
        let before = allocated();
        assert!(before >= SIZE);
        assert_eq!(drive.discard(SIZE / 2, SIZE / 2).await, Ok(0));
        assert!(allocated() <= before - SIZE / 2);
    });
}

#[test]
fn large_sectors_require_no_memory_alignment() {
    let Some(_turn) = serialise() else { return };
    let device = Loop::new(&["--sector-size", "4096"]);
    let handle = device.open();
    assert_eq!(handle.properties().logical_sector, 4096);
    on_each_backend(async |platform| {
        let drive = handle.open_on(&platform);
        for shift in [0, 512, 3] {
            round_trip(&*drive, 4096, shift).await;
        }
    });
}

#[test]
fn a_block_device_belongs_to_one_writer() {
    let Some(_turn) = serialise() else { return };
    let device = Loop::new(&[]);
    let handle = device.open();
    let second = FileDrive::open(&device.device, NO_WAIT);
    assert_eq!(second.unwrap_err().kind(), OpenDriveErrorKind::InUse);
    drop(handle);
    // Not kept in use by a ring that the drive was opened on, nor by the ring's teardown.
    on_each_backend(async |platform| {
        for _ in 0..20 {
            let handle = device.open();
            round_trip(&*handle.open_on(&platform), 0, 0).await;
        }
    });
    device.open();
}

#[test]
fn a_mounted_block_device_is_in_use() {
    let Some(_turn) = serialise() else { return };
    let device = Loop::new(&[]);
    run("mkfs.ext4", &["-q", &device.device]);
    let mount = Mount::new(&["-t", "ext4", &device.device]);
    let refused = FileDrive::open(&device.device, NO_WAIT).unwrap_err();
    assert_eq!(refused.kind(), OpenDriveErrorKind::InUse);
    // Opening it read-only is permitted.
    FileDrive::open(&device.device, DriveOptions { read_only: true, ..NO_WAIT }).unwrap();
    drop(mount);
    device.open();
}

#[test]
fn a_partition_is_a_drive_of_its_own() {
    let Some(_turn) = serialise() else { return };
    let device = Loop::new(&["--partscan"]);
    // In sectors of 512 bytes: 4 MiB from 1 MiB on.
    run("addpart", &[&device.device, "1", "2048", "8192"]);
    let partition = format!("{}p1", device.device);
    let handle = FileDrive::open(&partition, NO_WAIT).unwrap();
    let properties = handle.properties();
    assert_eq!(properties.size, 4 << 20);
    // Only the whole device has this attribute.
    assert!(properties.discard);
    let whole = FileDrive::open(&device.device, NO_WAIT);
    assert_eq!(whole.unwrap_err().kind(), OpenDriveErrorKind::InUse);
    on_each_backend(async |platform| {
        let drive = handle.open_on(&platform);
        round_trip(&*drive, properties.size - 65536, 0).await;
        let past = drive.read(properties.size, &[Buffer::zeroed(4096).span()]).await;
        assert_eq!(past.unwrap_err().kind(), IoErrorKind::OutOfRange);
    });
    drop(handle);
    run("delpart", &[&device.device, "1"]);
}

/// A file system mounted on its own directory.
struct Mount {
    directory: TempDir,
}

impl Mount {
    fn new(options: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let arguments: Vec<&str> = options.iter().copied().chain(directory.path().to_str()).collect();
        run("mount", &arguments);
        Self { directory }
    }

    fn path(&self) -> &str {
        self.directory.path().to_str().unwrap()
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        run("umount", &[self.path()]);
    }
}

#[test]
fn a_full_filesystem_is_no_space_and_a_read_only_one_is_read_only() {
    let Some(_turn) = serialise() else { return };
    let device = Loop::new(&[]);
    run("mkfs.ext4", &["-q", &device.device]);
    for options in [&["-t", "tmpfs", "-o", "size=4m", "none"][..], &["-t", "ext4", &device.device][..]] {
        let mount = Mount::new(options);
        let path = mount.directory.path().join("drive");
        create_file(&path, 64 << 20).unwrap();
        let handle = FileDrive::open(&path, DriveOptions::default()).unwrap();
        on_each_backend(async |platform| {
            let drive = handle.open_on(&platform);
            assert_eq!(drive.reserve(0, 64 << 20).await.unwrap_err().kind(), IoErrorKind::NoSpace);
            let big = Buffer::copy_of(&vec![1; 32 << 20]).span();
            assert_eq!(drive.write(0, &[big]).await.unwrap_err().kind(), IoErrorKind::NoSpace);
            // Existing space is usable, and is available again after a discard.
            assert_eq!(drive.discard(0, 64 << 20).await, Ok(0));
            assert_eq!(drive.reserve(0, 1 << 20).await, Ok(0));
            round_trip(&*drive, 0, 0).await;
        });
        drop(handle);
        run("mount", &["-o", "remount,ro", mount.path()]);
        let refused = FileDrive::open(&path, NO_WAIT).unwrap_err();
        assert_eq!(refused.kind(), OpenDriveErrorKind::ReadOnly);
        FileDrive::open(&path, DriveOptions { read_only: true, ..NO_WAIT }).unwrap();
    }
}

#[test]
fn a_write_protected_device_is_refused_when_it_is_opened() {
    let Some(_turn) = serialise() else { return };
    let device = Loop::new(&["--read-only"]);
    let refused = FileDrive::open(&device.device, NO_WAIT).unwrap_err();
    assert_eq!(refused.kind(), OpenDriveErrorKind::ReadOnly);
    FileDrive::open(&device.device, DriveOptions { read_only: true, ..NO_WAIT }).unwrap();
}
