//! Transfers of objects between files, other S3 services and the S3 service of a pool.
//!
//! Always true: an upload that fails or is interrupted is aborted; a file with the final name is
//! complete and matches the checksum of its object. Must not know: the layout of pools.

mod get;
mod mirror;
mod mirror_source;
mod progress;
mod put;
mod session;

pub(crate) use get::{Destination, get};
pub(crate) use mirror::{MirrorOptions, MirrorResult, mirror};
pub(crate) use mirror_source::{MirrorEntry, MirrorSource, SourceOptions};
pub(crate) use put::{Source, put};
pub(crate) use session::{ObjectSession, connect};
