//! `gabion vm` with the real daemon and real machines: QEMU runs the distribution's kernel on Gabion's disks.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "all of this is tests")]

mod boot;
mod guest;
#[path = "../daemon/harness.rs"]
#[allow(dead_code, reason = "the harness of the daemon's tests, of which these use less")]
mod harness;
mod initramfs;
mod inside;
mod life;
mod sectors;
mod ublk;
mod words;
