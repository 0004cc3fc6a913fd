//! The record of a drive in the superblock. Layout in docs/format.md.

use crate::checked::code_of;
use crate::error::assert_storable;
use crate::limits::{DRIVE_PATH_MAX, DRIVE_ZONES_MIN};
use crate::wire::{Reader, Writer};
use crate::{DriveId, FormatError, Generation, StateStamp};

/// The state of a drive in its pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DriveState {
    /// In use.
    Online,
    /// Not present when the pool was opened, or lost while it was open. Segment columns record the
    /// writes that it missed.
    Missing,
    /// It failed a write or a flush, or was taken out of use: nothing is written to it.
    Failed,
    /// Removed from the pool; its index stays unused.
    Removed,
    /// In use, but being emptied: removed from the pool once its data is on other drives.
    Draining,
    /// In use again after a loss: segments may still lack the rows that it missed.
    Returning,
}

impl DriveState {
    const ALL: [(u8, Self); 6] = [
        (1, Self::Online),
        (2, Self::Missing),
        (3, Self::Failed),
        (4, Self::Removed),
        (5, Self::Draining),
        (6, Self::Returning),
    ];

    /// Returns true if the drive is read and written and receives every superblock.
    pub fn is_in_use(self) -> bool {
        matches!(self, Self::Online | Self::Draining | Self::Returning)
    }

    /// Returns true if new segments may be allocated on the drive.
    pub fn accepts_segments(self) -> bool {
        matches!(self, Self::Online | Self::Returning)
    }

    /// Returns true if the drive is not in use but may return.
    pub fn is_lost(self) -> bool {
        matches!(self, Self::Missing | Self::Failed)
    }

    /// Returns true if segments may lack a column because of this drive.
    pub fn counts_as_lost(self) -> bool {
        self.is_lost() || self == Self::Returning
    }

    fn to_byte(self) -> u8 {
        code_of(&Self::ALL, self)
    }

    fn from_byte(byte: u8) -> Result<Self, FormatError> {
        let entry = Self::ALL.iter().find(|(value, _)| *value == byte);
        entry.map(|(_, state)| *state).ok_or(FormatError::Invalid("drive state"))
    }
}

/// Counters of a drive's read errors, over the life of the pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DriveErrors {
    /// Reads that failed.
    pub unreadable: u64,
    /// Reads that returned different bytes than were written.
    pub wrong: u64,
    /// Time of the newest error, in seconds since 1970; 0 if there was none.
    pub last: u64,
    /// Start of the period in which zones with errors are counted, in seconds since 1970.
    pub counting_since: u64,
    /// Zones with read errors in that period.
    pub zones: u32,
}

/// A drive of the pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DriveRecord {
    /// Identity of the drive.
    pub id: DriveId,
    /// Usable bytes.
    pub size: u64,
    /// Zones.
    pub zones: u32,
    /// State of the drive.
    pub state: DriveState,
    /// The generation in which the drive entered this state.
    pub since: Generation,
    /// The newest state of the pool that the drive is known to hold: everything durable in that
    /// state that belongs on the drive was written to it. Zero for a drive that was just added. A
    /// drive with an older state is an old copy of itself.
    pub confirmed: StateStamp,
    /// The newest state that listed the drive as in use, when it was lost or removed; zero before.
    /// Together with `confirmed`, it identifies the last openings that the drive took part in, no
    /// matter how many openings later it returns.
    pub left_at: StateStamp,
    /// Read errors of the drive.
    pub errors: DriveErrors,
    /// The path by which it was last opened: shown in messages, and tried first.
    pub path: String,
}

impl DriveRecord {
    /// Checks that the record is valid: encoding asserts this, decoding refuses invalid records.
    /// The length of the path is checked by reading and writing the text.
    fn check(&self) -> Result<(), FormatError> {
        let too_few = u64::from(self.zones) < DRIVE_ZONES_MIN;
        if too_few { Err(FormatError::Invalid("zones of a drive")) } else { Ok(()) }
    }

    pub(crate) fn encode(&self, out: &mut Writer<'_>) {
        assert_storable(self.check());
        self.write(out);
    }

    fn write(&self, out: &mut Writer<'_>) {
        out.raw(&self.id.0);
        out.u64(self.size);
        out.u32(self.zones);
        out.u8(self.state.to_byte());
        out.u64(self.since.get());
        self.confirmed.encode(out);
        self.left_at.encode(out);
        out.u64(self.errors.unreadable);
        out.u64(self.errors.wrong);
        out.u64(self.errors.last);
        out.u64(self.errors.counting_since);
        out.u32(self.errors.zones);
        out.text(&self.path, DRIVE_PATH_MAX);
    }

    pub(crate) fn decode(input: &mut Reader<'_>) -> Result<Self, FormatError> {
        let record = Self {
            id: DriveId(input.array()?),
            size: input.u64()?,
            zones: input.u32()?,
            state: DriveState::from_byte(input.u8()?)?,
            since: Generation::new(input.u64()?),
            confirmed: StateStamp::decode(input)?,
            left_at: StateStamp::decode(input)?,
            errors: DriveErrors {
                unreadable: input.u64()?,
                wrong: input.u64()?,
                last: input.u64()?,
                counting_since: input.u64()?,
                zones: input.u32()?,
            },
            path: input.text(DRIVE_PATH_MAX)?,
        };
        record.check()?;
        Ok(record)
    }
}

#[cfg(test)]
#[path = "drive_tests.rs"]
mod tests;
