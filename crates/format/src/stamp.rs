//! Openings of a pool, and the stamps that identify its states.

use crate::wire::{Reader, Writer};
use crate::{FormatError, Generation};

/// One opening of the pool. If two drives were used separately, their lists of openings differ
/// after the last common one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolOpening {
    /// Number of the opening, counted from 1.
    pub epoch: u64,
    /// Random number of the opening.
    pub nonce: u64,
}

/// Identifies one state of a pool: an opening and a generation within it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StateStamp {
    /// The opening; epoch 0 for no state.
    pub opening: PoolOpening,
    /// Version of the superblock within the opening.
    pub generation: Generation,
}

impl StateStamp {
    /// Returns true if the stamp identifies a state.
    pub fn is_set(&self) -> bool {
        self.opening.epoch > 0
    }

    /// Returns true if this state is older than `other`. Both must belong to the same history.
    pub fn is_before(&self, other: &Self) -> bool {
        (self.opening.epoch, self.generation) < (other.opening.epoch, other.generation)
    }

    pub(crate) fn encode(&self, out: &mut Writer<'_>) {
        out.u64(self.opening.epoch);
        out.u64(self.opening.nonce);
        out.u64(self.generation.get());
    }

    pub(crate) fn decode(input: &mut Reader<'_>) -> Result<Self, FormatError> {
        let opening = PoolOpening { epoch: input.u64()?, nonce: input.u64()? };
        Ok(Self { opening, generation: Generation::new(input.u64()?) })
    }
}
