//! Live status: the data of the events of `GET /v1/live`.

use serde::{Deserialize, Serialize};

use super::export::Export;
use super::operation::Operation;
use super::pool::Pool;

/// Counters of the requests of an export, from its creation or the daemon's start on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExportIo {
    /// Name of the pool.
    pub pool: String,
    /// Name of the volume.
    pub volume: String,
    /// Identifier of the export.
    pub id: String,
    /// Reads.
    pub read_operations: u64,
    /// Writes.
    pub write_operations: u64,
    /// Bytes of successful reads.
    pub read_bytes: u64,
    /// Bytes of successful writes.
    pub write_bytes: u64,
    /// Reads that were timed, one of 16, and their total latency in nanoseconds.
    #[serde(default)]
    pub read_timed: u64,
    /// See `read_timed`.
    #[serde(default)]
    pub read_nanos: u64,
    /// Writes that were timed, one of 16, and their total latency in nanoseconds.
    #[serde(default)]
    pub write_timed: u64,
    /// See `write_timed`.
    #[serde(default)]
    pub write_nanos: u64,
    /// Requests of all kinds that failed.
    pub errors: u64,
}

/// State of the daemon's objects at one time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LiveStatus {
    /// Time of the state.
    pub time: u64,
    /// The pools.
    pub pools: Vec<Pool>,
    /// The exports.
    pub exports: Vec<Export>,
    /// Counters of the exports, in the same order.
    pub io: Vec<ExportIo>,
    /// The running operations and the last ones that ended.
    pub operations: Vec<Operation>,
}
