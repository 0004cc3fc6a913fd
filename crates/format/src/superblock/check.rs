//! Validity checks of a superblock. Encoding asserts them and decoding refuses superblocks that
//! fail them, so a pool never stores a state that it cannot open.

use super::{Superblock, check_counts, check_recent};
use crate::FormatError;
use crate::limits::{
    BLOCK_BYTES, COLUMNS_MAX, DRIVE_PATH_MAX, DRIVES_MAX, LINEAGE_MAX, NAME_MAX, SHARDS_MAX, SUPERBLOCK_SLOT,
    ZONE_MAX, ZONE_MIN,
};

/// Bytes of the largest superblock without its recent segments, in the order of docs/format.md:
/// front, name, openings, state, drives, shards, scrub.
const WITHOUT_RECENT_MAX: usize = 80
    + (2 + NAME_MAX)
    + (9 + 16 * LINEAGE_MAX)
    + 40
    + (121 + 2 + DRIVE_PATH_MAX) * DRIVES_MAX
    + 26 * SHARDS_MAX
    + (97 + 8 * SHARDS_MAX);

// Recent segments may use three quarters of the slot: `recent_segments_max`.
const _: () = assert!(WITHOUT_RECENT_MAX as u64 <= SUPERBLOCK_SLOT / 4);

impl Superblock {
    /// Checks all fields except the openings. The codecs of drive, segment and scrub records check
    /// those records, and the text codec checks the length of texts.
    pub(super) fn check(&self) -> Result<(), FormatError> {
        check_counts(self.drives.len(), self.shards.len())?;
        if usize::from(self.table_width) > COLUMNS_MAX || self.table_width < self.scheme.width() {
            return Err(FormatError::Invalid("table width"));
        }
        if !self.zone_bytes.is_power_of_two() || !(ZONE_MIN..=ZONE_MAX).contains(&self.zone_bytes) {
            return Err(FormatError::Invalid("zone size"));
        }
        if self.data_start < 2 * SUPERBLOCK_SLOT || !self.data_start.is_multiple_of(BLOCK_BYTES) {
            return Err(FormatError::Invalid("start of the zones"));
        }
        for shard in &self.shards {
            check_recent(shard.recent.len())?;
            if shard.recent.iter().any(|(segment, _, _)| segment.get() == 0) {
                return Err(FormatError::Invalid("number of a recent segment"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "check_tests.rs"]
mod tests;
