//! What the offline verifier saw. Not part of the API: `gabion check` prints it.

use serde::{Deserialize, Serialize};

use super::LostRange;

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Damage {
    /// Bytes on a drive are not what they should be, and the rest of their row gives them back.
    Repairable,
    /// A block cannot be had any more.
    Lost,
    /// The pool's own structures contradict one another: no hardware fault does that.
    Inconsistent,
}

/// Something that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckFinding {
    /// How bad.
    pub damage: Damage,
    /// The number of the drive, where one is to blame.
    pub drive: Option<u16>,
    /// What and where.
    pub message: String,
    /// Bytes of volumes that are lost with it; the first of them if they are many.
    #[serde(default)]
    pub lost: Vec<LostRange>,
}

/// What the verifier saw of a pool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CheckReport {
    /// The pool's name.
    pub pool: String,
    /// Its identity.
    pub id: String,
    /// True if nothing is wrong: every block was read as it was written, or computed from the other drives where its own is missing.
    pub sound: bool,
    /// True if drives are missing or out of use. What they held is as safe as the drives that are left.
    pub degraded: bool,
    /// True if it was closed in order.
    pub clean: bool,
    /// Drives that are missing or out of use.
    pub missing: Vec<String>,
    /// Volumes.
    pub volumes: u64,
    /// Bytes of data, all verified.
    pub data_bytes: u64,
    /// Bytes of maps, tables and the catalogue.
    pub meta_bytes: u64,
    /// Segments in use.
    pub segments: u64,
    /// Rows whose parity was verified.
    pub rows: u64,
    /// Records behind the checkpoints, that an opening would replay.
    pub records: u64,
    /// Blocks of the last rows that a crash left unwritten, and that an opening would complete.
    pub incomplete: u64,
    /// Drives of which one copy of the superblock is damaged, as a power cut leaves it. The next opening rewrites it.
    #[serde(default)]
    pub damaged_superblocks: Vec<String>,
    /// What is wrong.
    pub findings: Vec<CheckFinding>,
    /// Bytes of volumes and snapshots that cannot be read.
    #[serde(default)]
    pub lost: Vec<LostRange>,
    /// True if records of the log are lost: every block may be older than the newest write of it.
    #[serde(default)]
    pub stale: bool,
    /// How long it took.
    pub seconds: f64,
}
