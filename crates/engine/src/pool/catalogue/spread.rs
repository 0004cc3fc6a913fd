//! The choice of shards for a new volume that is not striped over all shards.
//!
//! A volume on few shards is served by few cores: a queue that runs on the shard's core sends no
//! request to another core, and the writes gather into fewer and larger records. Many small volumes
//! are therefore distributed over the shards by size.

use format::{VolumeKind, VolumeSpread, VolumeState};

use super::Catalogue;
use crate::error::{Error, ErrorKind, Result};
use crate::invariant::{narrow, present};
use crate::slices::Slices;

impl Catalogue {
    /// Returns a spread over `wanted` consecutive shards, the ones with the fewest assigned bytes;
    /// over all shards if `wanted` is absent.
    ///
    /// # Errors
    /// `Invalid` if the pool has fewer shards.
    pub(super) fn choose_spread(&self, wanted: Option<u16>) -> Result<VolumeSpread> {
        let all = self.shards.len();
        let Some(wanted) = wanted else { return Ok(VolumeSpread::default()) };
        if !(1..=all).contains(&usize::from(wanted)) {
            let message = format!(
                "a volume cannot be on {wanted} shards, the pool has {all}: use 1 to {all}, or omit the number for all"
            );
            return Err(Error::new(ErrorKind::Invalid, message));
        }
        let assigned = self.assigned_bytes();
        let spread = |first: u16| VolumeSpread { first, shards: wanted };
        let load = |spread: &VolumeSpread| -> u64 {
            Slices::of(*spread, all).holders().filter_map(|shard| assigned.get(shard)).sum()
        };
        let least = (0..narrow(all, "F4")).map(spread).min_by_key(load);
        Ok(present(least, "F4"))
    }

    /// Returns the bytes of the volumes that are not striped over all shards, by shard.
    fn assigned_bytes(&self) -> Vec<u64> {
        let mut assigned = vec![0u64; self.shards.len()];
        let alive = |state, kind| state == VolumeState::Ready && kind == VolumeKind::Volume;
        let entries = self.entries.borrow();
        for record in entries.records().filter(|record| alive(record.state, record.kind)) {
            if record.spread.shards == 0 {
                continue;
            }
            for shard in Slices::of(record.spread, self.shards.len()).holders() {
                if let Some(bytes) = assigned.get_mut(shard) {
                    *bytes += record.size / u64::from(record.spread.shards);
                }
            }
        }
        assigned
    }
}
