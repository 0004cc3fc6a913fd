//! Drives that may not be used, and are not: what is on them stays.

use std::os::unix::fs::FileExt;

use super::harness::{Home, command, run};

const SIZE: u64 = 64 << 20;

/// Five files, the third with the mark of a filesystem on it.
fn drives_with_a_filesystem(home: &Home) -> Vec<String> {
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
fn a_drive_that_holds_something_is_refused_and_named() {
    let home = Home::new();
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

    // Nobody is there to say yes.
    let ran = home.gabion(&create(&drives, &["--wipe"]));
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(ran.err.contains("XFS filesystem") && ran.err.contains("1 of 5 drives"), "{ran:?}");
    daemon.ok(&create(&drives, &["--wipe", "--yes"]));
    assert_eq!(daemon.pool("fast")["health"], "healthy");
    assert!(daemon.log().contains("wiping a drive, as asked"), "{}", daemon.log());
    daemon.stop();
}

#[test]
fn drives_of_another_pool_are_refused_and_named() {
    let home = Home::new();
    let daemon = home.start();
    daemon.make_pool();
    let drives: Vec<String> = (0..5).map(|index| home.arg(&format!("drives/fast-{index}.drive"))).collect();
    let mut second = create(&drives, &[]);
    second[2] = "second";
    // Open: somebody has it. Closed: it holds a pool.
    let refusal = daemon.refused(&second);
    assert!(refusal.contains("in use"), "{refusal}");
    daemon.ok(&["pool", "close", "fast"]);
    let refusal = daemon.refused(&second);
    assert!(refusal.contains("holds Gabion pool"), "{refusal}");
    daemon.ok(&["pool", "open", "fast"]);
    assert_eq!(daemon.pool("fast")["health"], "healthy");
    daemon.stop();
}

#[test]
fn a_drive_given_twice_is_refused_under_every_name() {
    let home = Home::new();
    let daemon = home.start();
    let mut drives: Vec<_> = (0..5).map(|index| home.file(&format!("d{index}"), SIZE)).collect();
    let (link, hard) = (home.arg("link"), home.arg("hard"));
    std::os::unix::fs::symlink(&drives[0], &link).unwrap();
    std::fs::hard_link(&drives[0], &hard).unwrap();
    for (other, says) in
        [(drives[0].clone(), "is given twice"), (link, "are the same drive"), (hard, "are the same drive")]
    {
        drives[4] = other;
        let refusal = daemon.refused(&create(&drives, &[]));
        assert!(refusal.contains(says), "{refusal}");
    }
    daemon.stop();
}

#[test]
fn what_is_no_drive_is_refused() {
    let home = Home::new();
    let daemon = home.start();
    let drives: Vec<_> = (0..4).map(|index| home.file(&format!("d{index}"), SIZE)).collect();
    let (small, empty) = (home.file("small", 1 << 20), home.file("empty", 0));
    for (fifth, says) in [
        (home.arg("nowhere"), "No such file"),
        (home.arg(""), "is a directory"),
        ("/dev/null".into(), "is a character device"),
        (small, "a drive needs at least"),
        (empty, "it has no bytes"),
    ] {
        let mut drives = drives.clone();
        drives.push(fifth);
        let refusal = daemon.refused(&create(&drives, &[]));
        assert!(refusal.contains(says), "{refusal}");
    }
    assert_eq!(daemon.json(&["pool", "list"]), serde_json::json!([]));
    daemon.stop();
}

#[test]
fn a_drive_that_another_process_has_locked_is_refused() {
    let (home, other) = (Home::new(), Home::new());
    let (daemon, second) = (home.start(), other.start());
    daemon.make_pool();
    let drives: Vec<String> = (0..5).map(|index| home.arg(&format!("drives/fast-{index}.drive"))).collect();
    let mut open = vec!["pool", "open", "fast", "--drives"];
    open.extend(drives.iter().map(String::as_str));
    let refusal = second.refused(&open);
    assert!(refusal.contains("in use by somebody else"), "{refusal}");
    assert_eq!(daemon.pool("fast")["health"], "healthy");
    let ran = run(&mut command(&["drive", "identify", &drives[0]]));
    assert!(ran.out.contains("another process has it locked"), "{ran:?}");
    second.stop();
    daemon.stop();
}
