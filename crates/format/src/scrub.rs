//! The scrub state in the superblock: interval, progress and results. Layout in docs/format.md.

use crate::wire::{Reader, Writer};
use crate::{FormatError, Incarnation};

/// The result of a scrub.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScrubTally {
    /// Start time, in seconds since 1970; 0 if there was no scrub.
    pub began: u64,
    /// End time, in seconds since 1970; 0 while the scrub is running.
    pub ended: u64,
    /// Bytes read.
    pub bytes: u64,
    /// Damaged cells that were reconstructed.
    pub damaged: u64,
    /// Rows with a cell that could not be reconstructed.
    pub lost: u64,
}

/// The scrub state, as stored in the superblock.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScrubRecord {
    /// Seconds between the starts of two automatic scrubs; 0 if scrubs run only on request.
    pub every: u64,
    /// True if a scrub is running.
    pub running: bool,
    /// The last segment that the running scrub reads.
    pub until: Incarnation,
    /// Results of the running scrub so far. If none is running: only the start time of the last
    /// scrub, if it was cancelled.
    pub current: ScrubTally,
    /// Results of the last scrub that completed.
    pub last: ScrubTally,
    /// The last segment that each shard has read in the running scrub; one entry for each shard, by
    /// index.
    pub positions: Vec<Incarnation>,
}

impl ScrubTally {
    fn encode(&self, out: &mut Writer<'_>) {
        [self.began, self.ended, self.bytes, self.damaged, self.lost]
            .into_iter()
            .for_each(|field| out.u64(field));
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
    /// If the number of positions is not the number of shards.
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
