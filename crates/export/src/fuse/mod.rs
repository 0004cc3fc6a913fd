//! Volumes as files over FUSE: for loop devices and programs that work on files.
//!
//! A file is mounted on a node of its own, which cannot be opened while nothing is mounted on it.
//! The kernel's requests are received on a thread by the `fuser` crate, and executed on one
//! reactor. The kernel's page cache is not used, so that completed writes are visible to all users
//! of the volume.
//!
//! Always true: a request that has begun is completed; bytes outside of a write keep their values
//! although the volume has sectors; after the daemon died, its mount is gone or the next daemon
//! removes it, with the loop devices of the file.
//!
//! Must not know: how a volume stores data, other users of a volume.

mod dead_loops;
mod file;
mod frontend;
mod handler;
mod limits;
mod mount;
mod open_count;
mod request_limiter;
mod sector_lock;
mod server;

pub use file::VolumeFile;
pub use frontend::FuseFrontend;
pub use mount::{MountError, MountErrorKind, release_place, reserve_place};
pub use server::{FileInUse, FuseOptions, FuseServer};
