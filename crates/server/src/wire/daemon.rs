//! The daemon itself.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Which release this is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Version {
    /// The release.
    pub version: String,
    /// The version of the API.
    pub api: String,
    /// The version of the on-disk format that it writes.
    pub format: u32,
}

impl Version {
    /// Of this program.
    pub fn of_this_program() -> Self {
        Self {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            api: "v1".to_owned(),
            format: format::FORMAT_VERSION,
        }
    }
}

/// The daemon that answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Daemon {
    /// Its release.
    pub version: Version,
    /// Its process.
    pub pid: u32,
    /// How long it has run.
    pub uptime_seconds: u64,
    /// Reactor threads.
    pub reactors: u64,
    /// The core that each of them stays on, in their order. None if they are not tied to cores.
    pub cores: Vec<u32>,
    /// How they do I/O: `io_uring` or `threads`.
    pub io: String,
    /// True once every pool that it opens at start has been opened, or has failed to.
    pub ready: bool,
    /// The Unix socket on which NBD is served, if it is.
    pub nbd_socket: Option<String>,
    /// The TCP addresses on which NBD is served.
    pub nbd_listen: Vec<String>,
}
