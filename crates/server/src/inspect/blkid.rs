//! The system's own look at a drive, by util-linux's `blkid`: it knows more marks than our table does.
//!
//! Always true: a host without it, and one on which it does not answer, is as if it had found nothing.

use std::ffi::OsStr;
use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// The program, where administrators' programs are looked for.
pub(super) const PROGRAM: &str = "blkid";
/// Directories of administrators' programs, which the PATH of a service may lack.
const PLACES: &str = "/usr/sbin:/sbin:/usr/bin:/bin";
/// How long it may take: it reads some MiB.
const PATIENCE: Duration = Duration::from_secs(20);
/// Pause between two looks whether it has ended.
const PAUSE: Duration = Duration::from_millis(2);
/// Bytes of its answer that are read.
const ANSWER_MAX: u64 = 64 << 10;
/// Its exit status for several marks that exclude each other.
const AMBIVALENT: i32 = 8;

/// The mark that `program` finds on a drive, if it finds any.
pub(super) fn ask(program: impl AsRef<OsStr>, drive: &Path) -> Option<String> {
    let path = match std::env::var("PATH") {
        Ok(path) => format!("{path}:{PLACES}"),
        Err(_) => PLACES.into(),
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
            tracing::debug!(%error, "blkid is not asked what a drive holds");
            return None;
        }
    };
    let Some(status) = ended(&mut child) else {
        tracing::warn!(drive = %drive.display(), "blkid did not say within {PATIENCE:?} what a drive holds");
        return None;
    };
    let mut answer = String::new();
    // What it prints is shorter than a pipe, so that it ended without being read. Text that is none names nothing.
    let _ = child.stdout.take()?.take(ANSWER_MAX).read_to_string(&mut answer);
    name(status, &answer)
}

/// Waits for its end; kills it when that takes too long.
fn ended(child: &mut Child) -> Option<ExitStatus> {
    let end = Instant::now() + PATIENCE;
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Some(status),
            Ok(None) if Instant::now() < end => std::thread::sleep(PAUSE),
            _ => {
                // It may end by itself at this moment.
                let _ = child.kill();
                let _ = child.wait();
                return None;
            }
        }
    }
}

fn name(status: ExitStatus, answer: &str) -> Option<String> {
    if status.code() == Some(AMBIVALENT) {
        return Some("several signatures that exclude each other, says blkid".into());
    }
    if !status.success() {
        return None;
    }
    let value = |key: &str| {
        let value = |line: &str| {
            line.split_once('=').filter(|(name, _)| *name == key).map(|(_, value)| value.to_owned())
        };
        answer.lines().find_map(value).filter(|value| !value.is_empty())
    };
    let what = match (value("TYPE"), value("PTTYPE")) {
        (Some(kind), _) => kind,
        (None, Some(table)) => format!("partition table of type {table}"),
        (None, None) => return None,
    };
    Some(format!("{what}, says blkid"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// A program that answers so.
    fn answering(directory: &tempfile::TempDir, script: &str) -> std::path::PathBuf {
        let path = directory.path().join("blkid");
        std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    #[test]
    fn what_it_says_counts_and_its_silence_does_not() {
        let directory = tempfile::tempdir().unwrap();
        let drive = Path::new("/dev/null");
        for (script, says) in [
            ("echo DEVNAME=$4; echo TYPE=newfs; echo USAGE=filesystem", Some("newfs, says blkid")),
            ("echo PTTYPE=atari", Some("partition table of type atari, says blkid")),
            ("exit 8", Some("several signatures that exclude each other, says blkid")),
            ("exit 2", None),
            ("echo TYPE=newfs; exit 4", None),
            ("echo TYPE=", None),
            ("printf 'TYPE=\\377'", None),
        ] {
            let program = answering(&directory, script);
            assert_eq!(ask(&program, drive).as_deref(), says, "{script}");
        }
        assert_eq!(ask("no-such-program-here", drive), None);
    }
}
