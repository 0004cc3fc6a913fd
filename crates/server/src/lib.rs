//! The daemon: configuration, API, pools and exports on reactor threads.
//!
//! Owns what makes the engine a service: threads, drives and who may have them, what is remembered across restarts, and
//! the API with its wire types, which are the only thing that the command line knows of it.
//!
//! Must not know: on-disk formats, protocols of exports.

mod blocking;
mod capacity;
pub mod config;
mod daemon;
mod drives;
mod error;
mod exports;
#[cfg(test)]
mod fuzz;
mod http;
mod identify;
mod inspect;
mod level;
mod notify;
pub mod offline;
mod operations;
mod panics;
mod pools;
mod reactors;
mod request;
pub mod salvage;
mod sizes;
mod state;
pub mod wire;

pub use daemon::serve;
pub use error::{Error, ErrorKind, Result};
pub use http::openapi_json;
pub use level::scheme_of_level;
pub use sizes::{Size, SizeError};
