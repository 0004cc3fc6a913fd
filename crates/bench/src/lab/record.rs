//! What a lab has made, written down before it is made: `lab.json` in the lab's directory under `/run`.
//!
//! Always true: whatever exists of a lab is in its record, or lies below its directory. So a lab whose making was cut short,
//! by a kill too, can be taken away whole.

use std::path::{Path, PathBuf};

use reactor::Access;
use serde::{Deserialize, Serialize};

use super::LabError;
use super::model::{DriveLimits, Fraction};
use super::throttle::{DeviceNumber, Throttle};

/// Where labs are: gone with the next start of the machine, as loop devices are.
pub(super) const LABS: &str = "/run/gabion-lab";
const FILE: &str = "lab.json";

/// A drive of a lab.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LabDrive {
    /// The loop device.
    pub device: PathBuf,
    /// Its number.
    pub number: DeviceNumber,
    /// The file behind it.
    pub file: PathBuf,
}

/// A lab.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lab {
    /// Its name.
    pub name: String,
    /// The drive that is imitated.
    pub model: String,
    /// How much of one.
    pub fraction: Fraction,
    /// What each drive can do.
    pub limits: DriveLimits,
    /// Bytes of each drive.
    pub drive_bytes: u64,
    /// Where the files are.
    pub directory: PathBuf,
    /// A file system in memory was mounted there.
    pub in_memory: bool,
    /// How the limits are kept.
    pub throttle: Throttle,
    /// The drives, in their order. Those that are still to come have no device yet, and are missing here.
    pub drives: Vec<LabDrive>,
    /// It is complete.
    pub complete: bool,
}

/// The directory of a lab's record.
pub(super) fn home(name: &str) -> PathBuf {
    Path::new(LABS).join(name)
}

impl Lab {
    /// The lab of that name, if there is one.
    ///
    /// # Errors
    /// When its record cannot be read.
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

    /// All labs of this machine.
    ///
    /// # Errors
    /// When a record cannot be read.
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

    /// The drives' devices.
    pub fn devices(&self) -> Vec<PathBuf> {
        self.drives.iter().map(|drive| drive.device.clone()).collect()
    }

    /// Writes it down, so that a crash leaves the old record or the new one.
    pub(super) fn save(&self) -> Result<(), LabError> {
        let home = home(&self.name);
        Access::OWNER.make_directories(&home).map_err(|error| LabError::file(&home, error))?;
        let (file, new) = (home.join(FILE), home.join("lab.json.new"));
        let bytes = serde_json::to_vec_pretty(self)
            .map_err(|source| LabError::Record { path: file.clone(), source })?;
        std::fs::write(&new, bytes).map_err(|error| LabError::file(&new, error))?;
        std::fs::rename(&new, &file).map_err(|error| LabError::file(&file, error))
    }

    /// Forgets it.
    pub(super) fn forget(&self) -> Result<(), LabError> {
        let home = home(&self.name);
        std::fs::remove_dir_all(&home).map_err(|error| LabError::file(&home, error))
    }
}
