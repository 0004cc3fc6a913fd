//! The report of the offline verifier. `gabion check` prints it; no endpoint returns it.

use serde::{Deserialize, Serialize};

use super::LostRange;

/// Severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Damage {
    /// Bytes on a drive are wrong; the rest of their row reconstructs them.
    Repairable,
    /// A block cannot be read or reconstructed.
    Lost,
    /// The pool's own structures contradict each other. No hardware fault causes this.
    Inconsistent,
}

/// A problem that the verifier found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckFinding {
    /// Severity of the finding.
    pub damage: Damage,
    /// Number of the faulty drive, if one drive is at fault.
    pub drive: Option<u16>,
    /// Description of the problem, with its location.
    pub message: String,
    /// Ranges of volumes that are lost with it; the first ones if there are many.
    #[serde(default)]
    pub lost: Vec<LostRange>,
}

/// The result of verifying a pool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CheckReport {
    /// Name of the pool.
    pub pool: String,
    /// Identifier of the pool.
    pub id: String,
    /// True if every block has its expected content, or is reconstructed where its drive is absent.
    pub sound: bool,
    /// True if drives are missing or failed. Redundancy is reduced accordingly.
    pub degraded: bool,
    /// True if the pool was closed cleanly.
    pub clean: bool,
    /// Drives that are missing or failed.
    pub missing: Vec<String>,
    /// Number of volumes.
    pub volumes: u64,
    /// Bytes of data, all verified.
    pub data_bytes: u64,
    /// Bytes of maps, tables and the catalogue.
    pub meta_bytes: u64,
    /// Segments in use.
    pub segments: u64,
    /// Rows with verified parity.
    pub rows: u64,
    /// Log records after the last checkpoints, which the next open replays.
    pub records: u64,
    /// Blocks of the last rows that a crash left unwritten. The next open completes them.
    pub incomplete: u64,
    /// Drives with one damaged copy of the superblock, as after a power failure. The next open
    /// rewrites it.
    #[serde(default)]
    pub damaged_superblocks: Vec<String>,
    /// Problems found.
    pub findings: Vec<CheckFinding>,
    /// Ranges of volumes and snapshots that cannot be read.
    #[serde(default)]
    pub lost: Vec<LostRange>,
    /// True if log records are lost: every block may be older than its newest write.
    #[serde(default)]
    pub stale: bool,
    /// Duration of the check.
    pub seconds: f64,
}
