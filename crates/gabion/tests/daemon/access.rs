//! Permissions of files and sockets created by the daemon, with any umask.

use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::json;

use super::harness::DaemonHome;

/// Returns the command, run with another umask.
fn with_umask(umask: &str, command: &Command) -> Command {
    let mut shell = Command::new("sh");
    shell.args(["-c", "umask \"$1\"; shift; exec \"$@\"", "sh", umask]);
    shell.arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => shell.env(name, value),
            None => shell.env_remove(name),
        };
    }
    shell
}

/// Lists a directory recursively with type, mode and group.
fn walk(directory: &Path, into: &mut Vec<(PathBuf, char, u32, u32)>) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let metadata = std::fs::symlink_metadata(&path).unwrap();
        let kind = metadata.file_type();
        let letter = match () {
            () if kind.is_socket() => 's',
            () if kind.is_dir() => 'd',
            () if kind.is_symlink() => 'l',
            () => 'f',
        };
        into.push((path.clone(), letter, metadata.permissions().mode() & 0o7777, metadata.gid()));
        if kind.is_dir() {
            walk(&path, into);
        }
    }
}

/// Starts a daemon with `umask`, creates exports of all available protocols, and returns everything
/// below `run` with relative paths.
fn created(umask: &str, extra: &[&str]) -> Vec<(String, char, u32, u32)> {
    let has_fuse = test_support::has_fuse();
    let home = DaemonHome::new();
    let (socket, nbd) = (home.arg("run/gabion/gabion.sock"), home.arg("run/gabion/nbd.sock"));
    let [vhost, fuse] = ["vhost", "fuse"].map(|name| home.arg(&format!("run/gabion/{name}")));
    let state = home.arg("run/lib/gabion");
    let mut arguments = vec!["--socket", &socket, "--nbd-socket", &nbd, "--vhost-directory", &vhost];
    arguments.extend(["--fuse-directory", &fuse, "--state-dir", &state]);
    arguments.extend(extra);
    let daemon = home.start_by(with_umask(umask, &home.serve(&arguments)));
    let run = |arguments: &[&str]| {
        let ran = home.gabion(&[arguments, &["--socket", &socket]].concat());
        assert_eq!(ran.code, Some(0), "{ran:?}\n{}", daemon.log());
    };
    let drives = home.arg("run/drives/of/fast");
    let files = ["--files", &drives, "--file-size", "64M", "--count", "2"];
    run(&[&["pool", "create", "fast", "--scheme", "1+1"], &files[..]].concat());
    for volume in ["fast/nbd", "fast/vhost", "fast/fuse"] {
        run(&["volume", "create", volume, "--size", "8M"]);
    }
    run(&["export", "create", "fast/nbd", "--nbd"]);
    run(&["export", "create", "fast/vhost", "--vhost-user"]);
    if has_fuse {
        run(&["export", "create", "fast/fuse", "--fuse"]);
    }
    let root = home.path("run");
    let mut all = Vec::new();
    walk(&root, &mut all);
    assert!(!has_fuse || all.iter().any(|(path, ..)| path.ends_with("fuse/fast/fuse")), "{all:?}");
    if has_fuse {
        run(&["export", "delete", "fast/fuse"]);
    }
    daemon.stop();
    let short = |path: &Path| path.strip_prefix(&root).unwrap().to_str().unwrap().to_owned();
    all.into_iter().map(|(path, kind, mode, group)| (short(&path), kind, mode, group)).collect()
}

#[test]
fn files_of_the_daemon_are_private_with_any_umask() {
    for umask in ["000", "022"] {
        let all = created(umask, &[]);
        let sockets: Vec<&str> =
            all.iter().filter(|(_, kind, ..)| *kind == 's').map(|(path, ..)| path.as_str()).collect();
        assert_eq!(sockets.len(), 3, "{all:?}");
        for (path, kind, mode, _) in &all {
            let expected = match kind {
                's' | 'f' => 0o600,
                'd' => 0o700,
                _ => continue,
            };
            assert_eq!(*mode, expected, "{path} with umask {umask}: {mode:o}");
        }
        let directories = all.iter().filter(|(_, kind, ..)| *kind == 'd').count();
        assert!(directories >= 8, "{all:?}");
    }
}

#[test]
fn the_export_group_can_use_exports_only() {
    // Root may use any group, other users their own.
    let group =
        if rustix::process::geteuid().is_root() { 54_321 } else { rustix::process::getegid().as_raw() };
    for umask in ["000", "077"] {
        let all = created(umask, &["--export-group", &group.to_string()]);
        let find = |path: &str| {
            let found = all.iter().find(|(other, ..)| other == path);
            let (_, _, mode, group) = found.unwrap_or_else(|| panic!("{path}: {all:?}"));
            (*mode, *group)
        };
        for socket in ["gabion/nbd.sock", "gabion/vhost/fast/vhost.sock"] {
            assert_eq!(find(socket), (0o660, group), "{socket} with umask {umask}");
        }
        for directory in ["gabion", "gabion/vhost", "gabion/vhost/fast"] {
            assert_eq!(find(directory), (0o750, group), "{directory} with umask {umask}");
        }
        for own in ["gabion/gabion.sock", "lib/gabion/state.json", "drives/of/fast/fast-0.drive"] {
            assert_eq!(find(own).0, 0o600, "{own} with umask {umask}");
        }
        for own in ["lib", "lib/gabion", "drives", "drives/of", "drives/of/fast"] {
            assert_eq!(find(own).0, 0o700, "{own} with umask {umask}");
        }
    }
}

#[test]
fn an_unknown_export_group_fails_the_start() {
    let home = DaemonHome::new();
    let ran = super::harness::run(&mut home.serve(&["--export-group", "no-such-group-here"]));
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.err.contains("has no group 'no-such-group-here'"), "{ran:?}");
    assert_eq!(
        json!(super::harness::names(&home.path("state"))),
        json!([]),
        "the state directory is not created"
    );
}
