//! The node's kernel: mounts, loop devices, network disks and file systems.
//!
//! Must not know: the protocol of the driver, and the daemon.

pub(crate) mod device;
pub(crate) mod error;
pub(crate) mod filesystem;
pub(crate) mod loops;
pub(crate) mod mounts;
pub(crate) mod nvme;
pub(crate) mod program;
