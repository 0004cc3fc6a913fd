//! Drives that are refused; their data stays unchanged.

use std::os::unix::fs::FileExt;
use std::time::Duration;

use super::harness::{DaemonHome, Holder, command, run};
use super::nbd::pattern;

const SIZE: u64 = 64 << 20;

/// Returns five files, the third with the signature of a file system.
fn drives_with_a_filesystem(home: &DaemonHome) -> Vec<String> {
    let drives: Vec<_> = (0..5).map(|index| home.file(&format!("d{index}"), SIZE)).collect();
    let third = std::fs::File::options().write(true).open(&drives[2]).unwrap();
    third.write_all_at(b"XFSB", 0).unwrap();
    drives
}

fn create<'a>(drives: &'a [String], more: &[&'a str]) -> Vec<&'a str> {
    let mut arguments = vec!["pool", "create", "fast", "--scheme", "4+1"];
    arguments.extend(more);
    arguments.push("--drives");
    arguments.extend(drives.iter().map(String::as_str));
    arguments
}

#[test]
fn a_drive_with_a_file_system_is_refused() {
    let home = DaemonHome::new();
    let daemon = home.start();
    let drives = drives_with_a_filesystem(&home);
    let before = std::fs::read(&drives[0]).unwrap();
    let refusal = daemon.refused(&create(&drives, &[]));
    assert!(refusal.contains(&format!("{} holds XFS filesystem (at byte 0)", drives[2])), "{refusal}");
    assert!(refusal.contains("--wipe"), "{refusal}");
    assert!(
        drives
            .iter()
            .filter(|drive| **drive != drives[2])
            .all(|drive| std::fs::read(drive).unwrap() == before)
    );

    // Confirmation is not possible without a terminal.
    let ran = home.gabion(&create(&drives, &["--wipe"]));
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(ran.err.contains("XFS filesystem") && ran.err.contains("1 of 5 drives"), "{ran:?}");
    daemon.ok(&create(&drives, &["--wipe", "--yes"]));
    assert_eq!(daemon.pool("fast")["health"], "healthy");
    assert!(daemon.log().contains("erasing a drive on request"), "{}", daemon.log());
    daemon.stop();
}

#[test]
fn a_drive_with_any_data_is_refused_and_its_contents_are_named() {
    let home = DaemonHome::new();
    let daemon = home.start();
    let mut drives: Vec<_> = (0..4).map(|index| home.file(&format!("d{index}"), SIZE)).collect();
    drives.push(home.file("full", SIZE));
    let text = "text of people, ".repeat(4096).into_bytes();
    let cases: [(u64, Vec<u8>, &str); 6] = [
        (0, b"SQLite format 3\0".to_vec(), "SQLite database (at byte 0)"),
        (0, b"QFI\xFB\0\0\0\x03".to_vec(), "qcow2 image (at byte 0)"),
        (0, b"PK\x03\x04".to_vec(), "ZIP archive (at byte 0)"),
        (0, text, "text (at byte 0)"),
        (0, pattern(3, 1 << 20), "data that looks random"),
        (SIZE / 2, vec![7; 100], "data of an unknown kind (at byte 33554432)"),
    ];
    for (offset, bytes, description) in cases {
        home.file("full", SIZE);
        let full = std::fs::File::options().write(true).open(&drives[4]).unwrap();
        full.write_all_at(&bytes, offset).unwrap();
        drop(full);
        let before = std::fs::read(&drives[4]).unwrap();
        let refusal = daemon.refused(&create(&drives, &[]));
        assert!(refusal.contains(&format!("{} holds {description}", drives[4])), "{refusal}");
        assert!(refusal.contains("--wipe"), "{refusal}");
        assert!(std::fs::read(&drives[4]).unwrap() == before, "{description}");
    }
    let ran = run(&mut command(&["drive", "identify", &drives[4]]));
    assert!(ran.out.contains("contents data of an unknown kind at byte 33554432"), "{ran:?}");
    daemon.ok(&create(&drives, &["--wipe", "--yes"]));
    let more = home.file("more", SIZE);
    std::fs::File::options().write(true).open(&more).unwrap().write_all_at(b"7", SIZE - 1).unwrap();
    let refusal = daemon.refused(&["drive", "add", "fast", &more]);
    assert!(
        refusal.contains(&format!("{more} holds data of an unknown kind (at byte {})", SIZE - 1)),
        "{refusal}"
    );
    daemon.ok(&["drive", "add", "fast", &more, "--wipe", "--yes"]);
    daemon.stop();
}

#[test]
fn identify_names_the_contents_of_a_text_file() {
    let ran = run(&mut command(&["drive", "identify", "/etc/passwd"]));
    assert!(ran.out.contains("contents text at byte 0"), "{ran:?}");
}

#[test]
fn a_drive_open_for_writing_is_refused_even_with_wipe() {
    let home = DaemonHome::new();
    let daemon = home.start();
    let mut drives: Vec<_> = (0..5).map(|index| home.file(&format!("d{index}"), SIZE)).collect();
    let reader = Holder::of(&drives[0], "<");
    let writer = Holder::of(&drives[1], ">>");
    let expected = format!("{}: process {} (cat) has it open for writing", drives[1], writer.pid());
    for more in [&[][..], &["--wipe", "--yes"]] {
        let refusal = daemon.refused(&create(&drives, more));
        assert!(
            refusal.contains(&expected) && refusal.contains("--wipe does not apply to drives in use"),
            "{refusal}"
        );
        assert!(!refusal.contains(&drives[0]), "{refusal}");
    }
    let ran = run(&mut command(&["drive", "identify", &drives[1]]));
    assert!(ran.out.contains(&format!("used by  process {} (cat)", writer.pid())), "{ran:?}");
    drop((reader, writer));
    daemon.ok(&create(&drives, &[]));

    // A drive that is open for writing cannot be added or returned either.
    drives.push(home.file("more", SIZE));
    let writer = Holder::of(&drives[5], ">>");
    let refusal = daemon.refused(&["drive", "add", "fast", &drives[5], "--wipe", "--yes"]);
    assert!(refusal.contains(&format!("process {} (cat)", writer.pid())), "{refusal}");
    drop(writer);
    daemon.ok(&["drive", "fail", "fast", "3", "--yes"]);
    let writer = Holder::of(&drives[3], ">>");
    let refusal = daemon.refused(&["drive", "return", "fast", "3"]);
    assert!(refusal.contains(&format!("process {} (cat)", writer.pid())), "{refusal}");
    drop(writer);
    daemon.ok(&["drive", "return", "fast", "3"]);
    // The failure of the drive is an error in the log.
    drop(daemon);
}

/// Programs that probe drives, such as udev and losetup, have them open for a moment.
#[test]
fn a_drive_open_for_a_moment_is_not_in_use() {
    let home = DaemonHome::new();
    let daemon = home.start();
    let drives: Vec<_> = (0..5).map(|index| home.file(&format!("d{index}"), SIZE)).collect();
    let while_open = |drive: &str, arguments: &[&str]| {
        let writer = Holder::of(drive, ">>");
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(250));
                drop(writer);
            });
            daemon.ok(arguments);
        });
    };
    while_open(&drives[1], &create(&drives, &[]));
    daemon.ok(&["drive", "fail", "fast", "3", "--yes"]);
    while_open(&drives[3], &["drive", "return", "fast", "3"]);
    // The failure of the drive is an error in the log.
    drop(daemon);
}

#[test]
fn drives_of_another_pool_are_refused_and_named() {
    let home = DaemonHome::new();
    let daemon = home.start();
    daemon.make_pool();
    let drives: Vec<String> = (0..5).map(|index| home.arg(&format!("drives/fast-{index}.drive"))).collect();
    let mut second = create(&drives, &[]);
    second[2] = "second";
    // An open pool uses its drives; a closed pool is known data.
    let refusal = daemon.refused(&second);
    assert!(refusal.contains("fast-0.drive: it belongs to the open pool 'fast'"), "{refusal}");
    let mut open = vec!["pool", "open", "second", "--drives"];
    open.extend(drives.iter().map(String::as_str));
    let refusal = daemon.refused(&open);
    assert!(refusal.contains("fast-0.drive belongs to the open pool 'fast'"), "{refusal}");
    daemon.ok(&["pool", "close", "fast"]);
    let refusal = daemon.refused(&second);
    assert!(refusal.contains("holds Gabion pool"), "{refusal}");
    daemon.ok(&["pool", "open", "fast"]);
    assert_eq!(daemon.pool("fast")["health"], "healthy");
    daemon.stop();
}

#[test]
fn a_drive_given_twice_under_any_name_is_refused() {
    let home = DaemonHome::new();
    let daemon = home.start();
    let mut drives: Vec<_> = (0..5).map(|index| home.file(&format!("d{index}"), SIZE)).collect();
    let (link, hard) = (home.arg("link"), home.arg("hard"));
    std::os::unix::fs::symlink(&drives[0], &link).unwrap();
    std::fs::hard_link(&drives[0], &hard).unwrap();
    for (other, expected) in
        [(drives[0].clone(), "is given twice"), (link, "are the same drive"), (hard, "are the same drive")]
    {
        drives[4] = other;
        let refusal = daemon.refused(&create(&drives, &[]));
        assert!(refusal.contains(expected), "{refusal}");
    }
    daemon.stop();
}

#[test]
fn paths_that_are_not_drives_are_refused() {
    let home = DaemonHome::new();
    let daemon = home.start();
    let drives: Vec<_> = (0..4).map(|index| home.file(&format!("d{index}"), SIZE)).collect();
    let (small, empty) = (home.file("small", 1 << 20), home.file("empty", 0));
    for (fifth, expected) in [
        (home.arg("nowhere"), "No such file"),
        (home.arg(""), "is a directory"),
        ("/dev/null".into(), "is a character device"),
        (small, "a drive needs at least"),
        (empty, "its size is zero"),
    ] {
        let mut drives = drives.clone();
        drives.push(fifth);
        let refusal = daemon.refused(&create(&drives, &[]));
        assert!(refusal.contains(expected), "{refusal}");
    }
    assert_eq!(daemon.json(&["pool", "list"]), serde_json::json!([]));
    daemon.stop();
}

#[test]
fn a_drive_locked_by_another_process_is_refused() {
    let (home, other) = (DaemonHome::new(), DaemonHome::new());
    let (daemon, second) = (home.start(), other.start());
    daemon.make_pool();
    let drives: Vec<String> = (0..5).map(|index| home.arg(&format!("drives/fast-{index}.drive"))).collect();
    let mut open = vec!["pool", "open", "fast", "--drives"];
    open.extend(drives.iter().map(String::as_str));
    let refusal = second.refused(&open);
    assert!(refusal.contains("in use by another process"), "{refusal}");
    assert_eq!(daemon.pool("fast")["health"], "healthy");
    let ran = run(&mut command(&["drive", "identify", &drives[0]]));
    assert!(ran.out.contains("(gabion) has it open for writing"), "{ran:?}");
    second.stop();
    daemon.stop();
}
