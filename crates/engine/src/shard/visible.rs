//! Layers in which blocks of another layer are visible.
//!
//! A snapshot, a volume and clones share the blocks of the layer below them, until they have
//! entries of their own. Must not know: volumes and their names.

use std::collections::BTreeSet;

use format::LayerId;
use reactor::Reactor;

use super::Shard;

/// Look-ups after which the task yields.
const YIELD_LOOKUPS: usize = 256;

impl Shard {
    /// Returns those layers of a tree in which blocks of its root are visible, with these blocks.
    /// `above` lists each layer above the root after its parent, as (layer, parent). A layer whose
    /// entry cannot be read counts as showing the block.
    pub(crate) async fn layers_showing(
        &self,
        root: LayerId,
        blocks: &[u64],
        above: &[(LayerId, LayerId)],
    ) -> Vec<(LayerId, u64)> {
        let mut found = Vec::new();
        let mut lookups = 0;
        for block in blocks.iter().copied() {
            let mut showing = BTreeSet::from([root]);
            for (layer, parent) in above.iter().copied() {
                if !showing.contains(&parent) {
                    continue;
                }
                lookups += 1;
                if lookups % YIELD_LOOKUPS == 0 {
                    Reactor::current().yield_now().await;
                }
                let entry = self.walk(|map| map.lookup_one(layer, block)).await;
                if entry.is_ok_and(|entry| !entry.is_absent()) {
                    continue;
                }
                showing.insert(layer);
            }
            found.extend(showing.into_iter().map(|layer| (layer, block)));
        }
        found
    }
}
