//! Tests: every signature of the table, the output of real tools, and data without a signature.

use std::io::Write;
use std::os::unix::fs::FileExt;
use std::process::Command;

use super::*;

const SIZE: u64 = 64 << 20;

fn drive(directory: &tempfile::TempDir) -> PathBuf {
    let path = directory.path().join("drive");
    File::create(&path).unwrap().set_len(SIZE).unwrap();
    path
}

fn put(path: &Path, offset: u64, bytes: &[u8]) {
    File::options().write(true).open(path).unwrap().write_all_at(bytes, offset).unwrap();
}

/// Returns the contents that are found without blkid.
fn contents_of(path: &Path) -> Vec<(String, u64)> {
    let file = File::open(path).unwrap();
    let size = file.metadata().unwrap().len();
    let mut found = signatures::find(&file, size).unwrap();
    if found.is_empty() {
        found.extend(contents::find(&file, size).unwrap());
    }
    found.into_iter().map(|found| (found.description.into_owned(), found.offset.unwrap())).collect()
}

/// Returns the known signatures that are found.
fn signatures_of(path: &Path) -> Vec<(String, u64)> {
    let file = File::open(path).unwrap();
    let found = signatures::find(&file, file.metadata().unwrap().len()).unwrap();
    found.into_iter().map(|found| (found.description.into_owned(), found.offset.unwrap())).collect()
}

fn found(description: &str, offset: u64) -> (String, u64) {
    (description.to_owned(), offset)
}

/// Returns pseudo-random bytes.
fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed;
    let next = |_| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 56) as u8
    };
    (0..len).map(next).collect()
}

#[test]
fn every_signature_of_the_table_is_found_and_wiped() {
    let directory = tempfile::tempdir().unwrap();
    for size in [SIZE, SIZE + 512 * 3] {
        for (name, offset, bytes) in signatures::table(size) {
            let path = drive(&directory);
            File::options().write(true).open(&path).unwrap().set_len(size).unwrap();
            put(&path, offset, bytes);
            let contents = contents_of(&path);
            assert!(contents.contains(&found(name, offset)), "{name} at {offset}: {contents:?}");
            wipe(&path).unwrap();
            assert!(contents_of(&path).is_empty(), "{name}");
        }
    }
}

#[test]
fn random_data_has_no_signature() {
    let directory = tempfile::tempdir().unwrap();
    let path = drive(&directory);
    assert!(contents_of(&path).is_empty());
    put(&path, 0, &noise(1, 1 << 20));
    // The magic number of ext alone is two bytes that random data may contain.
    put(&path, 1024 + 0x38, &[0x53, 0xEF]);
    put(&path, 1024 + 0x4C, &[9, 9, 9, 9]);
    assert!(signatures_of(&path).is_empty());
}

#[test]
fn non_zero_data_is_found_and_described() {
    const RANDOM: &str = "data that looks random (encrypted, compressed or overwritten)";
    let directory = tempfile::tempdir().unwrap();
    let cases: [(u64, Vec<u8>, &str, u64); 12] = [
        (0, b"SQLite format 3\0".to_vec(), "SQLite database", 0),
        (0, b"QFI\xFB\0\0\0\x03".to_vec(), "qcow2 image", 0),
        (0, b"PK\x03\x04".to_vec(), "ZIP archive", 0),
        (257, b"ustar".to_vec(), "tar archive", 257),
        (0, b"\x1F\x8B\x08".to_vec(), "gzip archive", 0),
        (0, "root:x:0:0:r\u{f6}\u{f6}t\n".repeat(100).into_bytes(), "text", 0),
        (0, noise(7, 8192), RANDOM, 0),
        (0, vec![0xFF; 1 << 20], "bytes 0xFF", 0),
        (5000, vec![1], "data of an unknown kind", 5000),
        // In the middle, and in the last byte.
        (30_000_000, vec![7; 100], "data of an unknown kind", 30_000_000),
        (40 << 20, noise(8, 4096), RANDOM, 40 << 20),
        (SIZE - 1, vec![1], "data of an unknown kind", SIZE - 1),
    ];
    for (offset, bytes, description, at) in cases {
        let path = drive(&directory);
        put(&path, offset, &bytes);
        assert_eq!(contents_of(&path), [found(description, at)], "{offset}");
    }
}

#[test]
fn a_large_drive_is_sampled_in_its_allocated_ranges() {
    const LARGE: u64 = 1 << 40;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("drive");
    // A single allocated block in a file of 1 TiB.
    File::create(&path).unwrap().set_len(LARGE).unwrap();
    put(&path, LARGE / 3, &[1; 4096]);
    assert_eq!(
        contents_of(&path),
        [found("data of an unknown kind", LARGE / 3 / 4096 * 4096 + LARGE / 3 % 4096)]
    );
    // 40 MiB, more than is read completely, with 1 MiB of non-zero data.
    let path = directory.path().join("written");
    File::create(&path).unwrap().set_len(LARGE).unwrap();
    put(&path, 5 << 30, &vec![0; 40 << 20]);
    assert!(contents_of(&path).is_empty());
    put(&path, (5 << 30) + (17 << 20), &[1; 1 << 20]);
    let [(description, at)] = &contents_of(&path)[..] else { panic!("no contents were found") };
    assert_eq!(description, "data of an unknown kind");
    assert!((5 << 30) + (17 << 20) <= *at && *at < (5 << 30) + (18 << 20), "{at}");
}

#[test]
fn samples_are_spread_over_devices_of_all_sizes() {
    for size in
        [1, 4095, 4096, 1 << 20, (1 << 20) + 1, (2 << 20) + 5, 16 << 20, (16 << 20) + 1, 1 << 30, 1 << 44]
    {
        let samples = contents::samples(std::slice::from_ref(&(0..size)), size);
        let longest = samples.iter().map(|sample| sample.end - sample.start).max().unwrap();
        let read: u64 = samples.iter().map(|sample| sample.end - sample.start).sum();
        assert!(longest <= 1 << 20 && read <= 18 << 20, "{size}: {read}");
        assert!(
            samples.iter().all(|sample| sample.start < sample.end && sample.end <= size),
            "{size}: {samples:?}"
        );
        assert!(samples.iter().any(|sample| sample.start == 0));
        assert!(samples.iter().any(|sample| sample.end == size));
        let mut sorted = samples.clone();
        sorted.sort_by_key(|sample| sample.start);
        let gap = sorted.windows(2).map(|two| two[1].start.saturating_sub(two[0].end)).max().unwrap_or(0);
        assert!(gap <= (size / 512 + 4096) * 2, "{size}: {gap}");
    }
}

#[test]
fn tiny_drives_are_inspected_without_reading_past_their_end() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("tiny");
    for size in [0, 1, 511, 512, 1024, 4096, 100_000, 300_000] {
        let mut file = File::create(&path).unwrap();
        file.write_all(&vec![0xA5; size]).unwrap();
        assert_eq!(contents_of(&path).len(), usize::from(size > 0), "{size}");
        wipe(&path).unwrap();
        assert!(contents_of(&path).is_empty(), "{size}");
        assert_eq!(std::fs::metadata(&path).unwrap().len(), size as u64);
    }
}

#[test]
fn a_partition_table_is_distinguished_from_a_boot_sector() {
    let directory = tempfile::tempdir().unwrap();
    let path = drive(&directory);
    put(&path, 510, &[0x55, 0xAA]);
    assert!(signatures_of(&path).is_empty(), "a boot sector without partitions ends like this too");
    put(&path, 446, &[0x80, 0, 2, 0, 0x83]);
    assert_eq!(contents_of(&path), [found("MBR partition table", 510)]);
    put(&path, 0x36, b"FAT16   ");
    assert_eq!(contents_of(&path), [found("FAT filesystem", 0x36)]);
}

/// Runs a program on a file and returns its output. Panics if the program fails.
fn run(program: &str, arguments: &[&str], path: &Path) -> String {
    let program = test_support::find_program(program).unwrap();
    let output = Command::new(program).args(arguments).arg(path).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_output_of_real_tools_is_recognised() {
    let directory = tempfile::tempdir().unwrap();
    let tools: [(&str, &[&str], &str); 9] = [
        ("mkfs.ext2", &["-q", "-F"], "ext2 filesystem"),
        ("mkfs.ext3", &["-q", "-F"], "ext3 filesystem"),
        ("mkfs.ext4", &["-q", "-F"], "ext4 filesystem"),
        ("mkfs.xfs", &["-q", "-f"], "XFS filesystem"),
        ("mkfs.btrfs", &["-q", "-f"], "Btrfs filesystem"),
        ("mkfs.vfat", &[], "FAT filesystem"),
        ("mkfs.f2fs", &["-q", "-f"], "F2FS filesystem"),
        ("mkswap", &[], "swap space"),
        ("pvcreate", &["-q"], "LVM physical volume"),
    ];
    for (tool, arguments, description) in tools {
        let path = drive(&directory);
        // XFS needs 300 MiB; the file is sparse.
        File::options().write(true).open(&path).unwrap().set_len(SIZE * 6).unwrap();
        if !test_support::has_program(tool) {
            continue;
        }
        // Volume managers accept only devices.
        if tool == "pvcreate" {
            if !test_support::has_loop() {
                continue;
            }
            let device = run("losetup", &["--find", "--show"], &path);
            let made = Command::new(tool).args(arguments).arg(device.trim()).output();
            run("losetup", &["--detach"], Path::new(device.trim()));
            assert!(made.as_ref().unwrap().status.success(), "{made:?}");
        } else {
            run(tool, arguments, &path);
        }
        let found = signatures_of(&path);
        assert!(found.iter().any(|(found, _)| *found == description), "{tool}: {found:?}");
        wipe(&path).unwrap();
        assert!(signatures_of(&path).is_empty(), "{tool}");
    }
}

#[test]
fn paths_that_are_not_drives_are_refused() {
    for (path, kind, message) in [
        ("/nonexistent", ErrorKind::NotFound, "No such file"),
        ("/", ErrorKind::Invalid, "is a directory"),
        ("/dev/null", ErrorKind::Invalid, "is a character device"),
    ] {
        let error = inspect(Path::new(path), &Openers::default()).unwrap_err();
        assert_eq!(error.kind(), kind);
        assert!(error.to_string().contains(message) && error.hint_text().is_some(), "{error}");
    }
}

#[test]
fn two_paths_of_a_file_are_the_same_drive() {
    let directory = tempfile::tempdir().unwrap();
    let (path, link, hard) =
        (drive(&directory), directory.path().join("link"), directory.path().join("hard"));
    std::os::unix::fs::symlink(&path, &link).unwrap();
    std::fs::hard_link(&path, &hard).unwrap();
    assert_eq!(drive_key(&path).unwrap(), drive_key(&link).unwrap());
    assert_eq!(drive_key(&path).unwrap(), drive_key(&hard).unwrap());
}

#[test]
fn a_file_that_is_open_for_writing_is_in_use() {
    let directory = tempfile::tempdir().unwrap();
    let path = drive(&directory);
    let users = || inspect(&path, &Openers::default()).unwrap().users;
    assert!(users().is_empty());
    // Simulates a process that this one may not inspect: the scan is empty.
    let writer = File::options().write(true).open(&path).unwrap();
    assert_eq!(users(), ["a process has it open for writing"]);
    assert!(
        inspect(&path, &Openers::scan(PoolDrives::new())).unwrap().users.is_empty(),
        "only this process has it open"
    );
    drop(writer);
    assert!(users().is_empty());
}

#[test]
fn a_signature_that_only_blkid_knows_is_found() {
    let directory = tempfile::tempdir().unwrap();
    let path = drive(&directory);
    // A signature that is not in the table.
    put(&path, 0, b"-rom1fs-");
    let inspection = inspect(&path, &Openers::default()).unwrap();
    assert!(!inspection.contents.is_empty());
    if test_support::has_program("blkid") {
        let text = inspection.contents_text();
        assert!(text.contains("according to blkid"), "{text}");
    }
}
