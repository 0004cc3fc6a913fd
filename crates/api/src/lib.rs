//! The daemon's API: wire types, endpoints, OpenAPI document and client.
//!
//! The daemon, the command line and tests share the types and the table of endpoints, so that they
//! cannot disagree. [`types`] are the bodies and queries, [`paths`] the endpoints, [`openapi`] the
//! document made from both, and [`client`] (feature `client`) the client with a typed method for
//! each endpoint. Names, sizes and RAID levels are parsed here for all programs.
//!
//! Architecture invariant: depends on no other crate of this workspace. It does not know the
//! engine, the on-disk format or any implementation of the API.

#[cfg(feature = "client")]
pub mod client;
mod error;
mod level;
mod name;
pub mod openapi;
pub mod paths;
mod size;
pub mod types;

pub use error::{Error, ErrorKind, Result};
pub use level::{Columns, columns_of_level};
pub use name::{NameError, VolumeName};
pub use size::{Size, SizeError};
