//! The drive lab: throttled loop drives that stand for real ones, at a share of their speed.
//!
//! Owns the making and the taking away. Always true: it touches no device, mount or directory that its own record does not
//! name and that is not still what was recorded; what is in use stays; a making that fails or is interrupted leaves
//! nothing behind.

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

/// Why something could not be done to a lab.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// A file or directory.
    #[error("{path}: {source}")]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A record that does not read.
    #[error("{path}: not the record of a lab: {source}")]
    Record {
        /// Its file.
        path: PathBuf,
        /// Why.
        source: serde_json::Error,
    },
    /// Only root may.
    #[error("a lab takes root: it makes loop devices and limits them")]
    NotRoot,
    /// A name that does not do.
    #[error("'{0}' is no name for a lab: letters, digits and '-', at most 32")]
    Name(String),
    /// A model that is not known.
    #[error("no drive '{name}' is known: there are {known}")]
    Model {
        /// The name.
        name: String,
        /// Those that there are.
        known: String,
    },
    /// Sizes or counts that make no sense.
    #[error("{0}")]
    Plan(String),
    /// There is one of that name.
    #[error(
        "there is a lab '{0}' already: 'gabion lab status' shows it, 'gabion lab down {0}' takes it away"
    )]
    Exists(String),
    /// There is none of that name.
    #[error("there is no lab '{0}': 'gabion lab status' shows those that there are")]
    Unknown(String),
    /// Not enough room.
    #[error(
        "{drives} drives of {bytes} bytes need more than {place} has free ({free} bytes): choose fewer or smaller drives, or files on a disk with --dir"
    )]
    NoRoom {
        /// How many drives.
        drives: u16,
        /// Bytes of each.
        bytes: u64,
        /// What has too little.
        place: String,
        /// What it has.
        free: u64,
    },
    /// The kernel cannot limit devices.
    #[error(
        "this machine has neither the blkio controller of cgroup v1 nor the io controller of cgroup v2: drives cannot be limited"
    )]
    NoThrottle,
    /// A device is not what the record says.
    #[error("{device} is not what this lab made ({found}): it is left alone")]
    NotOurs {
        /// The device.
        device: PathBuf,
        /// What it is.
        found: String,
    },
    /// A device is in use.
    #[error("{device} is in use by {by}: end that first")]
    InUse {
        /// The device.
        device: PathBuf,
        /// By whom.
        by: String,
    },
    /// A program is missing.
    #[error("{program} cannot be started: {source}")]
    Start {
        /// Which.
        program: &'static str,
        /// Why.
        source: std::io::Error,
    },
    /// A program failed.
    #[error("{program} failed: {message}")]
    Failed {
        /// Which.
        program: &'static str,
        /// What it said.
        message: String,
    },
    /// Somebody wants it to end.
    #[error("interrupted: nothing was left behind")]
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

/// True if somebody has claimed a block device for himself, as pools and mounted file systems do.
pub(crate) fn is_claimed(device: &Path) -> bool {
    loops::is_claimed(device)
}

/// Who has a device mounted or holds it, if anybody does; nobody holds a plain file.
///
/// # Errors
/// When the system's tables cannot be read.
pub(crate) fn user_of(path: &Path) -> Result<Option<String>, LabError> {
    let path = std::fs::canonicalize(path).map_err(|error| LabError::file(path, error))?;
    match loops::number(&path) {
        Ok(number) => Ok(loops::holder(&path, number, &mounts()?)),
        Err(_) => Ok(None),
    }
}
