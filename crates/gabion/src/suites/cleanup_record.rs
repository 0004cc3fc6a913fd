//! The clean-up record of a target on other hosts: the name of all that a run creates for it there,
//! stored in the folder of the run as long as any of it exists.
//!
//! Always true: a record is durable before the first object with its name exists. Runs of other
//! hosts and other targets of the run have other names. Only objects of a record are removed.

use std::fs::File;
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

/// Hexadecimal digits of the random part of a name.
const TOKEN_DIGITS: usize = 6;
/// Ending of the file of a record.
const ENDING: &str = ".cleanup";

/// A clean-up record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct CleanupRecord {
    /// The name, or the prefix of names.
    pub(super) name: String,
    /// The pool of a Ceph cluster with the objects, if a name alone does not find them.
    #[serde(default)]
    pub(super) pool: Option<String>,
}

impl CleanupRecord {
    /// Returns a name that no other run or target has.
    ///
    /// # Errors
    /// If the folder has no name.
    pub(super) fn new(folder: &Path, target: &str) -> Result<Self> {
        let run = folder.file_name().and_then(|name| name.to_str()).context("the run has no name")?;
        let mut token = uuid::Uuid::new_v4().simple().to_string();
        token.truncate(TOKEN_DIGITS);
        Ok(Self { name: format!("bench-{run}-{token}-{target}"), pool: None })
    }

    /// Stores the record of a target, which must have none.
    ///
    /// # Errors
    /// If the folder cannot be written, or the target has a record.
    pub(super) fn store(&self, folder: &Path, target: &str) -> Result<()> {
        let path = path_of(folder, target);
        let at = || path.display().to_string();
        anyhow::ensure!(!path.exists(), "{}: the target has a clean-up record already", path.display());
        let new = path.with_extension("new");
        let mut file = File::create(&new).with_context(at)?;
        file.write_all(&serde_json::to_vec(self)?).with_context(at)?;
        file.sync_all().with_context(at)?;
        std::fs::rename(&new, &path).with_context(at)?;
        File::open(folder).and_then(|folder| folder.sync_all()).with_context(at)
    }

    /// Returns the record of a target, if an earlier process of the run may have left something.
    ///
    /// # Errors
    /// If the file cannot be read or parsed.
    pub(super) fn find(folder: &Path, target: &str) -> Result<Option<Self>> {
        let path = path_of(folder, target);
        match std::fs::read(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            found => {
                let bytes = found.with_context(|| path.display().to_string())?;
                let parsed = serde_json::from_slice(&bytes);
                Ok(Some(parsed.with_context(|| format!("{} is damaged", path.display()))?))
            }
        }
    }

    /// Removes the record of a target after everything with its name was removed.
    ///
    /// # Errors
    /// If the folder cannot be written.
    pub(super) fn forget(folder: &Path, target: &str) -> Result<()> {
        let path = path_of(folder, target);
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(error).with_context(|| path.display().to_string())
            }
            _ => Ok(()),
        }
    }
}

fn path_of(folder: &Path, target: &str) -> PathBuf {
    folder.join(format!("{target}{ENDING}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_target_of_each_run_has_its_own_name() {
        let run = Path::new("/runs/sweep-20260102-030405");
        let [first, other] =
            [CleanupRecord::new(run, "rbd").unwrap(), CleanupRecord::new(run, "rbd").unwrap()];
        assert!(first.name.starts_with("bench-sweep-20260102-030405-"), "{first:?}");
        assert!(first.name.ends_with("-rbd"), "{first:?}");
        assert_ne!(first, other, "runs of the same second on two hosts");
    }

    #[test]
    fn a_record_lasts_until_it_is_forgotten() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        CleanupRecord::forget(folder, "rbd").unwrap();
        assert_eq!(CleanupRecord::find(folder, "rbd").unwrap(), None);
        let record =
            CleanupRecord { pool: Some("fast".into()), ..CleanupRecord::new(folder, "rbd").unwrap() };
        record.store(folder, "rbd").unwrap();
        assert_eq!(CleanupRecord::find(folder, "rbd").unwrap(), Some(record.clone()));
        assert_eq!(CleanupRecord::find(folder, "rbd2").unwrap(), None);
        record.store(folder, "rbd").unwrap_err();
        CleanupRecord::forget(folder, "rbd").unwrap();
        assert_eq!(CleanupRecord::find(folder, "rbd").unwrap(), None);
        std::fs::write(path_of(folder, "rbd"), "{").unwrap();
        assert!(
            CleanupRecord::find(folder, "rbd").unwrap_err().to_string().contains("rbd.cleanup is damaged")
        );
    }
}
