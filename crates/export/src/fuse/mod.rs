//! Volumes as files, by FUSE: for loop devices, and for whatever works on files.
//!
//! A file is mounted on a node of its own, which nobody can open while nothing is mounted there. The kernel's requests are taken on a thread, by the `fuser` crate, and carried
//! out on one reactor. Nothing is kept in the kernel's page cache, so that what was answered is the volume's.
//!
//! Always true: a request that was begun is finished; bytes that nobody writes keep their values although the volume knows
//! sectors only; when the daemon is gone, so is the mount, or the next daemon takes it away.
//!
//! Must not know: how a volume stores, who else uses it.

mod credit;
mod file;
mod frontend;
mod kernel;
mod limits;
mod mount;
mod opens;
mod server;
mod turns;

pub use file::File;
pub use frontend::FuseFrontend;
pub use mount::{MountError, MountErrorKind, forget, hold};
pub use server::{InUse, Options, Server};
