//! Every mark of the table, what real tools make, and what is not to be mistaken for anything.

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

fn holds(path: &Path) -> Vec<(&'static str, u64)> {
    inspect(path).unwrap().holds.iter().map(|found| (found.what, found.offset)).collect()
}

#[test]
fn every_mark_of_the_table_is_found_and_wiped() {
    let directory = tempfile::tempdir().unwrap();
    for size in [SIZE, SIZE + 512 * 3] {
        for (what, offset, bytes) in signatures::table(size) {
            let path = drive(&directory);
            File::options().write(true).open(&path).unwrap().set_len(size).unwrap();
            put(&path, offset, bytes);
            assert!(holds(&path).contains(&(what, offset)), "{what} at {offset}: {:?}", holds(&path));
            wipe(&path).unwrap();
            assert!(holds(&path).is_empty(), "{what}");
        }
    }
}

#[test]
fn an_empty_drive_and_random_bytes_hold_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let path = drive(&directory);
    assert!(holds(&path).is_empty());
    let mut state = 1u64;
    let mut noise = vec![0; 1 << 20];
    for byte in &mut noise {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        *byte = (state >> 56) as u8;
    }
    put(&path, 0, &noise);
    // An ext magic alone is two bytes that anything may hold.
    put(&path, 1024 + 0x38, &[0x53, 0xEF]);
    put(&path, 1024 + 0x4C, &[9, 9, 9, 9]);
    assert!(holds(&path).is_empty());
}

#[test]
fn tiny_drives_are_looked_at_without_reading_past_their_end() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("tiny");
    for size in [0, 1, 511, 512, 1024, 4096, 100_000, 300_000] {
        let mut file = File::create(&path).unwrap();
        file.write_all(&vec![0xA5; size]).unwrap();
        assert!(holds(&path).is_empty(), "{size}");
        wipe(&path).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().len(), size as u64);
    }
}

#[test]
fn a_partition_table_is_told_from_a_boot_sector() {
    let directory = tempfile::tempdir().unwrap();
    let path = drive(&directory);
    put(&path, 510, &[0x55, 0xAA]);
    assert!(holds(&path).is_empty(), "no partitions: any boot sector ends like this");
    put(&path, 446, &[0x80, 0, 2, 0, 0x83]);
    assert_eq!(holds(&path), [("MBR partition table", 510)]);
    put(&path, 0x36, b"FAT16   ");
    assert_eq!(holds(&path), [("FAT filesystem", 0x36)]);
}

#[test]
fn what_the_real_tools_make_is_recognised() {
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
    for (tool, arguments, what) in tools {
        let path = drive(&directory);
        // XFS wants 300 MiB; sparse, so it costs nothing.
        File::options().write(true).open(&path).unwrap().set_len(SIZE * 6).unwrap();
        let ran = Command::new(tool).args(arguments).arg(&path).output();
        if !ran.as_ref().is_ok_and(|output| output.status.success()) {
            eprintln!("{tool} is not here, or does not work here: not compared with");
            continue;
        }
        let found = holds(&path);
        assert!(found.iter().any(|(found, _)| *found == what), "{tool}: {found:?}");
        wipe(&path).unwrap();
        assert!(holds(&path).is_empty(), "{tool}");
    }
}

#[test]
fn what_is_no_drive_is_said() {
    for (path, kind, says) in [
        ("/nonexistent", ErrorKind::NotFound, "No such file"),
        ("/", ErrorKind::Invalid, "is a directory"),
        ("/dev/null", ErrorKind::Invalid, "is a character device"),
    ] {
        let error = inspect(Path::new(path)).unwrap_err();
        assert_eq!(error.kind(), kind);
        assert!(error.to_string().contains(says) && error.hint_text().is_some(), "{error}");
    }
}

#[test]
fn two_names_of_one_file_are_the_same_drive() {
    let directory = tempfile::tempdir().unwrap();
    let (path, link, hard) =
        (drive(&directory), directory.path().join("link"), directory.path().join("hard"));
    std::os::unix::fs::symlink(&path, &link).unwrap();
    std::fs::hard_link(&path, &hard).unwrap();
    assert_eq!(which(&path).unwrap(), which(&link).unwrap());
    assert_eq!(which(&path).unwrap(), which(&hard).unwrap());
}
