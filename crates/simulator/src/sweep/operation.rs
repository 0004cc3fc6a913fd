//! The operations that are swept, and the pools that they work on.

use format::limits::VOLUME_MAX;

use crate::run::Setup;

/// An operation that is swept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Swept {
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
    /// Deleting one that holds data.
    DeleteVolume,
    /// Making one smaller.
    Resize,
    /// Losing a drive while writing.
    LoseDrive,
    /// Taking a drive out while writing and flushing: whichever drives the superblocks call in use after the cut must do, without
    /// as many of the others as the scheme bears.
    TakeDriveOut,
    /// Losing a drive, and writing what it held to others.
    Rebuild,
    /// Adding a drive, and writing on.
    AddDrive,
    /// Having a drive emptied, and writing on.
    Evacuate,
    /// Adding a drive and having another one emptied, and writing on.
    ReplaceDrive,
    /// Losing a drive, writing on, and taking it back.
    ReturnDrive,
    /// Reading a drive that errs in many places, which is emptied for that, and writing on.
    Retire,
    /// Reading everything and writing anew what is damaged, and writing on.
    Scrub,
    /// Overwriting in a pool so full that the cleaner works.
    Clean,
    /// Taking a snapshot, and writing on.
    Snapshot,
    /// Deleting a snapshot that lies below its volume: its blocks go over.
    DeleteSnapshot,
    /// Making a volume from a snapshot, and writing to it.
    Clone,
    /// Rolling a volume back to its snapshot, and writing on.
    RollBack,
    /// Deleting a snapshot of the largest volume, on one shard; its last blocks go over.
    MergeAtLimit,
    /// The same on several shards.
    MergeAtLimitOnShards,
    /// Writing to a volume of one sector, on several shards.
    WriteOneSector,
    /// Deleting a volume with limits while others open it and write to it, and creating another one.
    DeleteInUse,
    /// Closing the pool.
    Close,
}

/// All of them.
pub const ALL: [Swept; 28] = [
    Swept::Open,
    Swept::WriteSmall,
    Swept::WriteLarge,
    Swept::WritePart,
    Swept::Zero,
    Swept::Checkpoint,
    Swept::CreateVolume,
    Swept::DeleteVolume,
    Swept::Resize,
    Swept::LoseDrive,
    Swept::TakeDriveOut,
    Swept::Rebuild,
    Swept::AddDrive,
    Swept::Evacuate,
    Swept::ReplaceDrive,
    Swept::ReturnDrive,
    Swept::Retire,
    Swept::Scrub,
    Swept::Clean,
    Swept::Snapshot,
    Swept::DeleteSnapshot,
    Swept::Clone,
    Swept::RollBack,
    Swept::MergeAtLimit,
    Swept::MergeAtLimitOnShards,
    Swept::WriteOneSector,
    Swept::DeleteInUse,
    Swept::Close,
];

impl Swept {
    /// True if a scheme bears what it does.
    pub fn fits(self, scheme: &str) -> bool {
        let needs_parity = matches!(
            self,
            Self::LoseDrive | Self::TakeDriveOut | Self::Rebuild | Self::ReturnDrive | Self::Retire
        );
        !needs_parity || parsed(scheme).parity() > 0
    }

    /// Bytes of the volume that it works on.
    pub(super) const fn volume_bytes(self) -> u64 {
        match self {
            Self::Clean => 3 << 20,
            Self::WriteOneSector => SECTOR as u64,
            Self::MergeAtLimit | Self::MergeAtLimitOnShards => VOLUME_MAX,
            _ => SIZE,
        }
    }

    /// Bytes of the volume that are looked at: its last ones.
    pub(super) const fn model_bytes(self) -> u64 {
        let bytes = self.volume_bytes();
        if bytes > 3 << 20 { SIZE } else { bytes }
    }

    /// True if there is a snapshot of the volume, older than its last writes.
    pub(super) const fn has_snapshot(self) -> bool {
        matches!(
            self,
            Self::DeleteSnapshot
                | Self::Clone
                | Self::RollBack
                | Self::MergeAtLimit
                | Self::MergeAtLimitOnShards
        )
    }

    /// True if a spare joins the pool.
    pub(super) const fn adds_a_drive(self) -> bool {
        matches!(self, Self::AddDrive | Self::ReplaceDrive)
    }

    /// True if drives join or leave.
    pub(crate) const fn changes_drives(self) -> bool {
        matches!(
            self,
            Self::AddDrive | Self::Evacuate | Self::ReplaceDrive | Self::ReturnDrive | Self::Retire
        )
    }

    /// True if a drive is lost, or is no better than that for a while.
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

    /// Drives that do not give what they hold.
    pub(super) const fn bad_drives(self) -> &'static [usize] {
        if matches!(self, Self::Retire | Self::Scrub) { &[0] } else { &[] }
    }

    /// The pool that it works on.
    pub(super) fn setup(self, scheme: &str, drives: usize) -> Setup {
        // There must be a drive to write to.
        let needs_another = matches!(self, Self::Rebuild | Self::Evacuate | Self::Retire);
        let spare = usize::from(needs_another && drives == usize::from(parsed(scheme).width()));
        let drives = drives + spare;
        let spares = if self.adds_a_drive() { vec![24 << 20] } else { Vec::new() };
        let mut setup = Setup { spares, ..Setup::small(scheme, drives) };
        if self == Self::Retire {
            setup.tuning.retire_after = 1;
        }
        if matches!(self, Self::MergeAtLimitOnShards | Self::WriteOneSector) {
            setup.shards = 3;
        }
        if self != Self::Clean {
            return setup;
        }
        // So few segments that the volume leaves little room: the reserve, and what it fills to three quarters. And no drive to spare:
        // for the loss of one, more would be kept back.
        let (data, width) = (u64::from(parsed(scheme).data()), usize::from(parsed(scheme).width()));
        let zone_bytes = if data == 1 { 128 << 10 } else { 64 << 10 };
        let segments = 20 + (72 << 16) / (data * zone_bytes);
        let size = (4 << 20) + (segments + 1) * zone_bytes;
        Setup { drives: vec![size; width], volatile: vec![true; width], zone_bytes, ..setup }
    }
}

pub(super) fn parsed(scheme: &str) -> format::Scheme {
    scheme.parse().unwrap_or_else(|error| panic!("{scheme}: {error}"))
}

pub(super) const SIZE: u64 = 1 << 20;
pub(super) const SECTOR: u32 = 512;
