//! The real daemon as a child process, driven by the real command line, on file drives.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "all of this is tests")]

mod access;
mod bad_input;
mod commands;
mod config;
mod corruption;
mod crash;
mod drives;
mod events;
mod exports;
#[path = "../../../export/tests/vhost/front_end.rs"]
#[allow(dead_code, reason = "the front end of the export room's own tests, of which these use less")]
mod front_end;
mod fuse;
mod harness;
mod hostile;
mod images;
mod limits;
mod lost;
mod members;
mod nbd;
mod pools;
mod restart;
mod root;
mod salvage;
mod snapshots;
mod stale;
#[path = "../../../export/src/vhost/testing.rs"]
mod testing;
mod vhost;
mod volumes;
