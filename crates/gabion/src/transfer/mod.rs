//! Transfers of objects between files and the S3 service of a pool.
//!
//! Always true: an upload that fails or is interrupted is aborted; a file with the final name is
//! complete and matches the checksum of its object. Must not know: the layout of pools.

mod get;
mod progress;
mod put;
mod session;

pub(crate) use get::{Destination, get};
pub(crate) use put::{Source, put};
pub(crate) use session::{ObjectSession, connect};
