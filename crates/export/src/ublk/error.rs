//! Why there is no device.

use reactor::{IoError, IoErrorKind};

/// Why a volume cannot be served as a device, for control flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DeviceErrorKind {
    /// This kernel has no ublk, or it is not loaded.
    Missing,
    /// This kernel's ublk lacks what we need.
    Old,
    /// The system does not let us.
    Denied,
    /// The daemon has no io_uring, through which ublk goes.
    NoRing,
    /// Something that is not ours lies where the link to it belongs.
    Occupied,
    /// Anything else.
    Failed,
}

/// A volume that cannot be served as a device.
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

    /// What the kernel said when it was to do something.
    pub(super) fn kernel(doing: &str, error: IoError) -> Self {
        let kind = match error.kind() {
            IoErrorKind::ReadOnly => DeviceErrorKind::Denied,
            _ => DeviceErrorKind::Failed,
        };
        Self::new(kind, format!("the kernel refused to {doing}: {error}"))
    }

    /// What the system said when it was to do something.
    pub(super) fn system(doing: &str, error: &std::io::Error) -> Self {
        let kind = match error.kind() {
            std::io::ErrorKind::PermissionDenied => DeviceErrorKind::Denied,
            _ => DeviceErrorKind::Failed,
        };
        Self::new(kind, format!("cannot {doing}: {error}"))
    }

    /// The kind, for control flow.
    pub fn kind(&self) -> DeviceErrorKind {
        self.kind
    }
}
