//! Errors of ublk devices.

use reactor::{IoError, IoErrorKind};

/// The kind of a device error, for control flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DeviceErrorKind {
    /// This kernel has no ublk, or the module is not loaded.
    Missing,
    /// This kernel's ublk lacks required features.
    Old,
    /// Access was denied.
    Denied,
    /// The daemon has no io_uring, which ublk requires.
    NoRing,
    /// A foreign file is in the place of the link to the device.
    Occupied,
    /// Any other error.
    Failed,
}

/// A volume cannot be served as a device.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct DeviceError {
    kind: DeviceErrorKind,
    message: String,
}

impl DeviceError {
    pub(super) fn new(kind: DeviceErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }

    /// Creates the error of a failed kernel command.
    pub(super) fn kernel(action: &str, error: IoError) -> Self {
        let kind = match error.kind() {
            IoErrorKind::ReadOnly => DeviceErrorKind::Denied,
            _ => DeviceErrorKind::Failed,
        };
        Self::new(kind, format!("the kernel refused to {action}: {error}"))
    }

    /// Creates the error of a failed system call.
    pub(super) fn system(action: &str, error: &std::io::Error) -> Self {
        let kind = match error.kind() {
            std::io::ErrorKind::PermissionDenied => DeviceErrorKind::Denied,
            _ => DeviceErrorKind::Failed,
        };
        Self::new(kind, format!("cannot {action}: {error}"))
    }

    /// Returns the kind, for control flow.
    pub fn kind(&self) -> DeviceErrorKind {
        self.kind
    }
}
