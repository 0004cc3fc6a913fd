//! The state that all calls of the Node service share.

use std::path::{Path, PathBuf};

use tonic::Status;

use crate::daemon::Daemon;
use crate::host::nbd::NbdHost;
use crate::host::nvme::NvmeHost;
use crate::locks::VolumeLocks;
use crate::options::AttachMode;
use crate::status::{invalid, required};

/// The shared state.
#[derive(Clone, Debug)]
pub(crate) struct NodeContext {
    pub(crate) daemon: Daemon,
    pub(crate) locks: VolumeLocks,
    pub(crate) node_id: String,
    pub(crate) max_volumes: u32,
    pub(crate) attach: AttachMode,
    /// The kernel's initiator of NVMe/TCP.
    pub(crate) nvme: NvmeHost,
    /// The kernel's client of NBD.
    pub(crate) nbd: NbdHost,
}

/// Returns an absolute path of a request.
///
/// # Errors
/// `INVALID_ARGUMENT` if it is empty or relative.
pub(super) fn path(field: &str, value: &str) -> Result<PathBuf, Status> {
    let path = Path::new(required(field, value)?);
    if path.is_absolute() {
        Ok(path.to_owned())
    } else {
        Err(invalid(field, format!("'{value}' is not an absolute path")))
    }
}

/// Returns the file in the staging directory of a raw block volume on which its device is mounted.
pub(super) fn staged_device(staging: &Path) -> PathBuf {
    staging.join("device")
}
