//! What a run has started or made and a killed process of it has left: so that it can be gone on with, without its old load or daemon in the way.
//!
//! Always true: only a process that carries the run's mark is ended. It has it from its first moment on: one that is written down after it was started
//! is not, if whoever started it is killed in between.

use std::ffi::{OsStr, OsString};
use std::fs::DirBuilder;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// The variable of the environment that says which folder of a run a process belongs to.
const MARK: &str = "GABION_BENCH_FOLDER";
/// How long processes may take to end in order.
const PATIENCE: Duration = Duration::from_secs(60);
const STEP: Duration = Duration::from_millis(20);

/// The variable, and its value, that a process has in its environment which belongs to the run in `folder`.
///
/// # Errors
/// When the folder is not there.
pub fn mark_of(folder: &Path) -> std::io::Result<(String, OsString)> {
    Ok((MARK.into(), folder.canonicalize()?.into()))
}

/// Marks what a command will start.
pub(crate) fn mark(command: &mut Command, folder: &Path) -> std::io::Result<()> {
    command.envs([mark_of(folder)?]);
    Ok(())
}

/// A directory for sockets and state of a system while it stands, which goes with this. It is written down in the run's folder: that
/// of a killed process is taken away by the next. Addresses of Unix sockets must be short, which rules out the folder itself.
#[derive(Debug)]
pub struct Place(PathBuf);

impl Place {
    /// Makes one for the system `name`.
    ///
    /// # Errors
    /// When it cannot be made or written down, or an old one cannot be taken away.
    pub fn new(folder: &Path, name: &str) -> std::io::Result<Self> {
        let at = |path: &Path, error: std::io::Error| {
            std::io::Error::new(error.kind(), format!("{}: {error}", path.display()))
        };
        let note = folder.join(format!("{name}.directory"));
        if let Ok(old) = std::fs::read_to_string(&note).map(PathBuf::from)
            && old.parent() == Some(&std::env::temp_dir())
            && old.exists()
        {
            std::fs::remove_dir_all(&old).map_err(|error| at(&old, error))?;
        }
        let place = std::env::temp_dir().join(format!("gabion-bench-{}-{name}", std::process::id()));
        std::fs::write(&note, place.display().to_string()).map_err(|error| at(&note, error))?;
        // What is there already was made by somebody else: its sockets would be his.
        DirBuilder::new().mode(0o700).create(&place).map_err(|error| at(&place, error))?;
        Ok(Self(place))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // What stays is found by the next.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Ends what carries the mark of `folder`, in order or not.
///
/// # Errors
/// When it cannot be ended, or the folder is not there.
pub fn end_all(folder: &Path) -> std::io::Result<()> {
    end_within(folder, PATIENCE)
}

fn end_within(folder: &Path, patience: Duration) -> std::io::Result<()> {
    let mark = [OsStr::new(MARK), folder.canonicalize()?.as_os_str()].map(OsStrExt::as_bytes).join(&b'=');
    for signal in [Signal::TERM, Signal::KILL] {
        let deadline = Instant::now() + patience;
        let mut told = Vec::new();
        loop {
            let living = marked(&mark)?;
            if living.is_empty() {
                return Ok(());
            }
            for (process, handle) in living {
                if !told.contains(&process) {
                    // It may have ended by itself.
                    let _ = pidfd_send_signal(handle, signal);
                    told.push(process);
                }
            }
            if Instant::now() > deadline {
                break;
            }
            std::thread::sleep(STEP);
        }
    }
    Err(std::io::Error::other("a process that an earlier one has left does not end"))
}

/// The living processes with this in their environment, by handles that mean no others when they have ended.
fn marked(mark: &[u8]) -> std::io::Result<Vec<(Pid, OwnedFd)>> {
    let numbers = std::fs::read_dir("/proc")?.flatten();
    let processes = numbers.filter_map(|entry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?));
    let carries = |process: &Pid| {
        let environment = std::fs::read(format!("/proc/{}/environ", process.as_raw_nonzero()));
        environment.is_ok_and(|variables| variables.split(|byte| *byte == 0).any(|variable| variable == mark))
    };
    let handles = processes.filter_map(|process| {
        let handle = pidfd_open(process, PidfdFlags::empty()).ok()?;
        carries(&process).then_some((process, handle))
    });
    Ok(handles.collect())
}

#[cfg(test)]
mod tests {
    use std::process::Stdio;

    use super::*;

    #[test]
    fn a_place_goes_with_its_system_or_before_the_next() {
        let folder = tempfile::tempdir().unwrap();
        let name = format!("place-{}", std::process::id());
        let place = Place::new(folder.path(), &name).unwrap();
        let at = place.path().to_owned();
        std::fs::write(at.join("x.sock"), "").unwrap();
        assert!(Place::new(folder.path(), "other").unwrap().path() != at);
        // As if this process had been killed.
        let _never_dropped = std::mem::ManuallyDrop::new(place);
        assert!(at.exists());
        let place = Place::new(folder.path(), &name).unwrap();
        assert!(!at.join("x.sock").exists());
        drop(place);
        assert!(!at.exists());
        // What somebody has written into our note is not taken for ours.
        std::fs::write(folder.path().join(format!("{name}.directory")), folder.path().display().to_string())
            .unwrap();
        let inner = folder.path().join("inner");
        std::fs::create_dir(&inner).unwrap();
        std::fs::write(folder.path().join("z.directory"), inner.display().to_string()).unwrap();
        drop(Place::new(folder.path(), "z").unwrap());
        assert!(inner.exists(), "only what lies where such places are made is taken away");
    }

    #[test]
    fn only_what_is_marked_is_ended() {
        let (place, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let sleeper = |program: &str, arguments: &[&str], folder: &Path| {
            let mut command = Command::new(program);
            mark(command.args(arguments).stdin(Stdio::null()), folder).unwrap();
            command.spawn().unwrap()
        };
        let mut ours = sleeper("sleep", &["600"], place.path());
        // One that takes no hint, and what it has started itself.
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
