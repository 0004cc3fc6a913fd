//! The directory of a cluster on the controlling machine: hosts, inventory, proposals, policy,
//! configuration, secrets and the record of steps.
//!
//! Always true: files are replaced atomically, and secrets are readable by their owner alone. One
//! command changes a cluster at a time.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use file_lock::FileLock;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::hosts::is_name;
use ceph::{ADMIN_USER, CONF_FILE, Error, ErrorKind, Result, VOLUMES_USER};

/// Directory of all clusters.
pub const CLUSTERS_DIR: &str = "/var/lib/gabion/clusters";
/// File of the model.
pub(crate) const MODEL: &str = "model.json";
/// Longest directory of a cluster: paths of Unix sockets have up to 107 bytes.
const DIRECTORY_MAX: usize = 60;

/// The directory of a cluster.
#[derive(Clone, Debug)]
pub struct Workspace {
    name: String,
    directory: PathBuf,
}

/// The exclusive right to change a cluster, until it is dropped.
pub struct ChangeLock(#[allow(dead_code, reason = "its drop ends the lock")] FileLock);

/// The files with which programs of Ceph reach a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientAccess {
    /// The configuration, with the monitors.
    pub conf: PathBuf,
    /// The user, as `client.NAME`.
    pub user: String,
    /// The file with the user's key.
    pub keyring: PathBuf,
}

impl Workspace {
    /// Returns the access of the administrator.
    pub fn admin_access(&self) -> ClientAccess {
        ClientAccess {
            conf: self.path(CONF_FILE),
            user: format!("client.{ADMIN_USER}"),
            keyring: ceph::keyring_path(&self.directory, ADMIN_USER),
        }
    }

    /// Creates the directory of a new cluster, or opens an existing one.
    ///
    /// # Errors
    /// `Invalid` for an invalid name or a path that is too long; `Io`.
    pub fn create(base: &Path, name: &str) -> Result<Self> {
        let workspace = Self::at(base, name)?;
        let created =
            std::fs::DirBuilder::new().recursive(true).mode(0o700).create(workspace.path("proposals"));
        created.map_err(|error| Error::file(&workspace.directory, &error))?;
        Ok(workspace)
    }

    /// Opens the directory of a cluster.
    ///
    /// # Errors
    /// `NotFound`; `Invalid` for an invalid name.
    pub fn open(base: &Path, name: &str) -> Result<Self> {
        let workspace = Self::at(base, name)?;
        if workspace.directory.is_dir() {
            return Ok(workspace);
        }
        let message = format!("there is no cluster '{name}' in {}", base.display());
        Err(Error::new(ErrorKind::NotFound, message).hint("'gabion cluster prepare' creates a cluster"))
    }

    fn at(base: &Path, name: &str) -> Result<Self> {
        if !is_name(name) {
            let message = format!("'{name}' is not a cluster name: letters, digits, '-' and '.'");
            return Err(Error::new(ErrorKind::Invalid, message));
        }
        let directory = std::path::absolute(base).map_err(|error| Error::file(base, &error))?.join(name);
        let text = directory.to_str().unwrap_or_default();
        if text.is_empty()
            || text.len() > DIRECTORY_MAX
            || text.contains(|c: char| c.is_whitespace() || "'\"\\$".contains(c))
        {
            let message = format!(
                "{} is unsuitable for a cluster: the path has up to {DIRECTORY_MAX} bytes, without spaces and quotes",
                directory.display()
            );
            return Err(Error::new(ErrorKind::Invalid, message).hint("select another directory with --dir"));
        }
        Ok(Self { name: name.to_owned(), directory })
    }

    /// Name of the cluster.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Returns true after `configure` or `adopt`: the status can be read.
    pub fn is_configured(&self) -> bool {
        self.path(MODEL).is_file()
    }

    /// Returns true after `services`: images can be served as volumes.
    pub fn has_volumes(&self) -> bool {
        self.path(CONF_FILE).is_file() && ceph::keyring_path(&self.directory, VOLUMES_USER).is_file()
    }

    /// Path of a file of the cluster.
    pub fn path(&self, file: &str) -> PathBuf {
        self.directory.join(file)
    }

    /// Directory of a host's daemons, on that host.
    pub(crate) fn host_root(&self, host: &str) -> String {
        format!("{}/hosts/{host}", self.directory.display())
    }

    /// Takes the right to change the cluster.
    ///
    /// # Errors
    /// `Busy` if another command has it.
    pub fn lock(&self) -> Result<ChangeLock> {
        let path = self.path("lock");
        let lock = FileLock::acquire(&path, 0o600).map_err(|error| Error::file(&path, &error))?;
        let lock = lock.ok_or_else(|| {
            Error::new(ErrorKind::Busy, format!("another command changes cluster '{}'", self.name))
        })?;
        Ok(ChangeLock(lock))
    }

    /// Reads a JSON file; nothing if it does not exist.
    ///
    /// # Errors
    /// `Io`; `Invalid` for other contents.
    pub(crate) fn load<T: DeserializeOwned>(&self, file: &str) -> Result<Option<T>> {
        let path = self.path(file);
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Error::file(&path, &error)),
        };
        let parsed = serde_json::from_str(&text);
        parsed
            .map(Some)
            .map_err(|error| Error::new(ErrorKind::Invalid, format!("{}: {error}", path.display())))
    }

    /// Replaces a JSON file.
    ///
    /// # Errors
    /// `Io`.
    pub(crate) fn save<T: Serialize>(&self, file: &str, value: &T) -> Result<()> {
        let text = serde_json::to_string_pretty(value)
            .map_err(|error| Error::new(ErrorKind::Io, format!("{file}: {error}")))?;
        self.write(file, format!("{text}\n").as_bytes())
    }

    /// Replaces a file.
    ///
    /// # Errors
    /// `Io`.
    pub(crate) fn write(&self, file: &str, contents: &[u8]) -> Result<()> {
        let path = self.path(file);
        let temporary = self.path(&format!("{file}.new"));
        let failed = |error: std::io::Error| Error::file(&path, &error);
        if let Some(parent) = path.parent() {
            std::fs::DirBuilder::new().recursive(true).mode(0o700).create(parent).map_err(failed)?;
        }
        let mut opened = OpenOptions::new()
            .create(true)
            .truncate(true)
            .write(true)
            .mode(0o600)
            .open(&temporary)
            .map_err(failed)?;
        opened.write_all(contents).and_then(|()| opened.sync_all()).map_err(failed)?;
        std::fs::rename(&temporary, &path).map_err(failed)
    }
}

/// Returns the names of the clusters in a directory.
pub fn list(base: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(base).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries
        .filter(|entry| entry.path().join("proposals").is_dir())
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    names.sort();
    names
}
