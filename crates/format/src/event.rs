//! The pool's event log: what happened to it, for people. Blocks of a layer of its own, used in turn.
//!
//! Block n holds the events that follow those of block n - 1, the first block those that follow the last one's; the block with the
//! highest numbers is the newest. Nothing depends on what they say: a pool whose log is damaged has lost no more than that.

use crate::error::assert_storable;
use crate::limits::{BLOCK, EVENT_TEXT_MAX};
use crate::wire::{Reader, Writer};
use crate::{FORMAT_VERSION, FormatError};

macro_rules! kinds {
    ($($(#[$about:meta])* $name:ident = $value:literal),* $(,)?) => {
        /// What happened.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum EventKind {
            $($(#[$about])* $name),*
        }

        impl EventKind {
            /// Every kind, in the order of their values.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// What it is stored as.
            pub const fn value(self) -> u16 {
                match self {
                    $(Self::$name => $value),*
                }
            }

            fn of(value: u16) -> Result<Self, FormatError> {
                match value {
                    $($value => Ok(Self::$name),)*
                    _ => Err(FormatError::Invalid("event kind")),
                }
            }
        }
    };
}

kinds! {
    /// The pool was opened after it had been closed in order.
    Opened = 1,
    /// The pool was opened after a crash; the amount is the records that were replayed.
    Recovered = 2,
    /// The pool was closed in order.
    Closed = 3,
    /// The subject is a drive: it was taken into the pool.
    DriveAdded = 10,
    /// A drive is gone, and may come back; the text says what it did not answer, and how.
    DriveLost = 11,
    /// A drive was taken out of use for good; the text says why.
    DriveFailed = 12,
    /// A drive that was gone is back; what it missed is not there yet.
    DriveReturned = 13,
    /// A drive that was back has all that it missed.
    DriveResynced = 14,
    /// A drive is to be emptied.
    DriveDraining = 15,
    /// A drive that was to be emptied stays.
    DriveDrainCancelled = 16,
    /// Nothing lies on a drive any more: it belongs to the pool no longer.
    DriveRemoved = 17,
    /// A drive failed reads, or answered them wrongly; the text says which, the amount is how many since that was last said.
    DriveReadErrors = 18,
    /// A drive errs in so many places that it is to go; the amount is the zones.
    DriveFailing = 19,
    /// A drive holds something else than was written, or does not give it; the text says where, the amount is the blocks.
    Damaged = 20,
    /// A drive shows an older state than it was given, as an old copy of it would: nothing on it is believed, and all of it is
    /// rebuilt; the text is its path.
    DriveStale = 21,
    /// A copy of the superblock on a drive is damaged, and rewritten; the text is its path.
    SuperblockDamaged = 22,
    /// Every drive in use shows a damaged copy beside the superblock that was used: a newer state may have been lost.
    StateUncertain = 23,
    /// Blocks of volumes are unreadable, and no other column gives them back; the amount is how many more.
    BlocksLost = 24,
    /// A scrub began.
    ScrubStarted = 25,
    /// A scrub came to its end; the amount is the damaged blocks, the text what else there is to say.
    ScrubFinished = 26,
    /// A scrub was called off.
    ScrubCancelled = 27,
    /// The text is a volume's name: it was created; the amount is its size in bytes.
    VolumeCreated = 30,
    /// A volume has another size; the amount is the new one in bytes.
    VolumeResized = 31,
    /// A volume or snapshot was deleted.
    VolumeDeleted = 32,
    /// The text is a snapshot's name: it was taken.
    SnapshotTaken = 33,
    /// A volume was made of a snapshot: both names, with ` of ` between them.
    VolumeCloned = 34,
    /// A volume was made what its snapshot is.
    VolumeRolledBack = 35,
    /// More of the pool is in use than a threshold allows; the amount is the threshold, in percent.
    SpaceLow = 50,
    /// The pool takes no more data.
    Full = 51,
    /// There is room again.
    SpaceAvailable = 52,
}

/// One event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Seconds since 1970 when it happened.
    pub seconds: u64,
    /// What happened.
    pub kind: EventKind,
    /// The number of the drive that it happened to, if it is of a drive.
    pub drive: Option<u16>,
    /// How much, where the kind has an amount.
    pub amount: u64,
    /// Name, path or reason; at most [`EVENT_TEXT_MAX`] bytes.
    pub text: String,
}

/// What stands for no drive.
const NO_DRIVE: u16 = u16::MAX;

/// Events that follow one another, as a block of the log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventBlock {
    /// Number of the first of them, counted from 1 in the life of the pool.
    pub first: u64,
    /// They, in the order in which they happened.
    pub events: Vec<Event>,
}

impl EventBlock {
    const MAGIC: u32 = u32::from_le_bytes(*b"GEVT");
    /// Bytes before the first event.
    const FRONT: usize = 24;
    /// Bytes of an event without its text.
    const EVENT: usize = 22;

    /// True if one more with a text of so many bytes fits.
    pub fn has_room(&self, text: usize) -> bool {
        let used: usize = self.events.iter().map(|event| Self::EVENT + event.text.len()).sum();
        Self::FRONT + used + Self::EVENT + text <= BLOCK
    }

    /// Number of the event that follows the last one.
    pub fn next(&self) -> u64 {
        self.first + self.events.len() as u64
    }

    /// Checks the demands of the format on a block: encoding asserts them, decoding refuses what
    /// breaks them. That texts are short enough and events fit a block, writing and reading see to.
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

    /// The events as a block.
    ///
    /// # Panics
    /// If they break a demand of the format or do not fit: see [`EventBlock::has_room`].
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
        out.u16(u16::try_from(self.events.len()).unwrap_or(u16::MAX));
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

    /// The events of a block whose CRC was verified.
    ///
    /// # Errors
    /// When it is not one that a writer stores.
    pub fn decode(block: &[u8]) -> Result<Self, FormatError> {
        let mut input = Reader::of_block_with(block, Self::MAGIC)?;
        let first = input.u64()?;
        let count = input.u16()?;
        input.raw(6)?;
        let mut events = Vec::new();
        for _ in 0..count {
            events.push(Event {
                seconds: input.u64()?,
                kind: EventKind::of(input.u16()?)?,
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
