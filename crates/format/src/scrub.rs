//! What the superblock says of scrubbing: how often, how far, and what the last one found. Layout in docs/format.md.

use crate::wire::{Reader, Writer};
use crate::{FormatError, Incarnation};

/// What a scrub found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScrubTally {
    /// When it began, in seconds since 1970; 0 if there was none.
    pub began: u64,
    /// When it ended; 0 before that.
    pub ended: u64,
    /// Bytes that were read.
    pub bytes: u64,
    /// Cells that were not what they must be, and could be computed.
    pub damaged: u64,
    /// Rows of which a cell could not be computed.
    pub lost: u64,
}

/// Scrubbing, as the superblock keeps it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScrubRecord {
    /// Seconds from the beginning of one to that of the next; 0 for only when asked.
    pub every: u64,
    /// One is under way.
    pub running: bool,
    /// It reads the segments up to this one.
    pub until: Incarnation,
    /// What it has found so far; if none is under way, no more than when the last one began that was called off.
    pub current: ScrubTally,
    /// What the last one found that came to its end.
    pub last: ScrubTally,
    /// Up to which segment each shard has read, if one is under way; one for each shard, by its
    /// number.
    pub positions: Vec<Incarnation>,
}

impl ScrubTally {
    fn encode(&self, out: &mut Writer<'_>) {
        [self.began, self.ended, self.bytes, self.damaged, self.lost]
            .into_iter()
            .for_each(|one| out.u64(one));
    }

    fn decode(input: &mut Reader<'_>) -> Result<Self, FormatError> {
        Ok(Self {
            began: input.u64()?,
            ended: input.u64()?,
            bytes: input.u64()?,
            damaged: input.u64()?,
            lost: input.u64()?,
        })
    }
}

impl ScrubRecord {
    /// Writes the record of a pool with this many shards.
    ///
    /// # Panics
    /// If there is not one position for each shard.
    pub(crate) fn encode(&self, out: &mut Writer<'_>, shards: usize) {
        assert_eq!(self.positions.len(), shards, "a scrub has one position for each shard");
        out.u64(self.every);
        out.u8(u8::from(self.running));
        out.u64(self.until.get());
        self.current.encode(out);
        self.last.encode(out);
        self.positions.iter().for_each(|position| out.u64(position.get()));
    }

    pub(crate) fn decode(input: &mut Reader<'_>, shards: usize) -> Result<Self, FormatError> {
        let every = input.u64()?;
        let running = match input.u8()? {
            0 => false,
            1 => true,
            _ => return Err(FormatError::Invalid("scrub flag")),
        };
        Ok(Self {
            every,
            running,
            until: Incarnation::new(input.u64()?),
            current: ScrubTally::decode(input)?,
            last: ScrubTally::decode(input)?,
            positions: (0..shards).map(|_| input.u64().map(Incarnation::new)).collect::<Result<_, _>>()?,
        })
    }
}
