//! The daemon's persistent state: the pools to open at start, and the exports.
//!
//! Invariants: after a crash at any point the file holds the state of the last successful
//! [`State::update`], complete; only one daemon uses a state directory.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use file_lock::FileLock;
use reactor::Access;
use serde::{Deserialize, Serialize};

use crate::error::{Error, ErrorKind, Result};
use api::types::{NetworkOptions, Protocol};

const FILE: &str = "state.json";
const VERSION: u32 = 1;

/// The contents of the state file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PersistentState {
    version: u32,
    /// The pools, by name.
    pub(crate) pools: BTreeMap<String, PoolRecord>,
    /// The exports.
    pub(crate) exports: Vec<ExportRecord>,
    /// The volumes of imports and exports of images that are in progress.
    #[serde(default)]
    pub(crate) unfinished: Vec<UnfinishedRecord>,
    /// The newest state of each pool that this host has used, by pool id. Drives with an older
    /// state are stale.
    #[serde(default)]
    pub(crate) newest: BTreeMap<String, StampRecord>,
    /// The pools that serve S3, by name.
    #[serde(default)]
    pub(crate) s3: BTreeMap<String, S3Record>,
    /// Persistent reservations, by the identity of their volume.
    #[serde(default)]
    pub(crate) reservations: BTreeMap<String, ReservationRecord>,
}

/// The persistent reservations of a volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReservationRecord {
    /// Counts changes of the registrants.
    pub(crate) generation: u32,
    /// The registrants: name, and key.
    pub(crate) registrants: Vec<(String, u64)>,
    /// The reservation: type, numbered as NVMe does, and holder.
    pub(crate) held: Option<(u8, String)>,
}

/// A volume or snapshot that exists only while an image is copied. After a crash of the daemon, it
/// is deleted when its pool is opened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct UnfinishedRecord {
    pub(crate) pool: String,
    pub(crate) volume: String,
    /// The stable identity of the volume.
    pub(crate) id: String,
}

/// S3 on a pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct S3Record {
    /// Address and port for clients.
    pub(crate) listen: String,
    /// Region that clients must use.
    pub(crate) region: String,
    /// Domain of addresses in which the bucket is part of the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) domain: Option<String>,
    /// Length of a day of lifecycle rules in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) lifecycle_day: Option<u64>,
    /// Files of the certificate for HTTPS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) tls: Option<TlsRecord>,
}

/// The files of a certificate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TlsRecord {
    /// Absolute path of the certificate chain.
    pub(crate) certificate: String,
    /// Absolute path of the private key.
    pub(crate) private_key: String,
}

/// The stamp of a pool state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct StampRecord {
    /// The number of the opening.
    pub(crate) epoch: u64,
    /// The random number of the opening.
    pub(crate) nonce: u64,
    /// The version of the superblock within the opening.
    pub(crate) generation: u64,
}

/// A pool that is registered with the daemon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PoolRecord {
    /// The id of the pool, once the pool has been opened.
    pub(crate) id: Option<String>,
    /// The last known paths of the drives.
    pub(crate) drives: Vec<PathBuf>,
    /// True if the pool is opened at start.
    pub(crate) open: bool,
}

/// A volume that is exported.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ExportRecord {
    pub(crate) pool: String,
    pub(crate) volume: String,
    pub(crate) protocol: Protocol,
    /// A number that distinguishes exports of a volume over the same protocol.
    #[serde(default = "first")]
    pub(crate) number: u32,
    pub(crate) read_only: bool,
    /// True if other exports of the volume may write too.
    #[serde(default)]
    pub(crate) shared: bool,
    /// The number of queues, for protocols with queues.
    #[serde(default)]
    pub(crate) queues: Option<u16>,
    /// The reactors that serve the queues; empty for all reactors.
    #[serde(default)]
    pub(crate) reactors: Vec<u32>,
    /// The options of a network disk.
    #[serde(default)]
    pub(crate) network: NetworkOptions,
    /// The program that manages the export.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) owner: Option<String>,
}

/// Returns the number of exports from releases with only one export per volume.
fn first() -> u32 {
    1
}

impl Default for PersistentState {
    fn default() -> Self {
        Self {
            version: VERSION,
            pools: BTreeMap::new(),
            exports: Vec::new(),
            unfinished: Vec::new(),
            newest: BTreeMap::new(),
            s3: BTreeMap::new(),
            reservations: BTreeMap::new(),
        }
    }
}

/// The state directory, locked.
pub(crate) struct State {
    directory: PathBuf,
    current: Mutex<PersistentState>,
    _lock: FileLock,
}

impl State {
    /// Locks the directory and reads its state file. Creates the directory if it does not exist.
    ///
    /// # Errors
    /// `Busy` when another daemon uses the directory; when the state file cannot be read.
    pub(crate) fn open(directory: &Path) -> Result<Self> {
        let failed = |action: &str, source: std::io::Error| {
            let kind = match source.kind() {
                std::io::ErrorKind::PermissionDenied => ErrorKind::Denied,
                std::io::ErrorKind::StorageFull => ErrorKind::NoSpace,
                _ => ErrorKind::Io,
            };
            Error::new(
                kind,
                format!("cannot {action} in the state directory {}: {source}", directory.display()),
            )
            .hint("use another directory with --state-dir")
        };
        Access::OWNER.make_directories(directory).map_err(|error| failed("create files", error))?;
        let lock = FileLock::acquire(&directory.join("lock"), 0o600);
        let Some(lock) = lock.map_err(|error| failed("lock a file", error))? else {
            let message = format!("another daemon uses the state directory {}", directory.display());
            return Err(Error::new(ErrorKind::Busy, message)
                .hint("one daemon serves all pools of a host; a second daemon needs its own --state-dir, --socket and --nbd-socket"));
        };
        let state = match std::fs::read(directory.join(FILE)) {
            Ok(bytes) => parse(&directory.join(FILE), &bytes)?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => PersistentState::default(),
            Err(error) => return Err(failed("read the state file", error)),
        };
        Ok(Self { directory: directory.to_owned(), current: Mutex::new(state), _lock: lock })
    }

    /// The directory, for files of its own.
    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    fn lock(&self) -> MutexGuard<'_, PersistentState> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a copy of the current state.
    pub(crate) fn get(&self) -> PersistentState {
        self.lock().clone()
    }

    /// Changes the state and persists it.
    ///
    /// # Errors
    /// When the file cannot be written; the state is unchanged then.
    pub(crate) fn update(&self, change: impl FnOnce(&mut PersistentState)) -> Result<()> {
        let mut current = self.lock();
        let mut changed = current.clone();
        change(&mut changed);
        if changed != *current {
            self.write(&changed)?;
            *current = changed;
        }
        Ok(())
    }

    /// Writes the unchanged state, to detect an unwritable directory before an operation that must
    /// be persisted.
    ///
    /// # Errors
    /// As [`State::update`].
    pub(crate) fn check_writable(&self) -> Result<()> {
        let current = self.lock();
        self.write(&current)
    }

    fn write(&self, state: &PersistentState) -> Result<()> {
        let replace = || -> std::io::Result<()> {
            let (path, new) = (self.directory.join(FILE), self.directory.join(format!("{FILE}.new")));
            let mut options = OpenOptions::new();
            let mut file = options.create(true).truncate(true).write(true).mode(0o600).open(&new)?;
            serde_json::to_writer_pretty(&mut file, state)?;
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
            .hint("check the free space and the permissions of that directory, then try again")
        })
    }
}

pub(crate) fn parse(path: &Path, bytes: &[u8]) -> Result<PersistentState> {
    /// The field that every version has.
    #[derive(Deserialize)]
    struct VersionField {
        version: u32,
    }
    let parsed = serde_json::from_slice::<VersionField>(bytes).and_then(|field| match field.version {
        VERSION => serde_json::from_slice(bytes).map(Ok),
        other => Ok(Err(other)),
    });
    match parsed {
        Ok(Ok(state)) => Ok(state),
        Ok(Err(version)) => {
            let message =
                format!("{} has version {version}; this release reads version {VERSION}", path.display());
            Err(Error::new(ErrorKind::Version, message).hint("use the release that wrote the file"))
        }
        Err(error) => {
            let message = format!("{} is damaged: {error}", path.display());
            Err(Error::new(ErrorKind::Corrupt, message)
                .hint("move the file away: it holds no volume data, and 'gabion pool open NAME --drives ...' registers a pool again"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool() -> PoolRecord {
        PoolRecord { id: None, drives: vec!["/dev/a".into()], open: true }
    }

    #[test]
    fn state_survives_a_restart_and_locks_the_directory() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("deep/state");
        let state = State::open(&path).unwrap();
        assert_eq!(state.get(), PersistentState::default());
        state.update(|state| drop(state.pools.insert("a".into(), pool()))).unwrap();
        let expected = state.get();
        assert_eq!(State::open(&path).err().unwrap().kind(), ErrorKind::Busy);
        drop(state);
        // A partial new file, as after a crash during a write, is ignored.
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
        assert_eq!(state.get(), PersistentState::default());
    }

    #[test]
    fn an_unreadable_state_file_is_reported_and_not_changed() {
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
