//! The node's kernel: mounts, loop devices, NBD and NVMe disks, and file systems.
//!
//! Must not know: the protocol of the driver, and the daemon.

mod blocking;
pub(crate) mod device;
pub(crate) mod error;
pub(crate) mod filesystem;
pub(crate) mod loops;
pub(crate) mod mounts;
pub(crate) mod nbd;
mod nbd_handshake;
mod netlink;
pub(crate) mod nvme;
pub(crate) mod nvme_secrets;
pub(crate) mod program;
