//! The volumes and snapshots of a pool in memory, with the indexes that look-ups need.
//!
//! Invariant: every index names exactly the records of the table. While a volume moves to a new
//! layer, two records may name the same layer; the index then names the newer of them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use format::{LayerId, VolumeId, VolumeRecord, VolumeState};

use super::{SEPARATOR, VolumeShared};

/// A record of the catalogue and the state that handles on the volume share.
struct Entry {
    record: VolumeRecord,
    shared: Arc<VolumeShared>,
}

/// The records by number, name, layer and parent layer.
#[derive(Default)]
pub(super) struct VolumeTable {
    entries: BTreeMap<VolumeId, Entry>,
    by_name: BTreeMap<String, BTreeSet<VolumeId>>,
    by_layer: HashMap<LayerId, VolumeId>,
    /// The layers directly above a layer.
    children: HashMap<LayerId, BTreeSet<LayerId>>,
    /// Volumes and snapshots in state [`VolumeState::Deleting`].
    deleting: BTreeSet<VolumeId>,
}

impl VolumeTable {
    /// Adds a record with a new number.
    pub(super) fn insert(&mut self, record: VolumeRecord, shared: Arc<VolumeShared>) {
        self.index(&record);
        let id = record.id;
        let previous = self.entries.insert(id, Entry { record, shared });
        assert!(previous.is_none(), "F5: number {id} is given to two volumes");
    }

    /// Replaces the record of the same number, if there is one.
    pub(super) fn replace(&mut self, record: VolumeRecord) {
        let Some(Entry { record: old, shared }) = self.entries.remove(&record.id) else { return };
        self.unindex(&old);
        self.insert(record, shared);
    }

    /// Removes a record, and returns the state that its handles share.
    pub(super) fn remove(&mut self, id: VolumeId) -> Option<Arc<VolumeShared>> {
        let Entry { record, shared } = self.entries.remove(&id)?;
        self.unindex(&record);
        Some(shared)
    }

    fn index(&mut self, record: &VolumeRecord) {
        self.by_name.entry(record.name.clone()).or_default().insert(record.id);
        self.by_layer.insert(record.layer, record.id);
        if let Some(parent) = record.parent {
            self.children.entry(parent).or_default().insert(record.layer);
        }
        if record.state == VolumeState::Deleting {
            self.deleting.insert(record.id);
        }
    }

    fn unindex(&mut self, record: &VolumeRecord) {
        if let Some(ids) = self.by_name.get_mut(&record.name) {
            ids.remove(&record.id);
            if ids.is_empty() {
                self.by_name.remove(&record.name);
            }
        }
        self.deleting.remove(&record.id);
        // A newer record may have taken the layer over.
        if self.by_layer.get(&record.layer) != Some(&record.id) {
            return;
        }
        self.by_layer.remove(&record.layer);
        if let Some(parent) = record.parent
            && let Some(layers) = self.children.get_mut(&parent)
        {
            layers.remove(&record.layer);
            if layers.is_empty() {
                self.children.remove(&parent);
            }
        }
    }

    /// Returns true if a volume or snapshot has this number.
    pub(super) fn contains(&self, id: VolumeId) -> bool {
        self.entries.contains_key(&id)
    }

    /// Returns the state that the handles on a volume share.
    pub(super) fn shared(&self, id: VolumeId) -> Option<&Arc<VolumeShared>> {
        self.entries.get(&id).map(|entry| &entry.shared)
    }

    /// Returns the record of a number.
    pub(super) fn get(&self, id: VolumeId) -> Option<&VolumeRecord> {
        self.entries.get(&id).map(|entry| &entry.record)
    }

    /// Returns the records, by number.
    pub(super) fn records(&self) -> impl Iterator<Item = &VolumeRecord> {
        self.entries.values().map(|entry| &entry.record)
    }

    /// Returns the records of a name: several while older ones of that name are being deleted.
    pub(super) fn named(&self, name: &str) -> impl Iterator<Item = &VolumeRecord> {
        self.by_name.get(name).into_iter().flatten().filter_map(|id| self.get(*id))
    }

    /// Returns the number of snapshots of a volume that are not being deleted.
    pub(super) fn snapshots_of(&self, volume: &str) -> usize {
        let prefix = format!("{volume}{SEPARATOR}");
        let named = self.by_name.range(prefix.clone()..).take_while(|(name, _)| name.starts_with(&prefix));
        named.flat_map(|(_, ids)| ids).filter(|id| !self.deleting.contains(id)).count()
    }

    /// Returns the record that owns a layer.
    pub(super) fn owner(&self, layer: LayerId) -> Option<&VolumeRecord> {
        self.by_layer.get(&layer).and_then(|id| self.get(*id))
    }

    /// Returns the child layers of a layer, in order of their numbers.
    pub(super) fn children(&self, layer: LayerId) -> impl ExactSizeIterator<Item = LayerId> {
        self.children.get(&layer).unwrap_or(&NO_LAYERS).iter().copied()
    }

    /// Returns the records under deletion, by number.
    pub(super) fn deleting(&self) -> impl Iterator<Item = &VolumeRecord> {
        self.deleting.iter().filter_map(|id| self.get(*id))
    }

    /// Returns true if a volume is marked as deleted or does not exist.
    pub(super) fn is_deleted(&self, id: VolumeId) -> bool {
        self.shared(id).is_none_or(|shared| shared.deleted.load(Ordering::Acquire))
    }
}

static NO_LAYERS: BTreeSet<LayerId> = BTreeSet::new();

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU64};

    use format::{QosLimits, VolumeKind, VolumeSpread};
    use proptest::prelude::*;

    use super::*;
    use crate::fair::{RateLimiter, RateLimits};
    use crate::slices::Slices;
    use crate::volume_uid::VolumeUid;

    fn shared(id: VolumeId) -> Arc<VolumeShared> {
        Arc::new(VolumeShared {
            id,
            uid: VolumeUid::new(0, id),
            name: String::new(),
            sector: 512,
            is_snapshot: false,
            slices: Slices::of(VolumeSpread::default(), 1),
            size: AtomicU64::new(0),
            deleted: AtomicBool::new(false),
            rate_limiter: RateLimiter::new(RateLimits::default()),
        })
    }

    #[derive(Clone, Debug)]
    enum Step {
        Insert(VolumeRecord),
        Replace(VolumeRecord),
        Remove(VolumeId),
    }

    prop_compose! {
        fn record()(id in 1u32..12, name in 0u8..6, layer in 2u32..9, parent in 2u32..9, deleting: bool) -> VolumeRecord {
            let name = if name < 3 { format!("v{name}") } else { format!("v{}@s", name - 3) };
            VolumeRecord {
                id: VolumeId::new(id),
                kind: if name.contains(SEPARATOR) { VolumeKind::Snapshot } else { VolumeKind::Volume },
                name,
                state: if deleting { VolumeState::Deleting } else { VolumeState::Ready },
                size: 4096,
                sector: 512,
                // One layer for each number, so that only the state of two owners at once is left
                // out.
                layer: LayerId::new(layer * 16 + id),
                parent: (parent > 4).then(|| LayerId::new(parent)),
                created: 0,
                qos: QosLimits::default(),
                thick: false,
                spread: VolumeSpread::default(),
            }
        }
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            record().prop_map(Step::Insert),
            record().prop_map(Step::Replace),
            (1u32..12).prop_map(|id| Step::Remove(VolumeId::new(id))),
        ]
    }

    proptest! {
        #[test]
        fn indexes_agree_with_a_scan_of_the_records(steps in prop::collection::vec(step(), 0..60)) {
            let mut table = VolumeTable::default();
            let mut oracle: BTreeMap<VolumeId, VolumeRecord> = BTreeMap::new();
            for step in steps {
                match step {
                    Step::Insert(record) if !oracle.contains_key(&record.id) => {
                        oracle.insert(record.id, record.clone());
                        let id = record.id;
                        table.insert(record, shared(id));
                    }
                    Step::Insert(record) | Step::Replace(record) => {
                        if let Some(old) = oracle.get_mut(&record.id) {
                            *old = record.clone();
                        }
                        table.replace(record);
                    }
                    Step::Remove(id) => {
                        prop_assert_eq!(table.remove(id).is_some(), oracle.remove(&id).is_some());
                    }
                }
                let scan = || oracle.values();
                prop_assert!(table.records().eq(scan()));
                prop_assert!(table.deleting().eq(scan().filter(|record| record.state == VolumeState::Deleting)));
                for name in ["v0", "v1", "v2", "v0@s", "v1@s"] {
                    prop_assert!(table.named(name).eq(scan().filter(|record| record.name == name)));
                    let live = |record: &&VolumeRecord| {
                        record.name.starts_with(&format!("{name}@")) && record.state == VolumeState::Ready
                    };
                    prop_assert_eq!(table.snapshots_of(name), scan().filter(live).count());
                }
                for layer in (0..160).map(LayerId::new) {
                    prop_assert_eq!(table.owner(layer), scan().find(|record| record.layer == layer));
                    let above = scan().filter(|record| record.parent == Some(layer));
                    let above: BTreeSet<LayerId> = above.map(|record| record.layer).collect();
                    prop_assert!(table.children(layer).eq(above));
                }
            }
        }
    }

    #[test]
    fn a_layer_belongs_to_the_snapshot_once_its_volume_has_moved_on() {
        let mut table = VolumeTable::default();
        let (layer, above) = (LayerId::new(5), LayerId::new(6));
        let base = VolumeRecord {
            id: VolumeId::new(1),
            name: "v".into(),
            kind: VolumeKind::Volume,
            state: VolumeState::Ready,
            size: 4096,
            sector: 512,
            layer,
            parent: Some(LayerId::new(4)),
            created: 0,
            qos: QosLimits::default(),
            thick: false,
            spread: VolumeSpread::default(),
        };
        table.insert(base.clone(), shared(base.id));
        let snapshot = VolumeRecord { id: VolumeId::new(2), name: "v@s".into(), ..base.clone() };
        table.insert(snapshot.clone(), shared(snapshot.id));
        table.replace(VolumeRecord { layer: above, parent: Some(layer), ..base.clone() });
        assert_eq!(table.owner(layer).map(|record| record.id), Some(snapshot.id));
        assert_eq!(table.owner(above).map(|record| record.id), Some(base.id));
        assert!(table.children(LayerId::new(4)).eq([layer]));
        assert!(table.children(layer).eq([above]));
    }
}
