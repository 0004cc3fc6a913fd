//! Probing a drive with util-linux's `blkid`, which knows more signatures than the built-in table.
//!
//! Invariant: if `blkid` is missing or does not end in time, the result is the same as no
//! signature.

use std::ffi::OsStr;
use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// The program, searched for in `PATH` and in [`SYSTEM_PATH`].
pub(super) const PROGRAM: &str = "blkid";
/// Directories of system programs, which may be missing from the PATH of a service.
const SYSTEM_PATH: &str = "/usr/sbin:/sbin:/usr/bin:/bin";
/// Time limit of the program, which reads some MiB.
const TIMEOUT: Duration = Duration::from_secs(20);
/// Pause between two checks whether the program has ended.
const POLL_INTERVAL: Duration = Duration::from_millis(2);
/// Maximum number of bytes of its output that are read.
const OUTPUT_MAX: u64 = 64 << 10;
/// The exit status for several conflicting signatures.
const AMBIVALENT: i32 = 8;

/// Returns the signature that `program` finds on a drive, if any.
pub(super) fn probe(program: impl AsRef<OsStr>, drive: &Path) -> Option<String> {
    let path = match std::env::var("PATH") {
        Ok(path) => format!("{path}:{SYSTEM_PATH}"),
        Err(_) => SYSTEM_PATH.into(),
    };
    let spawned = Command::new(program)
        .args(["--probe", "--output", "export"])
        .arg(drive)
        .env("PATH", path)
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn();
    let mut child = match spawned {
        Ok(child) => child,
        Err(error) => {
            tracing::debug!(%error, "cannot run blkid");
            return None;
        }
    };
    let Some(status) = wait_with_timeout(&mut child) else {
        tracing::warn!(drive = %drive.display(), "blkid did not end within {TIMEOUT:?} and was killed");
        return None;
    };
    let mut output = String::new();
    // The output fits into the pipe buffer, so that the program ends before it is read. Output that
    // is not UTF-8 counts as no signature.
    let _ = child.stdout.take()?.take(OUTPUT_MAX).read_to_string(&mut output);
    parse(status, &output)
}

/// Waits until the program ends, and kills it after [`TIMEOUT`].
fn wait_with_timeout(child: &mut Child) -> Option<ExitStatus> {
    let end = Instant::now() + TIMEOUT;
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Some(status),
            Ok(None) if Instant::now() < end => std::thread::sleep(POLL_INTERVAL),
            _ => {
                // An error means that the program has just ended.
                let _ = child.kill();
                let _ = child.wait();
                return None;
            }
        }
    }
}

fn parse(status: ExitStatus, output: &str) -> Option<String> {
    if status.code() == Some(AMBIVALENT) {
        return Some("several conflicting signatures (according to blkid)".into());
    }
    if !status.success() {
        return None;
    }
    let value = |key: &str| {
        let value = |line: &str| {
            line.split_once('=').filter(|(name, _)| *name == key).map(|(_, value)| value.to_owned())
        };
        output.lines().find_map(value).filter(|value| !value.is_empty())
    };
    let kind = match (value("TYPE"), value("PTTYPE")) {
        (Some(kind), _) => kind,
        (None, Some(table)) => format!("partition table of type {table}"),
        (None, None) => return None,
    };
    Some(format!("{kind} (according to blkid)"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// Returns a program that runs a shell script.
    fn program(directory: &tempfile::TempDir, script: &str) -> std::path::PathBuf {
        let path = directory.path().join("blkid");
        std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    #[test]
    fn output_is_parsed_and_failures_mean_no_signature() {
        let directory = tempfile::tempdir().unwrap();
        let drive = Path::new("/dev/null");
        for (script, signature) in [
            ("echo DEVNAME=$4; echo TYPE=newfs; echo USAGE=filesystem", Some("newfs (according to blkid)")),
            ("echo PTTYPE=atari", Some("partition table of type atari (according to blkid)")),
            ("exit 8", Some("several conflicting signatures (according to blkid)")),
            ("exit 2", None),
            ("echo TYPE=newfs; exit 4", None),
            ("echo TYPE=", None),
            ("printf 'TYPE=\\377'", None),
        ] {
            let program = program(&directory, script);
            assert_eq!(probe(&program, drive).as_deref(), signature, "{script}");
        }
        assert_eq!(probe("no-such-program-here", drive), None);
    }
}
