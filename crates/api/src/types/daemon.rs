//! The daemon.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Version of the API.
pub const API_VERSION: &str = "v1";

/// Versions of a program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Version {
    /// Release.
    pub version: String,
    /// Version of the API.
    pub api: String,
    /// Version of the on-disk format that it writes.
    pub format: u32,
}

/// Status of the daemon.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DaemonStatus {
    /// Versions of the daemon.
    pub version: Version,
    /// Process identifier.
    pub pid: u32,
    /// Time since its start.
    pub uptime_seconds: u64,
    /// Number of reactor threads.
    pub reactors: u64,
    /// Core that each reactor thread is pinned to, in order. Empty if they are not pinned.
    pub cores: Vec<u32>,
    /// I/O backend of the reactors: `io_uring` or `threads`.
    pub io: String,
    /// True once every pool that is opened at start is open, or could not be opened.
    pub ready: bool,
    /// Unix socket on which NBD is served; absent if there is none.
    pub nbd_socket: Option<String>,
    /// TCP addresses on which NBD is served.
    pub nbd_listen: Vec<String>,
    /// TCP addresses on which the API and the console are served over HTTPS.
    #[serde(default)]
    pub api_listen: Vec<String>,
    /// SHA-256 fingerprint of the certificate of HTTPS.
    #[serde(default)]
    pub certificate_fingerprint: Option<String>,
}
