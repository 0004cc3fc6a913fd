//! Tests of parts, on a file drive and on a loop device.

use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::Command;

use super::*;
use crate::transport::Transport;

const FIRST: &str = "4317d4ea-d0b2-42f8-ba1e-10bb8580f799";
const SECOND: &str = "9d1b1c0e-55d7-4b0c-8f6a-0c6f6ac2a111";

fn placement(drive: &str) -> OsdPlacement {
    OsdPlacement {
        format: "bluestore".into(),
        db: Some(drive.into()),
        db_size: Some(200 << 20),
        wal: Some(drive.into()),
        wal_size: Some(130 << 20),
    }
}

fn run(script: &str) -> Result<String, ceph::Error> {
    Ok(String::from_utf8_lossy(&Transport::Local.run(script)?).into_owned())
}

/// Makes the parts of an OSD, and returns the paths of the database and of the log.
fn make(drive: &str, identity: &str, new: &Path) -> Result<[String; 2], ceph::Error> {
    let _ = std::fs::remove_dir_all(new);
    std::fs::create_dir(new).unwrap();
    run(&format!("new={}\n{}", new.display(), make_script(&placement(drive), identity)))?;
    let target = |name: &str| std::fs::read_link(new.join(name)).unwrap().to_str().unwrap().to_owned();
    Ok([target("block.db"), target("block.wal")])
}

fn free(drive: &str, identity: &str) {
    run(&free_script(&placement(drive), identity)).unwrap();
}

#[test]
fn an_osd_on_one_drive_has_no_scripts() {
    let alone = OsdPlacement::default();
    assert_eq!(make_script(&alone, FIRST), "");
    assert_eq!(check_script(&alone, FIRST, "0"), "");
    assert_eq!(free_script(&alone, FIRST), "");
}

#[test]
fn parts_of_a_file_drive_are_files_beside_it() {
    let directory = tempfile::tempdir().unwrap();
    let drive = directory.path().join("it's fast").to_str().unwrap().to_owned();
    let new = directory.path().join("new");
    let error = make(&drive, FIRST, &new).unwrap_err();
    assert!(error.to_string().contains("does not exist"), "{error}");
    std::fs::File::create(&drive).unwrap().set_len(1 << 30).unwrap();
    let parts = make(&drive, FIRST, &new).unwrap();
    let sizes = parts.clone().map(|part| std::fs::metadata(part).unwrap().len());
    assert_eq!(sizes, [200 << 20, 130 << 20]);
    assert_eq!(make(&drive, FIRST, &new).unwrap(), parts, "they are found again");
    let others = make(&drive, SECOND, &new).unwrap();
    free(&drive, FIRST);
    assert!(parts.iter().all(|part| !Path::new(part).exists()));
    assert!(others.iter().all(|part| Path::new(part).exists()));
    free(&drive, FIRST);
    free(&drive, SECOND);
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 2, "the drive and the directory");
}

#[test]
fn a_check_describes_the_missing_part() {
    let directory = tempfile::tempdir().unwrap();
    let drive = directory.path().join("fast").to_str().unwrap().to_owned();
    std::fs::File::create(&drive).unwrap().set_len(1 << 30).unwrap();
    let osd = directory.path().join("osd/7");
    std::fs::create_dir_all(&osd).unwrap();
    let check = || {
        let script = check_script(&placement(&drive), FIRST, "7");
        run(&format!("root={}\n{script}", directory.path().display())).map_err(|error| error.to_string())
    };
    let error = check().unwrap_err();
    assert!(error.contains(&format!("osd.7 has no separate database on {drive}")), "{error}");
    let parts = make(&drive, FIRST, &osd).unwrap();
    assert_eq!(check().unwrap(), "");
    std::fs::remove_file(&parts[1]).unwrap();
    let error = check().unwrap_err();
    assert!(error.contains(&format!("osd.7 has lost its write-ahead log on {drive}")), "{error}");
}

/// A loop device, detached at the end.
struct LoopDevice(String);

impl LoopDevice {
    fn new(file: &Path, bytes: u64) -> Self {
        std::fs::File::create(file).unwrap().set_len(bytes).unwrap();
        let output = Command::new("losetup").args(["-f", "--show", "-P"]).arg(file).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        Self(String::from_utf8(output.stdout).unwrap().trim().to_owned())
    }

    fn contents(&self) -> String {
        let output = Command::new("blkid").args(["-p", "-o", "export", &self.0]).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let detached = Command::new("losetup").args(["-d", &self.0]).status().unwrap();
        assert!(detached.success() || std::thread::panicking());
    }
}

#[test]
fn parts_of_a_device_are_partitions() {
    if !test_support::has_root() || !test_support::has_programs(&["losetup", "sgdisk", "partx", "mkfs.ext4"])
    {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let device = LoopDevice::new(&directory.path().join("fast"), 800 << 20);
    let new = directory.path().join("new");
    let drive = device.0.clone();
    let size = |part: &str| {
        let output = Command::new("blockdev").args(["--getsize64", part]).output().unwrap();
        String::from_utf8(output.stdout).unwrap().trim().parse::<u64>().unwrap()
    };
    let parts = make(&drive, FIRST, &new).unwrap();
    assert_eq!(parts.clone().map(|part| size(&part)), [200 << 20, 130 << 20]);
    // A part that is in use does not prevent others.
    let open = std::fs::File::open(&parts[0]).unwrap();
    let others = make(&drive, SECOND, &new).unwrap();
    assert_eq!(others.clone().map(|part| size(&part)), [200 << 20, 130 << 20]);
    assert_eq!(make(&drive, FIRST, &new).unwrap(), parts, "they are found again");
    drop(open);
    let third = make(&drive, "33333333-55d7-4b0c-8f6a-0c6f6ac2a111", &new).unwrap_err();
    assert!(third.to_string().contains("cannot create a partition of 200 MiB"), "{third}");
    free(&drive, SECOND);
    assert!(device.contents().contains("PTTYPE=gpt"));
    assert!(others.iter().all(|part| !Path::new(part).exists()));
    assert_eq!(make(&drive, FIRST, &new).unwrap(), parts, "the other OSD keeps its own");
    free(&drive, FIRST);
    free(&drive, FIRST);
    assert_eq!(device.contents(), "", "the drive is empty again");

    // A drive that was filled in the meantime is not touched.
    assert!(Command::new("mkfs.ext4").args(["-q", &drive]).status().unwrap().success());
    let error = make(&drive, FIRST, &new).unwrap_err();
    assert!(error.to_string().contains("holds ext4 now"), "{error}");
}

/// The kernel answers reads beyond the end of the backing file with an I/O error, and so it does
/// for writes to a sealed one.
#[test]
fn a_drive_with_io_errors_is_reported_and_fails_nothing() {
    if !test_support::has_root() || !test_support::has_programs(&["losetup", "sgdisk", "partx"]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let new = directory.path().join("new");
    let reported = |drive: &str| run(&free_script(&placement(drive), FIRST)).unwrap();

    let file = directory.path().join("fast");
    let device = LoopDevice::new(&file, 800 << 20);
    make(&device.0, FIRST, &new).unwrap();
    std::fs::File::options().write(true).open(&file).unwrap().set_len(0).unwrap();
    let expected = format!("; not erased: {} (Input/output error)", device.0);
    assert_eq!(erase::remark(&reported(&device.0)), expected);

    let memory = rustix::fs::memfd_create("drive", rustix::fs::MemfdFlags::ALLOW_SEALING).unwrap();
    let path = format!("/proc/{}/fd/{}", std::process::id(), memory.as_raw_fd());
    let device = LoopDevice::new(Path::new(&path), 800 << 20);
    make(&device.0, FIRST, &new).unwrap();
    rustix::fs::fcntl_add_seals(&memory, rustix::fs::SealFlags::FUTURE_WRITE).unwrap();
    let remark = erase::remark(&reported(&device.0));
    assert!(remark.contains(&format!("not erased: {} (Input/output error)", device.0)), "{remark}");
}

#[test]
fn a_drive_without_a_label_of_the_cluster_is_not_erased() {
    if !test_support::has_programs(&["ceph-bluestore-tool"]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let drive = directory.path().join("drive").to_str().unwrap().to_owned();
    std::fs::write(&drive, vec![7; 16 << 20]).unwrap();
    assert_eq!(run(&erase::erase_script(&drive, FIRST)).unwrap(), "");
    assert_eq!(std::fs::read(&drive).unwrap(), vec![7; 16 << 20]);
}
