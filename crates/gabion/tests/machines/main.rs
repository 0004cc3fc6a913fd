//! Tests of `gabion vm` with QEMU and the distribution's kernel.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "all of this is tests")]

mod boot;
mod commands;
mod gabion_guest;
mod guest;
#[path = "../daemon/harness.rs"]
#[allow(dead_code, reason = "the harness of the daemon's tests, of which these use less")]
mod harness;
mod initramfs;
mod lifecycle;
mod nvme;
mod sectors;
mod turn;
mod ublk;
mod upgrade;
