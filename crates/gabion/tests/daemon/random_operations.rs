//! Random reads, writes, trims and flushes on a pool above 90 % of its capacity, next to a copy of
//! the volume in memory.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;

use rustix::fs::{FallocateFlags, fallocate};

use super::harness::{Daemon, DaemonHome};
use super::mounts::UnmountGuard;
use super::nbd::{Client, pattern};

const BLOCK: usize = 4096;
const LONGEST: usize = 256 << 10;
/// Operations before and after a restart of the daemon.
const OPERATIONS: u64 = 600;

/// An exported volume.
trait Disk {
    /// Unit of offsets and lengths.
    fn alignment(&self) -> usize;
    fn read(&mut self, offset: u64, length: usize) -> Vec<u8>;
    fn write(&mut self, offset: u64, data: &[u8]);
    fn trim(&mut self, offset: u64, length: usize);
    fn flush(&mut self);
}

impl Disk for Client {
    fn alignment(&self) -> usize {
        512
    }

    fn read(&mut self, offset: u64, length: usize) -> Vec<u8> {
        Client::read(self, offset, length).unwrap()
    }

    fn write(&mut self, offset: u64, data: &[u8]) {
        Client::write(self, offset, data).unwrap();
    }

    fn trim(&mut self, offset: u64, length: usize) {
        Client::trim(self, offset, length).unwrap();
    }

    fn flush(&mut self) {
        Client::flush(self).unwrap();
    }
}

impl Disk for File {
    fn alignment(&self) -> usize {
        1
    }

    fn read(&mut self, offset: u64, length: usize) -> Vec<u8> {
        let mut data = vec![0; length];
        self.read_exact_at(&mut data, offset).unwrap();
        data
    }

    fn write(&mut self, offset: u64, data: &[u8]) {
        self.write_all_at(data, offset).unwrap();
    }

    fn trim(&mut self, offset: u64, length: usize) {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        fallocate(&*self, flags, offset, length as u64).unwrap();
    }

    fn flush(&mut self) {
        self.sync_all().unwrap();
    }
}

/// A volume with its expected content.
struct ShadowedDisk {
    content: Vec<u8>,
    random: u64,
}

impl ShadowedDisk {
    fn below(&mut self, limit: usize) -> usize {
        self.random =
            self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 33) as usize % limit
    }

    /// Writes the whole volume.
    fn fill(&mut self, disk: &mut dyn Disk) {
        for start in (0..self.content.len()).step_by(LONGEST) {
            let end = self.content.len().min(start + LONGEST);
            let data = pattern(start as u64 + 1, end - start);
            disk.write(start as u64, &data);
            self.content[start..end].copy_from_slice(&data);
        }
        disk.flush();
    }

    /// Draws a range, short in most cases.
    fn range(&mut self, alignment: usize) -> std::ops::Range<usize> {
        let longest = if self.below(4) == 0 { LONGEST } else { 16 << 10 };
        let length = (1 + self.below(longest)).next_multiple_of(alignment);
        let start = self.below(self.content.len() - length) / alignment * alignment;
        start..start + length
    }

    fn operate(&mut self, disk: &mut dyn Disk, number: u64) {
        let range = self.range(disk.alignment());
        let offset = range.start as u64;
        match self.below(100) {
            0..50 => {
                let data = pattern(self.random, range.len());
                disk.write(offset, &data);
                self.content[range].copy_from_slice(&data);
            }
            50..85 => {
                let found = disk.read(offset, range.len());
                assert!(found == self.content[range.clone()], "operation {number}: {range:?}");
            }
            85..95 => self.trim(disk, range, number),
            _ => disk.flush(),
        }
    }

    /// Trims a range, of which each block reads as zeros or as before.
    fn trim(&mut self, disk: &mut dyn Disk, range: std::ops::Range<usize>, number: u64) {
        disk.trim(range.start as u64, range.len());
        let mut at = range.start;
        while at < range.end {
            let piece = at..range.end.min((at + 1).next_multiple_of(BLOCK));
            let found = disk.read(piece.start as u64, piece.len());
            let is_zero = found.iter().all(|byte| *byte == 0);
            assert!(is_zero || found == self.content[piece.clone()], "operation {number}: trim of {piece:?}");
            at = piece.end;
            self.content[piece].copy_from_slice(&found);
        }
    }

    #[track_caller]
    fn verify(&self, disk: &mut dyn Disk) {
        for start in (0..self.content.len()).step_by(LONGEST) {
            let end = self.content.len().min(start + LONGEST);
            assert!(disk.read(start as u64, end - start) == self.content[start..end], "at {start}");
        }
    }
}

/// Creates a pool with a volume of 95 % of its capacity. Returns the size.
fn create(daemon: &Daemon<'_>, home: &DaemonHome) -> usize {
    let drives = home.arg("drives");
    let files = ["--files", &drives, "--file-size", "64M", "--count", "5"];
    daemon.ok(&[&["pool", "create", "fast", "--scheme", "4+1"], &files[..]].concat());
    let capacity = daemon.pool("fast")["space"]["capacity"].as_u64().unwrap();
    let size = capacity / 100 * 95 / BLOCK as u64 * BLOCK as u64;
    daemon.ok(&["volume", "create", "fast/vm01", "--size", &size.to_string()]);
    size as usize
}

/// Runs operations, restarts the daemon, and runs more. The restart is a SIGKILL after a
/// flush.
fn run_operations(export: &str, connect: impl Fn(&DaemonHome) -> Box<dyn Disk>) {
    let home = DaemonHome::new();
    let daemon = home.start();
    let size = create(&daemon, &home);
    daemon.ok(&["export", "create", "fast/vm01", export]);
    let mount_point = home.path("fuse/fast/vm01");
    let _mounted = UnmountGuard(&mount_point);
    let mut shadow = ShadowedDisk { content: vec![0; size], random: 0x5EED };
    let mut disk = connect(&home);
    shadow.fill(&mut *disk);
    (0..OPERATIONS).for_each(|number| shadow.operate(&mut *disk, number));
    let space = &daemon.pool("fast")["space"];
    let (stored, capacity) = (space["stored"].as_u64().unwrap(), space["capacity"].as_u64().unwrap());
    assert!(stored > capacity / 10 * 9, "{stored} of {capacity}");
    disk.flush();
    daemon.kill();
    drop(disk);

    let daemon = home.start();
    let mut disk = connect(&home);
    shadow.verify(&mut *disk);
    (OPERATIONS..2 * OPERATIONS).for_each(|number| shadow.operate(&mut *disk, number));
    shadow.verify(&mut *disk);
    drop(disk);
    daemon.stop();
}

#[test]
fn random_operations_over_nbd_on_a_nearly_full_pool() {
    run_operations("--nbd", |home| Box::new(Client::connect(&home.nbd_socket(), "fast/vm01").unwrap()));
}

#[test]
fn random_operations_over_fuse_on_a_nearly_full_pool() {
    if !test_support::has_fuse() {
        return;
    }
    run_operations("--fuse", |home| {
        let file = OpenOptions::new().read(true).write(true).open(home.path("fuse/fast/vm01"));
        Box::new(file.unwrap())
    });
}
