//! The operations of the sweep, and the pools that they run on.

use format::limits::VOLUME_MAX;

use crate::run::Setup;

/// An operation of the sweep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SweepOp {
    /// Opening the pool after a crash.
    Open,
    /// A small write, flushed.
    WriteSmall,
    /// A write of many blocks, flushed.
    WriteLarge,
    /// A write of less than a block, flushed.
    WritePart,
    /// Zeroing a range, flushed.
    Zero,
    /// A checkpoint.
    Checkpoint,
    /// Creating a volume.
    CreateVolume,
    /// Deleting a volume that holds data.
    DeleteVolume,
    /// Shrinking a volume.
    Resize,
    /// Losing a drive while writing.
    LoseDrive,
    /// Removing a drive during writes and flushes. The drives that the superblocks list as in use
    /// after the cut must suffice, without as many of the others as the scheme tolerates.
    TakeDriveOut,
    /// Losing a drive and rebuilding its data onto others.
    Rebuild,
    /// Adding a drive during writes.
    AddDrive,
    /// Draining a drive during writes.
    Evacuate,
    /// Adding a drive and draining another one during writes.
    ReplaceDrive,
    /// Losing a drive, and returning it during writes.
    ReturnDrive,
    /// Reading a drive with many read errors, which the engine therefore drains, during writes.
    Retire,
    /// Scrubbing damaged data during writes.
    Scrub,
    /// Overwriting in a pool so full that the cleaner must work.
    Clean,
    /// Taking a snapshot, then writing.
    Snapshot,
    /// Taking snapshots of two volumes together, then writing to both.
    SnapshotGroup,
    /// Deleting a snapshot. Its blocks move to the volume.
    DeleteSnapshot,
    /// Cloning a snapshot, then writing to the clone.
    Clone,
    /// Rolling a volume back to its snapshot, then writing.
    RollBack,
    /// Deleting a snapshot of a volume of the maximum size on one shard. The last blocks move to
    /// the volume.
    MergeAtLimit,
    /// The same on several shards.
    MergeAtLimitOnShards,
    /// Writing to a volume of one sector, on several shards.
    WriteOneSector,
    /// Deleting a volume with QoS limits while others open it and write to it, and creating another
    /// volume.
    DeleteInUse,
    /// Comparing less than a block and writing it.
    CompareAndWrite,
    /// Copying a range from a snapshot.
    Copy,
    /// Closing the pool.
    Close,
}

/// All operations.
pub const ALL_OPERATIONS: [SweepOp; 31] = [
    SweepOp::Open,
    SweepOp::WriteSmall,
    SweepOp::WriteLarge,
    SweepOp::WritePart,
    SweepOp::Zero,
    SweepOp::Checkpoint,
    SweepOp::CreateVolume,
    SweepOp::DeleteVolume,
    SweepOp::Resize,
    SweepOp::LoseDrive,
    SweepOp::TakeDriveOut,
    SweepOp::Rebuild,
    SweepOp::AddDrive,
    SweepOp::Evacuate,
    SweepOp::ReplaceDrive,
    SweepOp::ReturnDrive,
    SweepOp::Retire,
    SweepOp::Scrub,
    SweepOp::Clean,
    SweepOp::Snapshot,
    SweepOp::SnapshotGroup,
    SweepOp::DeleteSnapshot,
    SweepOp::Clone,
    SweepOp::RollBack,
    SweepOp::MergeAtLimit,
    SweepOp::MergeAtLimitOnShards,
    SweepOp::WriteOneSector,
    SweepOp::DeleteInUse,
    SweepOp::CompareAndWrite,
    SweepOp::Copy,
    SweepOp::Close,
];

impl SweepOp {
    /// Returns true if the scheme tolerates the operation's losses.
    pub fn fits(self, scheme: &str) -> bool {
        let needs_parity = matches!(
            self,
            Self::LoseDrive | Self::TakeDriveOut | Self::Rebuild | Self::ReturnDrive | Self::Retire
        );
        !needs_parity || parse_scheme(scheme).parity() > 0
    }

    /// Returns the size of the operation's volume in bytes.
    pub(super) const fn volume_bytes(self) -> u64 {
        match self {
            Self::Clean => 3 << 20,
            Self::WriteOneSector => SECTOR as u64,
            Self::MergeAtLimit | Self::MergeAtLimitOnShards => VOLUME_MAX,
            _ => SIZE,
        }
    }

    /// Returns the number of bytes that are verified, at the end of the volume.
    pub(super) const fn model_bytes(self) -> u64 {
        let bytes = self.volume_bytes();
        if bytes > 3 << 20 { SIZE } else { bytes }
    }

    /// Returns true if the volume has a snapshot that is older than its last writes.
    pub(super) const fn has_snapshot(self) -> bool {
        matches!(
            self,
            Self::DeleteSnapshot
                | Self::Clone
                | Self::Copy
                | Self::RollBack
                | Self::MergeAtLimit
                | Self::MergeAtLimitOnShards
        )
    }

    /// Returns true if a spare joins the pool.
    pub(super) const fn adds_a_drive(self) -> bool {
        matches!(self, Self::AddDrive | Self::ReplaceDrive)
    }

    /// Returns true if drives join or leave.
    pub(crate) const fn changes_drives(self) -> bool {
        matches!(
            self,
            Self::AddDrive | Self::Evacuate | Self::ReplaceDrive | Self::ReturnDrive | Self::Retire
        )
    }

    /// Returns true if a drive is lost, or is as bad as lost for a while.
    pub(super) const fn loses_a_drive(self) -> bool {
        matches!(
            self,
            Self::LoseDrive
                | Self::TakeDriveOut
                | Self::Rebuild
                | Self::ReturnDrive
                | Self::Retire
                | Self::Scrub
        )
    }

    /// Returns the indices of the drives that do not return their data.
    pub(super) const fn bad_drives(self) -> &'static [usize] {
        if matches!(self, Self::Retire | Self::Scrub) { &[0] } else { &[] }
    }

    /// Returns the machine and pool settings of the operation.
    pub(super) fn setup(self, scheme: &str, drives: usize) -> Setup {
        // The rebuild or drain needs a target drive.
        let needs_another = matches!(self, Self::Rebuild | Self::Evacuate | Self::Retire);
        let spare = usize::from(needs_another && drives == usize::from(parse_scheme(scheme).width()));
        let drives = drives + spare;
        let spares = if self.adds_a_drive() { vec![24 << 20] } else { Vec::new() };
        let mut setup = Setup { spares, ..Setup::small(scheme, drives) };
        if self == Self::Retire {
            setup.tuning.retire_after = 1;
        }
        if matches!(self, Self::MergeAtLimitOnShards | Self::WriteOneSector | Self::SnapshotGroup) {
            setup.shards = 3;
        }
        if self != Self::Clean {
            return setup;
        }
        // So few segments that the volume leaves little room: the reserve, and segments that the
        // volume fills to three quarters. No extra drive: the engine would hold back more space for
        // the loss of one.
        let (data, width) =
            (u64::from(parse_scheme(scheme).data()), usize::from(parse_scheme(scheme).width()));
        let zone_bytes = if data == 1 { 128 << 10 } else { 64 << 10 };
        let segments = 20 + (72 << 16) / (data * zone_bytes);
        let size = (4 << 20) + (segments + 1) * zone_bytes;
        Setup { drives: vec![size; width], volatile: vec![true; width], zone_bytes, ..setup }
    }
}

pub(super) fn parse_scheme(scheme: &str) -> format::Scheme {
    scheme.parse().unwrap_or_else(|error| panic!("{scheme}: {error}"))
}

pub(super) const SIZE: u64 = 1 << 20;
pub(super) const SECTOR: u32 = 512;
