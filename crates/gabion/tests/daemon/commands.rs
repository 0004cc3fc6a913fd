//! Commands without a daemon, and their errors.

use std::process::Command;

use super::harness::{DaemonHome, command, run};

#[test]
fn without_a_daemon_the_error_names_its_socket() {
    let home = DaemonHome::new();
    for arguments in [
        &["pool", "list"][..],
        &["pool", "status"],
        &["volume", "list", "fast"],
        &["drive", "list"],
        &["export", "list"],
    ] {
        let ran = home.gabion(arguments);
        assert_eq!(ran.code, Some(1), "{ran:?}");
        assert!(ran.err.contains("no daemon is serving on") && ran.err.contains(&home.socket()), "{ran:?}");
        assert!(ran.err.contains("hint: start it with"), "{ran:?}");
    }
    let ran = home.gabion(&["pool", "list", "--json"]);
    let error: serde_json::Value = serde_json::from_str(&ran.err).unwrap();
    assert_eq!((ran.out.as_str(), error["error"]["kind"].as_str()), ("", Some("unreachable")));
}

#[test]
fn a_command_waits_for_a_daemon_that_is_starting() {
    let succeeds = || {
        let home = DaemonHome::new();
        let mut daemon = home.serve(&[]).stderr(std::process::Stdio::null()).spawn().unwrap();
        let ran = home.gabion(&["pool", "list"]);
        daemon.kill().unwrap();
        daemon.wait().unwrap();
        ran.code == Some(0)
    };
    // On a loaded machine the start can take longer than the two seconds.
    assert!((0..5).any(|_| succeeds()));
}

#[test]
fn an_invalid_command_line_exits_with_2() {
    let home = DaemonHome::new();
    for arguments in [
        &["pool"][..],
        &["pool", "make"],
        &["pool", "create", "fast"],
        &["pool", "create", "fast", "--scheme", "4+1", "--level", "5", "--drives", "/dev/null"],
        &["pool", "create", "fast", "--scheme", "4+1", "--files", "/tmp", "--count", "5"],
        &["volume", "create", "fast/vm01"],
        &["volume", "create", "vm01", "--size", "1G"],
        &["volume", "create", "fast/vm01", "--size", "lots"],
        &["volume", "create", "fast/vm01", "--size", "-1"],
        &["volume", "create", "fast/vm01", "--size", "99999P"],
        &["export", "create", "fast/vm01"],
        &["export", "create", "fast/vm01", "--nbd", "--vhost-user"],
        &["export", "create", "fast/vm01", "--nbd", "--queues", "2"],
        &["export", "create", "fast/vm01", "--nbd", "--fuse"],
        &["export", "create", "fast/vm01", "--fuse", "--queues", "2"],
        &["export", "create", "fast/vm01", "--fuse", "--ublk"],
        &["export", "create", "fast/vm01", "--fuse", "--reactors", "0"],
        &["export", "create", "fast/vm01", "--vhost-user", "--queues", "many"],
        &["check"],
        &["serve", "--nonsense"],
        // Destructive commands need confirmation, and there is no terminal.
        &["pool", "destroy", "fast", "--yes=maybe"],
    ] {
        let ran = home.gabion(arguments);
        assert_eq!(ran.code, Some(2), "{arguments:?}: {ran:?}");
    }
}

#[test]
fn version_prints_the_release() {
    let ran = run(&mut command(&["version"]));
    assert!(ran.out.starts_with(&format!("gabion {} (API v1", env!("CARGO_PKG_VERSION"))), "{ran:?}");
    let ran = run(&mut command(&["version", "--json"]));
    let version: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(version["version"], env!("CARGO_PKG_VERSION"));
}

#[test]
fn the_version_flag_names_the_release_and_its_commit() {
    let git = |arguments: &[&str]| {
        let ran =
            Command::new("git").args(arguments).current_dir(env!("CARGO_MANIFEST_DIR")).output().ok()?;
        ran.status.success().then(|| String::from_utf8(ran.stdout).unwrap())
    };
    // A copy of the source outside of its repository, such as an archive, has no commit.
    let is_repository = git(&["ls-files", "--error-unmatch", "Cargo.toml"]).is_some();
    let hash = git(&["rev-parse", "--short=12", "HEAD"]).filter(|_| is_repository);
    let commit = hash.map_or_else(String::new, |hash| format!(" (commit {})", hash.trim()));
    for flag in ["--version", "-V"] {
        let ran = run(&mut command(&[flag]));
        assert_eq!(ran.out, format!("gabion {}{commit}\n", env!("CARGO_PKG_VERSION")), "{ran:?}");
        assert_eq!(ran.code, Some(0));
    }
}

#[test]
fn completions_exist_for_every_shell() {
    for shell in ["bash", "zsh", "fish"] {
        let ran = run(&mut command(&["completions", shell]));
        assert_eq!(ran.code, Some(0));
        assert!(ran.out.contains("gabion") && ran.out.contains("destroy"), "{shell}");
    }
}

#[test]
fn help_of_commands_has_usage_and_examples() {
    for path in [
        &[][..],
        &["serve"],
        &["pool", "create"],
        &["pool", "status"],
        &["pool", "open"],
        &["volume", "create"],
        &["drive", "identify"],
        &["export", "create"],
        &["check"],
        &["salvage"],
        &["completions"],
    ] {
        let ran = run(command(path).arg("--help"));
        assert_eq!(ran.code, Some(0));
        assert!(ran.out.contains("Usage:") && ran.out.contains("Examples:"), "{path:?}: {}", ran.out);
    }
}
