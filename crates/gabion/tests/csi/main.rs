//! Tests of the CSI driver: the driver and a daemon as child processes, called as a cluster calls
//! them. All need root; most need FUSE and loop devices, some a guest.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "all of this is tests")]

mod chart;
mod driver;
#[path = "../machines/gabion_guest.rs"]
#[allow(dead_code, reason = "shared with the tests of machines, which use more of it")]
mod gabion_guest;
mod groups;
#[path = "../machines/guest.rs"]
#[allow(dead_code, reason = "shared with the tests of machines, which use more of it")]
mod guest;
#[path = "../daemon/harness.rs"]
#[allow(dead_code, reason = "shared with the tests of the daemon, which use more of it")]
mod harness;
#[path = "../machines/initramfs.rs"]
#[allow(dead_code, reason = "shared with the tests of machines, which use more of it")]
mod initramfs;
mod kills;
mod lifecycle;
mod local_guest;
mod network;
mod network_guest;
mod sanity;
mod times;
#[path = "../machines/turn.rs"]
mod turn;
