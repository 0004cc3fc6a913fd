//! Volumes as block devices of this host, by ublk: `/dev/ublkbN`, for file systems and whatever works on disks.
//!
//! The kernel's requests come and its answers go as commands on the rings of the reactors (`IORING_OP_URING_CMD`), each queue of
//! a device on one of them; data is copied by the kernel between its own pages and memory of ours. Devices are made and
//! deleted at `/dev/ublk-control`. Structures and numbers are those of the kernel's `include/uapi/linux/ublk_cmd.h`.
//!
//! Always true: a request that was begun is finished; when the daemon dies, its devices stay, and whoever uses them waits for the
//! next daemon, which is asked again what was not answered.
//!
//! Must not know: how a volume stores, who else uses it.

mod control;
mod device;
mod error;
mod execute;
mod frontend;
mod limits;
mod link;
mod queue;
mod server;
mod words;

pub use error::{DeviceError, DeviceErrorKind};
pub use frontend::{UblkConfig, UblkFrontend};
pub use limits::QUEUES_MAX;
pub use server::{InUse, Options, Server, Source, clear};
