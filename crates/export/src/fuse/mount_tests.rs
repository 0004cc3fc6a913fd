//! Places and the table of mounts. Tests of mounts, which need root, are in the crate's `tests`
//! directory.

use super::*;

const TABLE: &[u8] = b"22 1 0:20 / / rw - ext4 /dev/vda rw\n\
    30 22 0:31 / /run/a\\040b/c\\134d rw,nosuid shared:1 master:2 - fuse.gabion fast/vm01 rw,user_id=0\n\
    31 22 0:32 / /run/twice rw - tmpfs none rw\n\
    32 31 0:33 / /run/twice rw - fuse.gabion fast/vm02 rw\n\
    33 22 0:34 / /run/odd\\04 rw - ext4 none rw";

#[test]
fn mounts_are_found_by_their_place() {
    assert_eq!(find(TABLE, b"/run/a b/c\\d").as_deref(), Some("fuse.gabion"));
    assert_eq!(find(TABLE, b"/run/twice").as_deref(), Some("fuse.gabion"), "the one above");
    assert_eq!(find(TABLE, b"/").as_deref(), Some("ext4"));
    assert_eq!(find(TABLE, b"/run/odd\\04").as_deref(), Some("ext4"));
    assert_eq!(find(TABLE, b"/run"), None);
    assert_eq!(find(b"", b"/"), None);
    assert_eq!(find(b"1 2 3", b"/"), None);
}

#[test]
fn own_mounts_below_a_directory_are_listed() {
    let below = |directory: &str| Vec::from_iter(places_below(TABLE, Path::new(directory)));
    let (vm01, vm02) = (PathBuf::from("/run/a b/c\\d"), PathBuf::from("/run/twice"));
    assert_eq!(below("/run"), [vm01.clone(), vm02]);
    assert_eq!(below("/run/a b"), [vm01]);
    assert_eq!(below("/run/twice"), [] as [PathBuf; 0], "the directory itself is not below it");
    assert_eq!(below("/run/tw"), [] as [PathBuf; 0]);
}

#[test]
fn files_of_others_are_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path().join("deep/er/file");
    assert!(make_place(&place, Access::OWNER).unwrap());
    // A node of an earlier daemon.
    assert!(!make_place(&place, Access::OWNER).unwrap());
    clear(&place).unwrap();
    release_place(&place);
    assert!(!place.exists());
    std::fs::write(&place, "precious").unwrap();
    assert_eq!(make_place(&place, Access::OWNER).unwrap_err().kind(), MountErrorKind::Occupied);
    release_place(&place);
    assert_eq!(std::fs::read(&place).unwrap(), b"precious");
    let link = directory.path().join("link");
    std::os::unix::fs::symlink(directory.path().join("elsewhere"), &link).unwrap();
    assert_eq!(make_place(&link, Access::OWNER).unwrap_err().kind(), MountErrorKind::Occupied);
    let below = place.join("file");
    let refusal = make_place(&below, Access::OWNER).unwrap_err();
    assert!(refusal.to_string().contains("cannot make the directory"), "{refusal}");
}

#[test]
fn mounts_of_others_are_left_alone() {
    // The table of mounts is below this mount.
    let refusal = clear(Path::new("/proc")).unwrap_err();
    assert_eq!(refusal.kind(), MountErrorKind::Occupied, "{refusal}");
    assert!(Path::new("/proc/self/mountinfo").exists());
}

#[test]
fn the_node_below_a_mount_cannot_be_opened() {
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path().join("file");
    // An empty file of an earlier release.
    std::fs::write(&place, "").unwrap();
    assert!(reserve_place(&place, Access::OWNER).unwrap());
    for (write, create) in [(false, false), (true, false), (true, true)] {
        let opened = std::fs::OpenOptions::new().read(true).write(write).create(create).open(&place);
        assert_eq!(opened.unwrap_err().raw_os_error(), Some(Errno::NXIO.raw_os_error()));
    }
    assert!(!reserve_place(&place, Access::OWNER).unwrap());
    release_place(&place);
    // A socket of another program.
    let _listener = std::os::unix::net::UnixListener::bind(&place).unwrap();
    assert_eq!(reserve_place(&place, Access::OWNER).unwrap_err().kind(), MountErrorKind::Occupied);
    release_place(&place);
    assert!(place.exists());
}
