//! Processes that a run has started, on file while they live: so that a run whose own process was killed can be gone on with,
//! without its old load or daemon in the way.
//!
//! Always true: only a process that was written down is ended, by number and time of its beginning, which no other has.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

const ENDING: &str = "process";
/// How long a process may take to end in order.
const PATIENCE: Duration = Duration::from_secs(60);

/// A process on file; off it again with this.
#[derive(Debug)]
pub struct OnFile(PathBuf);

impl OnFile {
    /// Writes a process down in `folder`.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn new(folder: &Path, name: &str, process: u32) -> std::io::Result<Self> {
        let path = folder.join(format!("{name}.{ENDING}"));
        // One that has ended already needs no file; an empty one names nobody.
        let text = begun(process).map_or_else(String::new, |begun| format!("{process} {begun}\n"));
        std::fs::write(&path, text)?;
        Ok(Self(path))
    }
}

impl Drop for OnFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
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
        std::fs::create_dir(&place).map_err(|error| at(&place, error))?;
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

/// Ends what is on file in `folder` and still lives.
///
/// # Errors
/// When it cannot be ended, or the folder cannot be read.
pub fn end_all(folder: &Path) -> std::io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|ending| ending == ENDING) {
            end(&path)?;
            std::fs::remove_file(&path)?;
        }
    }
    Ok(())
}

fn end(path: &Path) -> std::io::Result<()> {
    let text = std::fs::read_to_string(path)?;
    let parsed = text
        .trim()
        .split_once(' ')
        .and_then(|(process, begun)| Some((process.parse::<u32>().ok()?, begun.parse::<u64>().ok()?)));
    let Some((process, since)) = parsed else { return Ok(()) };
    let Some(pid) = i32::try_from(process).ok().and_then(Pid::from_raw) else { return Ok(()) };
    let lives = || begun(process) == Some(since);
    for signal in [Signal::TERM, Signal::KILL] {
        let deadline = Instant::now() + PATIENCE;
        if lives() {
            kill_process(pid, signal)?;
        }
        while lives() {
            if Instant::now() > deadline {
                break;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    if lives() { Err(std::io::Error::other(format!("process {process} does not end"))) } else { Ok(()) }
}

/// When a living process began, in ticks since the machine's start (proc_pid_stat(5)).
fn begun(process: u32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
    // The first field here is the third there.
    if fields.first() == Some(&"Z") { None } else { fields.get(22 - 3)?.parse().ok() }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

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
    fn only_the_very_process_is_ended() {
        let place = tempfile::tempdir().unwrap();
        let sleeper = || Command::new("sleep").arg("600").stdin(Stdio::null()).spawn().unwrap();
        let (mut ours, mut other) = (sleeper(), sleeper());
        let file = OnFile::new(place.path(), "x", ours.id()).unwrap();
        // A file of a process whose number somebody else has now.
        std::fs::write(place.path().join("y.process"), format!("{} 1\n", other.id())).unwrap();
        std::fs::write(place.path().join("note.txt"), "kept").unwrap();
        end_all(place.path()).unwrap();
        assert!(!ours.wait().unwrap().success());
        assert!(other.try_wait().unwrap().is_none());
        assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 1);
        drop(file);
        other.kill().unwrap();
        other.wait().unwrap();
        drop(OnFile::new(place.path(), "z", other.id()).unwrap());
        assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 1);
    }
}
