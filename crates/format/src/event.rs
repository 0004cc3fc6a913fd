//! The pool's event log, a history for the administrator. Stored in the blocks of a layer reserved
//! for it, used as a ring.
//!
//! Block n contains the events that follow the events of block n - 1, and the first block those
//! that follow the last block's. The block with the highest event numbers is the newest. Nothing
//! depends on the log's contents: damage to it loses only history.

use crate::checked::narrow;
use crate::error::assert_storable;
use crate::limits::{BLOCK, EVENT_TEXT_MAX};
use crate::wire::{Reader, Writer};
use crate::{FORMAT_VERSION, FormatError};

macro_rules! kinds {
    ($($(#[$about:meta])* $name:ident = $value:literal),* $(,)?) => {
        /// The kind of an event.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum EventKind {
            $($(#[$about])* $name),*
        }

        impl EventKind {
            /// All kinds, in the order of their values.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// Returns the stored value.
            pub const fn value(self) -> u16 {
                match self {
                    $(Self::$name => $value),*
                }
            }

            fn from_value(value: u16) -> Result<Self, FormatError> {
                match value {
                    $($value => Ok(Self::$name),)*
                    _ => Err(FormatError::Invalid("event kind")),
                }
            }
        }
    };
}

kinds! {
    /// The pool was opened after a clean shutdown.
    Opened = 1,
    /// The pool was opened after a crash; the amount is the number of records that were replayed.
    Recovered = 2,
    /// The pool was closed cleanly.
    Closed = 3,
    /// The drive was added to the pool.
    DriveAdded = 10,
    /// The drive is missing and may return; the text is the failed operation and the error.
    DriveLost = 11,
    /// The drive was taken out of use and returns only on request; the text is the reason.
    DriveFailed = 12,
    /// A missing drive returned; the data that it missed is not rebuilt yet.
    DriveReturned = 13,
    /// The rebuild of a returned drive is complete.
    DriveResynced = 14,
    /// The drive is being drained.
    DriveDraining = 15,
    /// Draining was cancelled; the drive stays in the pool.
    DriveDrainCancelled = 16,
    /// The drive was removed from the pool; no data is left on it.
    DriveRemoved = 17,
    /// The drive failed reads or returned wrong data. The text is the list of errors, the amount is
    /// their number since the last event of this kind.
    DriveReadErrors = 18,
    /// The drive has errors in so many zones that it counts as failing; the amount is the number of
    /// zones.
    DriveFailing = 19,
    /// Blocks on the drive are corrupt or unreadable; the text is their location, the amount is
    /// their number.
    Damaged = 20,
    /// The drive's state is older than its last confirmed state, so it is an old copy of the drive:
    /// its contents are not used and are rebuilt. The text is its path.
    DriveStale = 21,
    /// A copy of the superblock on the drive is damaged and is rewritten; the text is the drive's
    /// path.
    SuperblockDamaged = 22,
    /// Every drive in use has a damaged copy next to the superblock that was used: a newer state
    /// may have been lost.
    StateUncertain = 23,
    /// Blocks of volumes are unreadable and cannot be reconstructed; the amount is the number of
    /// additional blocks.
    BlocksLost = 24,
    /// A scrub started.
    ScrubStarted = 25,
    /// A scrub completed; the amount is the number of damaged blocks, the text has details.
    ScrubFinished = 26,
    /// A scrub was cancelled.
    ScrubCancelled = 27,
    /// A volume was created; the text is its name, the amount is its size in bytes.
    VolumeCreated = 30,
    /// A volume was resized; the amount is the new size in bytes.
    VolumeResized = 31,
    /// A volume or snapshot was deleted.
    VolumeDeleted = 32,
    /// A snapshot was taken; the text is its name.
    SnapshotTaken = 33,
    /// A volume was cloned from a snapshot; the text is both names, separated by ` of `.
    VolumeCloned = 34,
    /// A volume was rolled back to a snapshot.
    VolumeRolledBack = 35,
    /// Space usage exceeds a threshold; the amount is the threshold in percent.
    SpaceLow = 50,
    /// The pool accepts no more data.
    Full = 51,
    /// Space is available again.
    SpaceAvailable = 52,
}

/// One event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Time of the event, in seconds since 1970.
    pub seconds: u64,
    /// The kind.
    pub kind: EventKind,
    /// Index of the drive, for events of a drive.
    pub drive: Option<u16>,
    /// The amount, for kinds that have one; otherwise 0.
    pub amount: u64,
    /// Name, path or reason; up to [`EVENT_TEXT_MAX`] bytes.
    pub text: String,
}

/// Stored in place of a drive index for events without a drive.
const NO_DRIVE: u16 = u16::MAX;

/// Consecutive events, as a block of the log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventBlock {
    /// Number of the first event, counted from 1 over the life of the pool.
    pub first: u64,
    /// The events, oldest first.
    pub events: Vec<Event>,
}

impl EventBlock {
    const MAGIC: u32 = u32::from_le_bytes(*b"GEVT");
    /// Bytes before the first event.
    const FRONT: usize = 24;
    /// Bytes of an event without its text.
    const EVENT: usize = 22;

    /// Returns true if another event with a text of `text` bytes fits.
    pub fn has_room(&self, text: usize) -> bool {
        let used: usize = self.events.iter().map(|event| Self::EVENT + event.text.len()).sum();
        Self::FRONT + used + Self::EVENT + text <= BLOCK
    }

    /// Returns the number of the event that follows the last one.
    pub fn next(&self) -> u64 {
        self.first + self.events.len() as u64
    }

    /// Checks that the block is valid: encoding asserts this, decoding refuses invalid blocks. The
    /// lengths of the texts and of the block are checked by reading and writing them.
    fn check(&self) -> Result<(), FormatError> {
        let events = self.events.len() as u64;
        if self.first == 0 || self.first.checked_add(events).is_none() {
            return Err(FormatError::Invalid("number of an event"));
        }
        if self.events.iter().any(|event| event.drive == Some(NO_DRIVE)) {
            return Err(FormatError::Invalid("drive of an event"));
        }
        Ok(())
    }

    /// Encodes the events as a block.
    ///
    /// # Panics
    /// If an event is invalid, or the events do not fit: see [`EventBlock::has_room`].
    pub fn encode(&self) -> Vec<u8> {
        assert_storable(self.check());
        self.write()
    }

    fn write(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(BLOCK);
        let mut out = Writer::new(&mut bytes);
        out.u32(Self::MAGIC);
        out.u32(FORMAT_VERSION);
        out.u64(self.first);
        out.u16(narrow(self.events.len(), "events"));
        out.raw(&[0; 6]);
        for event in &self.events {
            out.u64(event.seconds);
            out.u16(event.kind.value());
            out.u16(event.drive.unwrap_or(NO_DRIVE));
            out.u64(event.amount);
            out.text(&event.text, EVENT_TEXT_MAX);
        }
        out.pad_to(BLOCK);
        bytes
    }

    /// Decodes the events of a block with a verified CRC.
    ///
    /// # Errors
    /// If a field has a value that no writer stores.
    pub fn decode(block: &[u8]) -> Result<Self, FormatError> {
        let mut input = Reader::for_block_with_magic(block, Self::MAGIC)?;
        let first = input.u64()?;
        let count = input.u16()?;
        input.raw(6)?;
        let mut events = Vec::new();
        for _ in 0..count {
            events.push(Event {
                seconds: input.u64()?,
                kind: EventKind::from_value(input.u16()?)?,
                drive: Some(input.u16()?).filter(|drive| *drive != NO_DRIVE),
                amount: input.u64()?,
                text: input.text(EVENT_TEXT_MAX)?,
            });
        }
        let block = Self { first, events };
        block.check()?;
        Ok(block)
    }
}

#[cfg(test)]
#[path = "event_tests.rs"]
mod tests;
