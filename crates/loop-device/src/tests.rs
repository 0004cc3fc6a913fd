//! Loop devices of this host; these tests require root. Other programs of the host may have a
//! device open for a moment, so that the kernel detaches it later.

use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use super::*;

const SIZE: u64 = 1 << 20;
const OPTIONS: LoopOptions = LoopOptions { sector: 4096, read_only: false };
const DEADLINE: Duration = Duration::from_secs(30);

/// A directory with a file; its devices are detached on drop.
struct Backing {
    directory: tempfile::TempDir,
    path: PathBuf,
}

impl Backing {
    fn new() -> Option<Self> {
        if !test_support::has_loop() {
            return None;
        }
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().canonicalize().unwrap().join("file");
        File::create(&path).unwrap().set_len(SIZE).unwrap();
        Some(Self { directory, path })
    }

    fn until_detached(&self) {
        let started = Instant::now();
        while !paths_of(&self.path).is_empty() {
            assert!(started.elapsed() < DEADLINE, "the device is still attached");
            std::thread::yield_now();
        }
    }
}

impl Drop for Backing {
    fn drop(&mut self) {
        for device in LoopDevice::all_of(&self.path).unwrap_or_default() {
            let _ = device.detach();
        }
    }
}

/// Opens a device for writing.
fn writer(device: &LoopDevice) -> File {
    File::options().read(true).write(true).open(device.path()).unwrap()
}

/// Detaches the device with this name, as `losetup --detach` does.
fn detach_by_name(path: &Path) {
    requests::detach(&File::open(path).unwrap()).unwrap();
}

#[test]
fn a_file_is_a_device_until_it_is_detached() {
    let Some(backing) = Backing::new() else { return };
    let device = LoopDevice::attach(&backing.path, OPTIONS).unwrap();
    // The device is detached with these bytes in its page cache.
    writer(&device).write_all_at(&[7; 4096], 8192).unwrap();
    assert_eq!(rustix::fs::ioctl_blksszget(&device.device).unwrap(), 4096);
    assert!(device.reads_from(&backing.path) && !device.is_dead());
    assert_eq!(paths_of(&backing.path), [device.path()]);

    File::options().write(true).open(&backing.path).unwrap().set_len(2 * SIZE).unwrap();
    device.update_size().unwrap();
    assert_eq!(rustix::fs::seek(&device.device, rustix::fs::SeekFrom::End(0)).unwrap(), 2 * SIZE);

    device.detach().unwrap();
    backing.until_detached();
    assert!(LoopDevice::all_of(&backing.path).unwrap().is_empty());
    let mut found = [0; 4096];
    File::open(&backing.path).unwrap().read_exact_at(&mut found, 8192).unwrap();
    assert_eq!(found, [7; 4096]);
}

#[test]
fn devices_are_found_by_the_whole_path_of_their_file() {
    let Some(backing) = Backing::new() else { return };
    let longer = backing.path.with_file_name("file1");
    File::create(&longer).unwrap().set_len(SIZE).unwrap();
    let device = LoopDevice::attach(&backing.path, OPTIONS).unwrap();
    let other = LoopDevice::attach(&longer, OPTIONS).unwrap();
    let found = LoopDevice::all_of(&backing.path).unwrap();
    assert_eq!(found.iter().map(LoopDevice::path).collect::<Vec<_>>(), [device.path()]);
    assert!(LoopDevice::open_of(other.path(), &backing.path).unwrap().is_none());
    other.detach().unwrap();
}

/// A container that ends takes the mount of the file with it, and leaves the device.
#[test]
fn a_device_is_found_by_its_file_when_the_kernel_shows_no_path() {
    let Some(backing) = Backing::new() else { return };
    let place = backing.path.with_file_name("mount");
    File::create(&place).unwrap();
    rustix::mount::mount_bind(&backing.path, &place).unwrap();
    let device = LoopDevice::attach(&place, OPTIONS);
    rustix::mount::unmount(&place, rustix::mount::UnmountFlags::DETACH).unwrap();
    let device = device.unwrap();
    assert!(device.has_path(Path::new("/")) && !device.is_dead());
    assert!(paths_of(&backing.path).is_empty());
    let found = LoopDevice::all_of(&backing.path).unwrap();
    assert_eq!(found.iter().map(LoopDevice::path).collect::<Vec<_>>(), [device.path()]);
    device.detach().unwrap();
}

#[test]
fn a_read_only_device_refuses_writes() {
    let Some(backing) = Backing::new() else { return };
    let device = LoopDevice::attach(&backing.path, LoopOptions { read_only: true, ..OPTIONS }).unwrap();
    let writer = File::options().write(true).open(device.path());
    let written = writer.and_then(|writer| writer.write_all_at(&[7; 4096], 0));
    assert!(written.is_err());
    device.detach().unwrap();
}

/// A process that detaches a device by its name cannot take the file from a device in use.
#[test]
fn an_open_device_keeps_its_file() {
    let Some(backing) = Backing::new() else { return };
    let device = LoopDevice::attach(&backing.path, OPTIONS).unwrap();
    let path = device.path().to_owned();
    detach_by_name(&path);
    assert!(device.reads_from(&backing.path));
    let other = Backing::new().unwrap();
    let taken = LoopDevice::attach(&other.path, OPTIONS).unwrap();
    assert_ne!(taken.path(), path);
    taken.detach().unwrap();

    writer(&device).write_all_at(&[7; 4096], 0).unwrap();
    drop(device);
    backing.until_detached();
}

#[test]
fn a_device_that_is_used_again_outlives_its_detachment() {
    let Some(backing) = Backing::new() else { return };
    let user = LoopDevice::ensure(&backing.path, OPTIONS).unwrap();
    let path = user.path().to_owned();
    detach_by_name(&path);
    File::options().write(true).open(&backing.path).unwrap().set_len(2 * SIZE).unwrap();
    let again = LoopDevice::ensure(&backing.path, OPTIONS).unwrap();
    assert_eq!(again.path(), path);
    assert_eq!(rustix::fs::seek(&again.device, rustix::fs::SeekFrom::End(0)).unwrap(), 2 * SIZE);
    drop((user, again));
    let device = LoopDevice::open_of(&path, &backing.path).unwrap().unwrap();
    device.detach().unwrap();
    backing.until_detached();
}

#[test]
fn a_device_of_a_replaced_file_is_told_from_one_of_the_new_file() {
    let Some(backing) = Backing::new() else { return };
    let device = LoopDevice::attach(&backing.path, OPTIONS).unwrap();
    let new = backing.directory.path().join("new");
    File::create(&new).unwrap().set_len(SIZE).unwrap();
    std::fs::rename(&new, &backing.path).unwrap();
    assert!(!device.reads_from(&backing.path));
    assert!(!device.reads_from(&backing.directory.path().join("missing")));
    device.detach().unwrap();
}

#[test]
fn only_devices_with_a_file_are_opened() {
    let Some(backing) = Backing::new() else { return };
    assert_eq!(LoopDevice::open(Path::new("/dev/loop-none")).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(LoopDevice::open(&backing.path).unwrap_err().kind(), ErrorKind::InvalidInput);
    let device = LoopDevice::attach(&backing.path, OPTIONS).unwrap();
    let opened = LoopDevice::open(device.path()).unwrap().unwrap();
    assert_eq!(opened.path(), device.path());
    let path = device.path().to_owned();
    drop(device);
    opened.detach().unwrap();
    backing.until_detached();
    // Another process may attach its own file to the free device.
    assert!(LoopDevice::open_of(&path, &backing.path).unwrap().is_none());
}
