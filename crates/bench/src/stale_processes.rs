//! Processes and directories that a killed run left behind, cleaned up so that the run can resume.
//!
//! Invariant: only processes tagged with the run's folder are ended. A process has the tag from its
//! start, as an environment variable; a process id that is recorded after the start could be lost
//! if the run is killed in between.

use std::ffi::{OsStr, OsString};
use std::fs::DirBuilder;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// The environment variable with the folder of the run that a process belongs to.
const FOLDER_VARIABLE: &str = "GABION_BENCH_FOLDER";
/// Maximum time to wait for processes to exit after a signal.
const EXIT_TIMEOUT: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Returns the environment variable and the value that tag a process of the run in `folder`.
///
/// # Errors
/// If the folder does not exist.
pub fn environment_tag(folder: &Path) -> std::io::Result<(String, OsString)> {
    Ok((FOLDER_VARIABLE.into(), folder.canonicalize()?.into()))
}

/// Tags the process that `command` will start.
pub(crate) fn tag(command: &mut Command, folder: &Path) -> std::io::Result<()> {
    command.envs([environment_tag(folder)?]);
    Ok(())
}

/// A temporary directory for the sockets and state of a running system, removed on drop. Its path
/// is recorded in the run's folder, so that the next process removes it if this one is killed. The
/// folder itself cannot hold the sockets because their paths must be short.
#[derive(Debug)]
pub struct StateDir(PathBuf);

impl StateDir {
    /// Creates the directory of the system `name`.
    ///
    /// # Errors
    /// If it cannot be created or recorded, or a stale one cannot be removed.
    pub fn new(folder: &Path, name: &str) -> std::io::Result<Self> {
        let at = |path: &Path, error: std::io::Error| {
            std::io::Error::new(error.kind(), format!("{}: {error}", path.display()))
        };
        let record = folder.join(format!("{name}.directory"));
        if let Ok(old) = std::fs::read_to_string(&record).map(PathBuf::from)
            && old.parent() == Some(&std::env::temp_dir())
            && old.exists()
        {
            std::fs::remove_dir_all(&old).map_err(|error| at(&old, error))?;
        }
        let place = std::env::temp_dir().join(format!("gabion-bench-{}-{name}", std::process::id()));
        std::fs::write(&record, place.display().to_string()).map_err(|error| at(&record, error))?;
        // An existing directory belongs to another process, and so would its sockets.
        DirBuilder::new().mode(0o700).create(&place).map_err(|error| at(&place, error))?;
        Ok(Self(place))
    }

    /// Returns the path.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for StateDir {
    fn drop(&mut self) {
        // The next process removes a directory that stays.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Ends every process tagged with `folder`: with SIGTERM, then with SIGKILL.
///
/// # Errors
/// If a process does not exit, or the folder does not exist.
pub fn end_all(folder: &Path) -> std::io::Result<()> {
    end_within(folder, EXIT_TIMEOUT)
}

fn end_within(folder: &Path, timeout: Duration) -> std::io::Result<()> {
    let tag =
        [OsStr::new(FOLDER_VARIABLE), folder.canonicalize()?.as_os_str()].map(OsStrExt::as_bytes).join(&b'=');
    for signal in [Signal::TERM, Signal::KILL] {
        let deadline = Instant::now() + timeout;
        let mut signalled = Vec::new();
        loop {
            let living = tagged_processes(&tag)?;
            if living.is_empty() {
                return Ok(());
            }
            for (process, handle) in living {
                if !signalled.contains(&process) {
                    // The process may have exited already.
                    let _ = pidfd_send_signal(handle, signal);
                    signalled.push(process);
                }
            }
            if Instant::now() > deadline {
                break;
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }
    Err(std::io::Error::other("a stale process of an earlier run does not exit"))
}

/// Returns the live processes with this environment variable, with descriptors that stay valid if
/// the process id is reused.
fn tagged_processes(tag: &[u8]) -> std::io::Result<Vec<(Pid, OwnedFd)>> {
    let numbers = std::fs::read_dir("/proc")?.flatten();
    let processes = numbers.filter_map(|entry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?));
    let is_tagged = |process: &Pid| {
        let environment = std::fs::read(format!("/proc/{}/environ", process.as_raw_nonzero()));
        environment.is_ok_and(|variables| variables.split(|byte| *byte == 0).any(|variable| variable == tag))
    };
    let handles = processes.filter_map(|process| {
        let handle = pidfd_open(process, PidfdFlags::empty()).ok()?;
        is_tagged(&process).then_some((process, handle))
    });
    Ok(handles.collect())
}

#[cfg(test)]
mod tests {
    use std::process::Stdio;

    use super::*;

    #[test]
    fn a_state_directory_is_removed_on_drop_or_by_the_next_run() {
        let folder = tempfile::tempdir().unwrap();
        let name = format!("place-{}", std::process::id());
        let place = StateDir::new(folder.path(), &name).unwrap();
        let at = place.path().to_owned();
        std::fs::write(at.join("x.sock"), "").unwrap();
        assert!(StateDir::new(folder.path(), "other").unwrap().path() != at);
        // As if this process had been killed.
        let _never_dropped = std::mem::ManuallyDrop::new(place);
        assert!(at.exists());
        let place = StateDir::new(folder.path(), &name).unwrap();
        assert!(!at.join("x.sock").exists());
        drop(place);
        assert!(!at.exists());
        // A path that another program has written into the record is ignored.
        std::fs::write(folder.path().join(format!("{name}.directory")), folder.path().display().to_string())
            .unwrap();
        let inner = folder.path().join("inner");
        std::fs::create_dir(&inner).unwrap();
        std::fs::write(folder.path().join("z.directory"), inner.display().to_string()).unwrap();
        drop(StateDir::new(folder.path(), "z").unwrap());
        assert!(inner.exists(), "only directories in the temporary directory are removed");
    }

    #[test]
    fn only_tagged_processes_are_ended() {
        let (place, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let sleeper = |program: &str, arguments: &[&str], folder: &Path| {
            let mut command = Command::new(program);
            tag(command.args(arguments).stdin(Stdio::null()), folder).unwrap();
            command.spawn().unwrap()
        };
        let mut ours = sleeper("sleep", &["600"], place.path());
        // A process that ignores SIGTERM, with a child.
        let stubborn = "trap '' TERM; sleep 600";
        let mut stubborn_one = sleeper("sh", &["-c", stubborn], place.path());
        let mut other = sleeper("sleep", &["600"], elsewhere.path());
        let ended = std::thread::spawn(move || (ours.wait().unwrap(), stubborn_one.wait().unwrap()));
        end_within(place.path(), Duration::from_millis(200)).unwrap();
        let (ours, stubborn) = ended.join().unwrap();
        assert!(!ours.success() && !stubborn.success());
        assert!(other.try_wait().unwrap().is_none());
        end_all(place.path()).unwrap();
        other.kill().unwrap();
        other.wait().unwrap();
    }
}
