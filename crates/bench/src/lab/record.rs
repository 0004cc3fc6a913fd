//! The record of a lab, written before each creation step: `lab.json` in the lab's directory under
//! `/run`.
//!
//! Invariant: everything that exists of a lab is in its record or below its directory, so that a
//! lab can be removed completely even if its creation was killed.

use std::path::{Path, PathBuf};

use reactor::Access;
use serde::{Deserialize, Serialize};

use super::LabError;
use super::model::{DriveLimits, Fraction};
use super::throttle::{DeviceNumber, Throttle};

/// The directory of all labs. Like loop devices, it does not survive a reboot.
pub(super) const LABS: &str = "/run/gabion-lab";
const FILE: &str = "lab.json";

/// A drive of a lab.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LabDrive {
    /// The loop device.
    pub device: PathBuf,
    /// The device number.
    pub number: DeviceNumber,
    /// The file behind it.
    pub file: PathBuf,
}

/// A lab.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lab {
    /// Name.
    pub name: String,
    /// Drive model.
    pub model: String,
    /// Fraction of the model's limits.
    pub fraction: Fraction,
    /// Limits of each drive.
    pub limits: DriveLimits,
    /// Bytes per drive.
    pub drive_bytes: u64,
    /// Directory of the files.
    pub directory: PathBuf,
    /// True if a tmpfs was mounted on the directory.
    pub in_memory: bool,
    /// The throttling mechanism.
    pub throttle: Throttle,
    /// The drives, in order, that have been created so far.
    pub drives: Vec<LabDrive>,
    /// True if the creation is complete.
    pub complete: bool,
}

/// Returns the directory of a lab's record.
pub(super) fn home(name: &str) -> PathBuf {
    Path::new(LABS).join(name)
}

impl Lab {
    /// Finds a lab by name.
    ///
    /// # Errors
    /// If its record cannot be read.
    pub fn find(name: &str) -> Result<Option<Self>, LabError> {
        let file = home(name).join(FILE);
        match std::fs::read(&file) {
            Ok(bytes) => serde_json::from_slice(&bytes)
                .map(Some)
                .map_err(|source| LabError::Record { path: file, source }),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(LabError::file(&file, error)),
        }
    }

    /// Returns all labs of this machine.
    ///
    /// # Errors
    /// If a record cannot be read.
    pub fn all() -> Result<Vec<Self>, LabError> {
        let entries = match std::fs::read_dir(LABS) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(|error| LabError::file(Path::new(LABS), error))?,
        };
        let mut names: Vec<String> =
            entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
        names.sort();
        let found: Result<Vec<Option<Self>>, LabError> = names.iter().map(|name| Self::find(name)).collect();
        Ok(found?.into_iter().flatten().collect())
    }

    /// Returns the devices of the drives.
    pub fn devices(&self) -> Vec<PathBuf> {
        self.drives.iter().map(|drive| drive.device.clone()).collect()
    }

    /// Writes the record atomically: after a crash, either the old or the new record exists.
    pub(super) fn save(&self) -> Result<(), LabError> {
        let home = home(&self.name);
        Access::OWNER.make_directories(&home).map_err(|error| LabError::file(&home, error))?;
        let (file, new) = (home.join(FILE), home.join("lab.json.new"));
        let bytes = serde_json::to_vec_pretty(self)
            .map_err(|source| LabError::Record { path: file.clone(), source })?;
        std::fs::write(&new, bytes).map_err(|error| LabError::file(&new, error))?;
        std::fs::rename(&new, &file).map_err(|error| LabError::file(&file, error))
    }

    /// Deletes the record.
    pub(super) fn delete(&self) -> Result<(), LabError> {
        let home = home(&self.name);
        std::fs::remove_dir_all(&home).map_err(|error| LabError::file(&home, error))
    }
}
