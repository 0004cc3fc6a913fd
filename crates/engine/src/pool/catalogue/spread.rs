//! Which shards a new volume lies on, if not on all.
//!
//! A volume on few shards is worked on by few cores: nothing of it has to be sent to another core by a queue that is served where its shard
//! runs, and its writes gather into fewer and larger records. So a pool's many small volumes are dealt out to the shards by their sizes.

use format::{VolumeKind, VolumeSpread, VolumeState};

use super::Catalogue;
use crate::error::{Error, ErrorKind, Result};
use crate::volume::Slices;

impl Catalogue {
    /// A place on `wanted` shards that follow one another, those to which the least was dealt out; on all if nothing is wanted.
    ///
    /// # Errors
    /// `Invalid` if the pool has not so many.
    pub(super) fn spread(&self, wanted: Option<u16>) -> Result<VolumeSpread> {
        let all = self.shards.len();
        let Some(wanted) = wanted else { return Ok(VolumeSpread::default()) };
        if !(1..=all).contains(&usize::from(wanted)) {
            let message = format!(
                "a volume cannot be on {wanted} shards, the pool has {all}: say 1 to {all}, or nothing for all"
            );
            return Err(Error::new(ErrorKind::Invalid, message));
        }
        let dealt = self.dealt();
        let place = |first: u16| VolumeSpread { first, shards: wanted };
        let burden = |spread: &VolumeSpread| -> u64 {
            Slices::of(*spread, all).holders().filter_map(|shard| dealt.get(shard)).sum()
        };
        Ok((0..u16::try_from(all).unwrap_or(u16::MAX)).map(place).min_by_key(burden).unwrap_or_default())
    }

    /// Bytes of the volumes that do not lie on all shards, by shard.
    fn dealt(&self) -> Vec<u64> {
        let mut dealt = vec![0u64; self.shards.len()];
        let alive = |state, kind| state == VolumeState::Ready && kind == VolumeKind::Volume;
        let entries = self.entries.borrow();
        for record in entries.records().filter(|record| alive(record.state, record.kind)) {
            if record.spread.shards == 0 {
                continue;
            }
            for shard in Slices::of(record.spread, self.shards.len()).holders() {
                if let Some(dealt) = dealt.get_mut(shard) {
                    *dealt += record.size / u64::from(record.spread.shards);
                }
            }
        }
        dealt
    }
}
