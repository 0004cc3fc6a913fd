//! A drive's record in the superblock: what the pool knows of it. Layout in docs/format.md.

use crate::error::assert_storable;
use crate::limits::{DRIVE_PATH_MAX, DRIVE_ZONES_MIN};
use crate::wire::{Reader, Writer};
use crate::{DriveId, FormatError, Generation, StateStamp};

/// How the pool sees one of its drives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DriveState {
    /// In use.
    Online,
    /// Not there when the pool was opened, or gone while it ran. What it missed is in the segments' columns.
    Missing,
    /// It failed a write or a flush, or was taken out of use: nothing is written to it.
    Failed,
    /// Taken out of the pool; its index stays unused.
    Removed,
    /// In use, and to be taken out of the pool when what it holds lies elsewhere.
    Draining,
    /// In use again after it was lost: segments may miss what it missed.
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

    /// True if the drive is read and written, and has every superblock.
    pub fn is_in_use(self) -> bool {
        matches!(self, Self::Online | Self::Draining | Self::Returning)
    }

    /// True if new segments may lie on it.
    pub fn accepts_segments(self) -> bool {
        matches!(self, Self::Online | Self::Returning)
    }

    /// True if it is not in use and may come back.
    pub fn is_lost(self) -> bool {
        matches!(self, Self::Missing | Self::Failed)
    }

    /// True if segments may miss a column for it.
    pub fn counts_as_lost(self) -> bool {
        self.is_lost() || self == Self::Returning
    }

    fn to_byte(self) -> u8 {
        Self::ALL.iter().find(|(_, state)| *state == self).map_or(0, |(byte, _)| *byte)
    }

    fn from_byte(byte: u8) -> Result<Self, FormatError> {
        let found = Self::ALL.iter().find(|(known, _)| *known == byte);
        found.map(|(_, state)| *state).ok_or(FormatError::Invalid("drive state"))
    }
}

/// Reads that a drive did not answer as it should, in the life of the pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DriveErrors {
    /// Reads that it failed.
    pub unreadable: u64,
    /// Reads that it answered with other bytes than were written.
    pub wrong: u64,
    /// The newest of them, in seconds since 1970; 0 if there was none.
    pub last: u64,
    /// Since when zones are counted, in seconds since 1970.
    pub counting_since: u64,
    /// Zones with such reads since then.
    pub zones: u32,
}

/// A drive of the pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DriveRecord {
    /// Its identity.
    pub id: DriveId,
    /// Usable bytes.
    pub size: u64,
    /// Zones.
    pub zones: u32,
    /// How the pool sees it.
    pub state: DriveState,
    /// The generation at which it took this state.
    pub since: Generation,
    /// The newest state of the pool that the drive is known to hold: everything durable at that time that belongs on it was
    /// there. Zero for a drive that has just joined. A drive that shows an older state is an old copy of itself.
    pub confirmed: StateStamp,
    /// The newest state that called the drive in use when it was lost or removed; zero before. With `confirmed`, it names the
    /// openings that the drive took part in last, however many openings later it shows up again.
    pub left_at: StateStamp,
    /// What it did not answer as it should.
    pub errors: DriveErrors,
    /// The path by which it was last opened, for messages and as the first place to look.
    pub path: String,
}

impl DriveRecord {
    /// Checks the demands of the format on a record: encoding asserts them, decoding refuses what
    /// breaks them. That the path is short enough, writing and reading see to.
    fn check(&self) -> Result<(), FormatError> {
        let few = u64::from(self.zones) < DRIVE_ZONES_MIN;
        if few { Err(FormatError::Invalid("zones of a drive")) } else { Ok(()) }
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
