//! The drive lab: throttled loop devices that emulate real drives at a fraction of their speed.
//!
//! Creates and removes labs. Invariants: only devices, mounts and directories that the lab's record
//! names and that still match it are touched; devices in use are kept; a failed or interrupted
//! creation leaves nothing behind.

mod down;
mod loops;
mod model;
mod record;
mod throttle;
mod up;

use std::path::{Path, PathBuf};

pub use down::down;
pub use model::{DriveLimits, DriveModel, Fraction, FractionError, model, models};
pub use record::{Lab, LabDrive};
pub use throttle::{DeviceNumber, Throttle};
pub use up::{LabPlan, up};

/// A failed operation on a lab.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// A file or directory could not be accessed.
    #[error("{path}: {source}")]
    File {
        /// The path.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// The record of a lab is invalid.
    #[error("{path} is not a valid lab record: {source}")]
    Record {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: serde_json::Error,
    },
    /// Root privileges are required.
    #[error("a lab requires root: it creates and throttles loop devices")]
    NotRoot,
    /// The name is invalid.
    #[error("invalid lab name '{0}': use up to 32 letters, digits and '-'")]
    Name(String),
    /// The drive model is unknown.
    #[error("unknown drive model '{name}'; known models: {known}")]
    Model {
        /// The name.
        name: String,
        /// The known models.
        known: String,
    },
    /// A size or count is invalid.
    #[error("{0}")]
    Plan(String),
    /// A lab of that name exists.
    #[error("lab '{0}' already exists: 'gabion lab status' shows it, 'gabion lab down {0}' removes it")]
    Exists(String),
    /// No lab has that name.
    #[error("lab '{0}' does not exist: 'gabion lab status' lists the labs")]
    Unknown(String),
    /// There is not enough space.
    #[error(
        "{drives} drives of {bytes} bytes do not fit into {place} ({free} bytes free): use fewer or smaller drives, or a directory on a disk with --dir"
    )]
    NoRoom {
        /// Number of drives.
        drives: u16,
        /// Bytes per drive.
        bytes: u64,
        /// The location without enough space.
        place: String,
        /// Free bytes.
        free: u64,
    },
    /// The kernel cannot throttle devices.
    #[error(
        "cannot throttle drives: this machine has neither the blkio controller of cgroup v1 nor the io controller of cgroup v2"
    )]
    NoThrottle,
    /// A device does not match the record.
    #[error("{device} does not match the lab's record ({found}); it is not touched")]
    NotOurs {
        /// The device.
        device: PathBuf,
        /// The mismatch.
        found: String,
    },
    /// A device is in use.
    #[error("{device} is in use by {by}; stop it first")]
    InUse {
        /// The device.
        device: PathBuf,
        /// The user.
        by: String,
    },
    /// A program could not be started.
    #[error("cannot start {program}: {source}")]
    Start {
        /// The program.
        program: &'static str,
        /// The cause.
        source: std::io::Error,
    },
    /// A program failed.
    #[error("{program} failed: {message}")]
    Failed {
        /// The program.
        program: &'static str,
        /// The program's message.
        message: String,
    },
    /// The creation was interrupted.
    #[error("interrupted; nothing was left behind")]
    Interrupted,
}

impl LabError {
    fn file(path: &Path, source: impl Into<std::io::Error>) -> Self {
        Self::File { path: path.into(), source: source.into() }
    }
}

fn mounts() -> Result<String, LabError> {
    let path = Path::new("/proc/self/mountinfo");
    std::fs::read_to_string(path).map_err(|error| LabError::file(path, error))
}

fn must_be_root() -> Result<(), LabError> {
    if rustix::process::geteuid().is_root() { Ok(()) } else { Err(LabError::NotRoot) }
}

/// True if a block device is open exclusively, as by a pool or a mounted file system.
pub(crate) fn is_claimed(device: &Path) -> bool {
    loops::is_claimed(device)
}

/// Returns the mount or program that uses a device, if any; `None` for a plain file.
///
/// # Errors
/// If the system's tables cannot be read.
pub(crate) fn user_of(path: &Path) -> Result<Option<String>, LabError> {
    let path = std::fs::canonicalize(path).map_err(|error| LabError::file(path, error))?;
    match loops::number(&path) {
        Ok(number) => Ok(loops::holder(&path, number, &mounts()?)),
        Err(_) => Ok(None),
    }
}
