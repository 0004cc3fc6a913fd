//! The node's kernel: mounts, loop devices and file systems, by the programs of the distribution.
//!
//! Must not know: the protocol of the driver, and the daemon.

pub(crate) mod device;
pub(crate) mod error;
pub(crate) mod filesystem;
pub(crate) mod loops;
pub(crate) mod mounts;
pub(crate) mod program;
