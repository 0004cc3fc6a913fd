//! Problems found in a pool, and the lost byte ranges of its volumes.

use format::DriveIndex;

/// The severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FindingKind {
    /// Bytes on a drive are damaged and can be reconstructed from the rest of their row.
    Damaged,
    /// A block cannot be read or reconstructed.
    Lost,
    /// The pool's structures contradict each other. No hardware fault causes this: it is a bug.
    Inconsistent,
}

/// A problem found in a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The severity.
    pub kind: FindingKind,
    /// The drive, if a single one is at fault.
    pub drive: Option<u16>,
    /// The problem and its location.
    pub message: String,
    /// The lost byte ranges of the volume that owns the blocks, up to 256 of them. The loss also
    /// affects snapshots and clones that share the blocks; [`crate::CheckReport::lost`] lists all
    /// ranges.
    pub lost: Vec<LostRange>,
}

impl Finding {
    pub(crate) fn new(kind: FindingKind, drive: Option<DriveIndex>, message: String) -> Self {
        Self { kind, drive: drive.map(DriveIndex::get), message, lost: Vec::new() }
    }
}

/// A lost byte range of a volume or snapshot. Reads of it fail until it is overwritten.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LostRange {
    /// The volume's name; empty for the pool's catalogue and event log.
    pub volume: String,
    /// The first byte.
    pub offset: u64,
    /// The length.
    pub length: u64,
}
