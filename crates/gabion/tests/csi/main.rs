//! Tests of the CSI driver: the driver and a daemon as child processes, called as a cluster calls
//! them. All need root, FUSE and loop devices.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "all of this is tests")]

mod driver;
#[path = "../daemon/harness.rs"]
#[allow(dead_code, reason = "shared with the tests of the daemon, which use more of it")]
mod harness;
mod kills;
mod lifecycle;
mod sanity;
