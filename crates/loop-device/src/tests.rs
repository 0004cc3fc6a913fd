//! Loop devices of this host; these tests require root.

use std::os::unix::fs::FileExt;

use super::*;

const SIZE: u64 = 1 << 20;
const OPTIONS: LoopOptions = LoopOptions { sector: 4096, read_only: false };

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
}

impl Drop for Backing {
    fn drop(&mut self) {
        for device in LoopDevice::all_of(&self.path).unwrap() {
            let _ = device.detach();
        }
    }
}

/// Detaches the device with this name, as `losetup --detach` does.
fn detach_by_name(path: &Path) {
    requests::detach(&File::open(path).unwrap()).unwrap();
}

#[test]
fn a_file_is_a_device_until_it_is_detached() {
    let Some(backing) = Backing::new() else { return };
    let device = LoopDevice::attach(&backing.path, OPTIONS).unwrap();
    device.device.write_all_at(&[7; 4096], 8192).unwrap();
    device.device.sync_all().unwrap();
    let mut found = [0; 4096];
    File::open(&backing.path).unwrap().read_exact_at(&mut found, 8192).unwrap();
    assert_eq!(found, [7; 4096]);
    assert_eq!(rustix::fs::ioctl_blksszget(&device.device).unwrap(), 4096);
    assert!(device.reads_from(&backing.path));
    assert_eq!(paths_of(&backing.path), [device.path()]);

    File::options().write(true).open(&backing.path).unwrap().set_len(2 * SIZE).unwrap();
    device.update_size().unwrap();
    assert_eq!(rustix::fs::seek(&device.device, rustix::fs::SeekFrom::End(0)).unwrap(), 2 * SIZE);

    device.detach().unwrap();
    assert!(paths_of(&backing.path).is_empty());
    assert!(LoopDevice::all_of(&backing.path).unwrap().is_empty());
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
    other.detach().unwrap();
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

    device.device.write_all_at(&[7; 4096], 0).unwrap();
    drop(device);
    assert!(paths_of(&backing.path).is_empty(), "the kernel completes the detachment");
}

#[test]
fn a_device_of_a_replaced_file_is_told_from_one_of_the_new_file() {
    let Some(backing) = Backing::new() else { return };
    let device = LoopDevice::attach(&backing.path, OPTIONS).unwrap();
    let new = backing.directory.path().join("new");
    File::create(&new).unwrap().set_len(SIZE).unwrap();
    assert!(!device.reads_from(&new));
    assert!(!device.reads_from(&backing.directory.path().join("missing")));
    device.detach().unwrap();
}

#[test]
fn only_devices_with_a_file_are_opened() {
    let Some(backing) = Backing::new() else { return };
    assert!(LoopDevice::open(Path::new("/dev/loop-none")).unwrap().is_none());
    assert!(LoopDevice::open(&backing.path).is_err());
    let device = LoopDevice::attach(&backing.path, OPTIONS).unwrap();
    let opened = LoopDevice::open(device.path()).unwrap().unwrap();
    assert_eq!(opened.path(), device.path());
    drop(device);
    opened.detach().unwrap();
}
