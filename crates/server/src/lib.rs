//! The daemon: configuration, API, pools and exports on reactor threads.
//!
//! Turns the engine into a service: threads, exclusive use of drives, state that survives restarts,
//! and the handlers of the API. Types, endpoints and client of the API are in the crate `api`.
//!
//! Must not know: on-disk formats, protocols of exports.

mod access;
mod blocking;
mod buckets;
mod capacity;
mod certificate;
mod cluster_statuses;
mod clusters;
pub mod config;
mod consoles;
mod daemon;
mod drive_health;
mod drives;
mod error;
mod exports;
#[cfg(test)]
mod fuzz;
mod gateways;
mod host_objects;
mod http;
mod identify;
pub mod image;
mod inspect;
mod live;
mod live_status;
mod metrics;
mod notify;
mod objects;
pub mod offline;
mod operations;
mod outbound;
mod panics;
mod pools;
mod private_file;
mod reactors;
mod request;
pub mod salvage;
mod services;
mod state;
mod unix_time;
mod version;
mod volumes;
mod watchdog;

pub use daemon::serve;
pub use error::{Error, ErrorKind, Result};
pub use host_objects::HostObjects;
pub use version::version;
