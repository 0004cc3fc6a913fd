//! Tests of socket and directory permissions under extreme umasks. Alone in its process, because it
//! sets the umask.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use reactor::{Access, bind_unix};
use rustix::fs::Mode;

/// Returns the mode of a file and its group.
fn permissions(path: &Path) -> (u32, u32) {
    let metadata = std::fs::symlink_metadata(path).unwrap();
    (metadata.permissions().mode() & 0o7777, metadata.gid())
}

/// Binds and drops a socket many times, at least until another thread has read its mode; returns
/// every mode seen.
fn modes_seen(path: &Path, access: Access) -> Vec<u32> {
    let (ended, has_seen) = (AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            let mut seen = Vec::new();
            while !ended.load(Ordering::Relaxed) {
                if let Ok(metadata) = std::fs::symlink_metadata(path) {
                    seen.push(metadata.permissions().mode() & 0o7777);
                    seen.dedup();
                    has_seen.store(true, Ordering::Relaxed);
                }
            }
            seen
        });
        let mut binds = 0;
        while binds < 400 || !has_seen.load(Ordering::Relaxed) {
            drop(bind_unix(path, access).unwrap());
            binds += 1;
        }
        ended.store(true, Ordering::Relaxed);
        let mut seen = watcher.join().unwrap();
        seen.sort_unstable();
        seen.dedup();
        seen
    })
}

#[test]
fn permissions_are_exact_for_any_umask_and_never_wider() {
    let directory = tempfile::tempdir().unwrap();
    let own = rustix::process::getegid().as_raw();
    // Root may assign files to any group, other users to their own groups.
    let group = if rustix::process::geteuid().is_root() { 54_321 } else { own };
    for umask in [0, 0o022, 0o777] {
        rustix::process::umask(Mode::from_raw_mode(umask));
        let cases = [(Access::OWNER, 0o600, 0o700, own), (Access::with_group(group), 0o660, 0o750, group)];
        for (access, socket_mode, directory_mode, group) in cases {
            let outer = directory.path().join(format!("{umask:o}-{socket_mode:o}"));
            let inner = outer.join("deep/er");
            access.make_directories(&inner).unwrap();
            for made in [&outer, &outer.join("deep"), &inner] {
                assert_eq!(
                    permissions(made),
                    (directory_mode, group),
                    "{} with umask {umask:o}",
                    made.display()
                );
            }
            let path = inner.join("socket");
            let (_socket, _file) = bind_unix(&path, access).unwrap();
            assert_eq!(permissions(&path), (socket_mode, group), "with umask {umask:o}");
            let seen = modes_seen(&inner.join("watched"), access);
            assert!(!seen.is_empty() && seen.iter().all(|mode| mode & !socket_mode == 0), "{seen:?}");
        }
    }
    rustix::process::umask(Mode::from_raw_mode(0o022));
    // An existing directory keeps its permissions.
    let before = directory.path().join("before");
    std::fs::create_dir(&before).unwrap();
    std::fs::set_permissions(&before, std::fs::Permissions::from_mode(0o1777)).unwrap();
    Access::OWNER.make_directories(&before.join("within")).unwrap();
    assert_eq!((permissions(&before).0, permissions(&before.join("within")).0), (0o1777, 0o700));
    // A link to a directory is accepted; a dangling link is not.
    symlink(&before, directory.path().join("link")).unwrap();
    Access::OWNER.make_directories(&directory.path().join("link")).unwrap();
    symlink("nowhere", directory.path().join("dangling")).unwrap();
    assert!(Access::OWNER.make_directories(&directory.path().join("dangling")).is_err());
    std::fs::write(directory.path().join("file"), "").unwrap();
    assert!(Access::OWNER.make_directories(&directory.path().join("file")).is_err());
}
