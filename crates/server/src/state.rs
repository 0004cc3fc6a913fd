//! What the daemon remembers across restarts: which pools it opens, and what is exported.
//!
//! Always true: the file holds the last state that [`State::update`] succeeded with, whole, whatever happened in between;
//! only one daemon uses a state directory.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use reactor::Access;
use rustix::fs::FlockOperation;
use serde::{Deserialize, Serialize};

use crate::error::{Error, ErrorKind, Result};
use api::types::Protocol;

const FILE: &str = "state.json";
const VERSION: u32 = 1;

/// Everything that is remembered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Remembered {
    version: u32,
    /// The pools, by name.
    pub(crate) pools: BTreeMap<String, RememberedPool>,
    /// What is exported.
    pub(crate) exports: Vec<RememberedExport>,
    /// The newest state of each pool that this host has used, by the pool's identity: drives with an older one are stale.
    #[serde(default)]
    pub(crate) newest: BTreeMap<String, RememberedState>,
}

/// A state of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RememberedState {
    /// Number of the opening.
    pub(crate) epoch: u64,
    /// Random number of the opening.
    pub(crate) nonce: u64,
    /// Version of the superblock within the opening.
    pub(crate) generation: u64,
}

/// A pool that the daemon knows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RememberedPool {
    /// Its identity, once it has been seen.
    pub(crate) id: Option<String>,
    /// Where its drives were last found.
    pub(crate) drives: Vec<PathBuf>,
    /// True if it is to be opened at start.
    pub(crate) open: bool,
}

/// A volume that is exported.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RememberedExport {
    pub(crate) pool: String,
    pub(crate) volume: String,
    pub(crate) protocol: Protocol,
    /// Distinguishes exports of the volume by the same protocol.
    #[serde(default = "first")]
    pub(crate) number: u32,
    pub(crate) read_only: bool,
    /// Other exports of the volume may write as well.
    #[serde(default)]
    pub(crate) shared: bool,
    /// Number of queues, for protocols that have them.
    #[serde(default)]
    pub(crate) queues: Option<u16>,
    /// The reactors that serve them; all of them if there are none.
    #[serde(default)]
    pub(crate) reactors: Vec<u32>,
}

/// The number of exports that releases wrote which had one export for each volume.
fn first() -> u32 {
    1
}

impl Default for Remembered {
    fn default() -> Self {
        Self { version: VERSION, pools: BTreeMap::new(), exports: Vec::new(), newest: BTreeMap::new() }
    }
}

/// The state directory, locked.
pub(crate) struct State {
    directory: PathBuf,
    remembered: Mutex<Remembered>,
    _lock: File,
}

impl State {
    /// Opens the directory, which is made if need be, and reads what is remembered in it.
    ///
    /// # Errors
    /// When another daemon uses it, or the file in it cannot be read.
    pub(crate) fn open(directory: &Path) -> Result<Self> {
        let failed = |doing: &str, source: std::io::Error| {
            let kind = match source.kind() {
                std::io::ErrorKind::PermissionDenied => ErrorKind::Denied,
                std::io::ErrorKind::StorageFull => ErrorKind::NoSpace,
                _ => ErrorKind::Io,
            };
            Error::new(
                kind,
                format!("cannot {doing} in the state directory {}: {source}", directory.display()),
            )
            .hint("--state-dir names another directory")
        };
        Access::OWNER.make_directories(directory).map_err(|error| failed("make files", error))?;
        let mut options = OpenOptions::new();
        options.create(true).truncate(false).write(true).mode(0o600);
        let lock = options.open(directory.join("lock")).map_err(|error| failed("make files", error))?;
        if rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
            let message = format!("another daemon uses the state directory {}", directory.display());
            return Err(Error::new(ErrorKind::Busy, message)
                .hint("one daemon serves all pools of a machine; a second one needs its own --state-dir, --socket and --nbd-socket"));
        }
        let remembered = match std::fs::read(directory.join(FILE)) {
            Ok(bytes) => parse(&directory.join(FILE), &bytes)?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Remembered::default(),
            Err(error) => return Err(failed("read what is remembered", error)),
        };
        Ok(Self { directory: directory.to_owned(), remembered: Mutex::new(remembered), _lock: lock })
    }

    fn lock(&self) -> MutexGuard<'_, Remembered> {
        self.remembered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is remembered now.
    pub(crate) fn get(&self) -> Remembered {
        self.lock().clone()
    }

    /// Changes what is remembered, durably.
    ///
    /// # Errors
    /// When the file cannot be written: then nothing has changed.
    pub(crate) fn update(&self, change: impl FnOnce(&mut Remembered)) -> Result<()> {
        let mut remembered = self.lock();
        let mut changed = remembered.clone();
        change(&mut changed);
        if changed != *remembered {
            self.write(&changed)?;
            *remembered = changed;
        }
        Ok(())
    }

    /// Finds out now whether [`State::update`] is going to work, before something is done that must be remembered.
    ///
    /// # Errors
    /// Those of [`State::update`].
    pub(crate) fn check_writable(&self) -> Result<()> {
        let remembered = self.lock();
        self.write(&remembered)
    }

    fn write(&self, remembered: &Remembered) -> Result<()> {
        let replace = || -> std::io::Result<()> {
            let (path, new) = (self.directory.join(FILE), self.directory.join(format!("{FILE}.new")));
            let mut options = OpenOptions::new();
            let mut file = options.create(true).truncate(true).write(true).mode(0o600).open(&new)?;
            serde_json::to_writer_pretty(&mut file, remembered)?;
            file.write_all(b"\n")?;
            file.sync_all()?;
            std::fs::rename(&new, &path)?;
            File::open(&self.directory)?.sync_all()
        };
        replace().map_err(|error| {
            let kind = match error.kind() {
                std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => ErrorKind::NoSpace,
                _ => ErrorKind::Io,
            };
            Error::new(
                kind,
                format!("cannot write the daemon's state in {}: {error}", self.directory.display()),
            )
            .hint("make room in that directory, or make it writable, and try again")
        })
    }
}

pub(crate) fn parse(path: &Path, bytes: &[u8]) -> Result<Remembered> {
    /// What every version has.
    #[derive(Deserialize)]
    struct Front {
        version: u32,
    }
    let parsed = serde_json::from_slice::<Front>(bytes).and_then(|front| match front.version {
        VERSION => serde_json::from_slice(bytes).map(Ok),
        other => Ok(Err(other)),
    });
    match parsed {
        Ok(Ok(remembered)) => Ok(remembered),
        Ok(Err(version)) => {
            let message =
                format!("{} is of version {version}, this release reads version {VERSION}", path.display());
            Err(Error::new(ErrorKind::Version, message).hint("use the release that wrote it"))
        }
        Err(error) => {
            let message = format!("{} is damaged: {error}", path.display());
            Err(Error::new(ErrorKind::Corrupt, message)
                .hint("move it away: no data is in it, and 'gabion pool open NAME --drives ...' makes the daemon know a pool again"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool() -> RememberedPool {
        RememberedPool { id: None, drives: vec!["/dev/a".into()], open: true }
    }

    #[test]
    fn what_was_remembered_is_there_again() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("deep/state");
        let state = State::open(&path).unwrap();
        assert_eq!(state.get(), Remembered::default());
        state.update(|state| drop(state.pools.insert("a".into(), pool()))).unwrap();
        let expected = state.get();
        assert_eq!(State::open(&path).err().unwrap().kind(), ErrorKind::Busy);
        drop(state);
        // What a crash in the middle of a write leaves does no harm.
        std::fs::write(path.join("state.json.new"), "{").unwrap();
        assert_eq!(State::open(&path).unwrap().get(), expected);
    }

    #[test]
    fn a_failed_write_changes_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let state = State::open(directory.path()).unwrap();
        std::fs::create_dir(directory.path().join("state.json.new")).unwrap();
        assert!(state.check_writable().is_err());
        let error = state.update(|state| drop(state.pools.insert("a".into(), pool()))).unwrap_err();
        assert!(error.to_string().contains("cannot write the daemon's state"), "{error}");
        assert_eq!(state.get(), Remembered::default());
    }

    #[test]
    fn what_cannot_be_read_is_said_and_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(FILE);
        for (text, kind) in [
            ("", ErrorKind::Corrupt),
            ("{}", ErrorKind::Corrupt),
            (r#"{"version":1}"#, ErrorKind::Corrupt),
            (r#"{"version":2,"news":[]}"#, ErrorKind::Version),
        ] {
            std::fs::write(&path, text).unwrap();
            let error = State::open(directory.path()).err().unwrap();
            assert_eq!(error.kind(), kind, "{text}");
            assert!(error.hint_text().is_some());
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
        }
    }
}
