//! Volumes as block devices of this host, by ublk: `/dev/ublkbN`, for file systems and other users
//! of disks.
//!
//! Requests of the kernel and their results are commands on the rings of the reactors
//! (`IORING_OP_URING_CMD`). Each queue of a device runs on one reactor. The kernel copies data
//! between its own pages and our buffers. Devices are added and deleted through
//! `/dev/ublk-control`. Structures and numbers are those of the kernel's
//! `include/uapi/linux/ublk_cmd.h`.
//!
//! Always true: a request that has begun runs to its end. When the daemon dies, its devices stay
//! and their users wait for the next daemon, which gets all incomplete requests again.
//!
//! Must not know: how a volume stores data, or its other users.

mod control;
mod device;
mod error;
mod execute;
mod frontend;
mod limits;
mod link;
mod queue;
mod server;
mod uapi;

pub use error::{DeviceError, DeviceErrorKind};
pub use frontend::{UblkConfig, UblkFrontend};
pub use limits::QUEUES_MAX;
pub use server::{DeviceInUse, UblkOptions, UblkServer, UblkSource, delete_orphaned_devices};
