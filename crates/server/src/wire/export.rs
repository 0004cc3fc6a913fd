//! Exports: volumes as others see them.

use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// How a volume is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Protocol {
    /// Network block device, at the daemon's NBD addresses, by the name `pool/volume`.
    Nbd,
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nbd => "nbd",
        })
    }
}

/// Whether an export can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ExportState {
    /// It is served.
    Active,
    /// Its pool is not open; it is served as soon as that is.
    Waiting,
}

/// An export.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Export {
    /// The pool.
    pub pool: String,
    /// The volume.
    pub volume: String,
    /// How it is served.
    pub protocol: Protocol,
    /// True if writes are refused.
    pub read_only: bool,
    /// Whether it can be used.
    pub state: ExportState,
    /// Why it cannot be used.
    pub reason: Option<String>,
    /// Where clients find it, as URIs.
    pub uris: Vec<String>,
    /// Clients that are connected.
    pub connections: u64,
}

/// An export to be made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateExport {
    /// The pool.
    pub pool: String,
    /// The volume.
    pub volume: String,
    /// How it is to be served.
    pub protocol: Protocol,
    /// Refuse writes.
    #[serde(default)]
    pub read_only: bool,
}
