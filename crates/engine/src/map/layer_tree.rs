//! Relations of layers: the parent of each layer, and the targets of merged layers.
//!
//! The catalogue stores the parents; here they are only cached. The target of a merged layer is
//! stored as long as a record header may refer to the merged layer.

use std::collections::BTreeMap;

use format::{Incarnation, LayerId, MapEntry, MergedRecord};
use smallvec::SmallVec;

use super::shortcut::ShortcutTarget;
use super::{Map, MissingNode, Pins};

/// Parents and merge targets of layers.
#[derive(Clone, Default)]
pub(super) struct LayerTree {
    /// Parent of each layer that has one.
    parents: BTreeMap<LayerId, LayerId>,
    /// Number of children of each layer that has some.
    child_counts: BTreeMap<LayerId, u32>,
    merged: BTreeMap<LayerId, MergedRecord>,
    /// Increases whenever blocks move between layers or a layer's parent changes.
    version: u64,
}

/// Layers from child to ancestor.
pub(crate) type Chain = SmallVec<[LayerId; 4]>;

/// Leaves pinned in a layer and its ancestors.
#[derive(Default)]
pub(crate) struct ChainPins {
    layers: BTreeMap<LayerId, Pins>,
}

impl ChainPins {
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Pins> {
        self.layers.values()
    }
}

impl LayerTree {
    pub(super) fn restore(&mut self, record: &MergedRecord) {
        self.merged.insert(record.layer, *record);
    }

    /// Returns true if the layer has children.
    pub(super) fn has_child_layer(&self, layer: LayerId) -> bool {
        self.child_counts.contains_key(&layer)
    }

    /// Sets the parent of a layer; returns the old one.
    fn set_parent(&mut self, layer: LayerId, parent: Option<LayerId>) -> Option<LayerId> {
        let before = match parent {
            Some(parent) => self.parents.insert(layer, parent),
            None => self.parents.remove(&layer),
        };
        if let Some(before) = before
            && let Some(count) = self.child_counts.get_mut(&before)
        {
            *count -= 1;
            if *count == 0 {
                self.child_counts.remove(&before);
            }
        }
        if let Some(parent) = parent {
            *self.child_counts.entry(parent).or_default() += 1;
        }
        before
    }

    pub(super) fn records(&self) -> impl Iterator<Item = &MergedRecord> {
        self.merged.values()
    }
}

impl Map {
    /// Sets the parent of a layer.
    pub(crate) fn set_parent(&mut self, layer: LayerId, parent: Option<LayerId>) {
        self.layer_tree.version += 1;
        // A new layer without children has no shortcuts, and no shortcut leads through it.
        if self.layer_tree.set_parent(layer, parent).is_some() || self.layer_tree.has_child_layer(layer) {
            self.shortcuts.clear();
        }
    }

    /// Returns the parent of a layer.
    pub(crate) fn parent(&self, layer: LayerId) -> Option<LayerId> {
        self.layer_tree.parents.get(&layer).copied()
    }

    /// Returns the layers that may hold a block after its record header named `layer`.
    pub(crate) fn merged_into(&self, layer: LayerId) -> Chain {
        std::iter::successors(Some(layer), |at| self.layer_tree.merged.get(at).map(|merged| merged.into))
            .collect()
    }

    /// Returns the highest layer number in use or merged into a layer in use.
    pub(crate) fn last_layer(&self) -> Option<LayerId> {
        let merged = self.layer_tree.merged.last_key_value().map(|(layer, _)| *layer);
        self.layers.last_key_value().map(|(layer, _)| *layer).max(merged)
    }

    /// Like [`Map::lookup`], but continues in the ancestors for absent blocks.
    ///
    /// # Errors
    /// The node to load first; `entries` is then unchanged.
    pub(crate) fn lookup_through(
        &mut self,
        layer: LayerId,
        block: u64,
        count: usize,
        entries: &mut SmallVec<[MapEntry; 8]>,
    ) -> Result<(), MissingNode> {
        let before = entries.len();
        entries.resize(before + count, MapEntry::ABSENT);
        let mut next = Some(layer);
        while let Some(at) = next {
            let Some(missing) = entries.get_mut(before..) else { break };
            match self.fill(at, block, missing) {
                Ok(true) => break,
                Ok(false) => next = self.parent(at),
                Err(load) => {
                    entries.truncate(before);
                    return Err(load);
                }
            }
        }
        Ok(())
    }

    /// Fills absent entries from a layer, starting at `block`. Returns true if none is absent
    /// afterwards.
    fn fill(&mut self, layer: LayerId, block: u64, entries: &mut [MapEntry]) -> Result<bool, MissingNode> {
        let mut found: SmallVec<[MapEntry; 8]> = SmallVec::new();
        let mut start = 0;
        let mut complete = true;
        while let Some(run) = absent_run(entries, start) {
            found.clear();
            self.lookup(layer, block + run.start as u64, run.len(), &mut found)?;
            start = run.end;
            let places = entries.get_mut(run).into_iter().flatten();
            for (place, entry) in places.zip(&found) {
                *place = *entry;
                complete &= !entry.is_absent();
            }
        }
        Ok(complete)
    }

    /// Pins the leaves that [`Map::lookup_through`] needs, except in layers that are `empty`. For
    /// walks through more layers than the memory budget allows: pins are kept over several
    /// attempts, and the caller releases them.
    ///
    /// # Errors
    /// The node to load first.
    pub(crate) fn pin_through(
        &mut self,
        layer: LayerId,
        block: u64,
        count: usize,
        empty: impl Fn(LayerId) -> bool,
        pins: &mut ChainPins,
    ) -> Result<(), MissingNode> {
        let mut entries: SmallVec<[MapEntry; 8]> = SmallVec::from_elem(MapEntry::ABSENT, count);
        let mut next = Some(layer);
        while let Some(at) = next {
            if !empty(at) {
                self.prepare_unmap(at, block, count as u64, pins.layers.entry(at).or_default())?;
                if self.fill(at, block, &mut entries)? {
                    break;
                }
            }
            next = self.parent(at);
        }
        Ok(())
    }

    /// Returns true if a node of the layer is pinned, by a pending record or load, or by a
    /// checkpoint.
    pub(crate) fn is_pinned(&self, layer: LayerId) -> bool {
        self.nodes.iter().any(|node| node.layer == layer && node.pins > 0)
    }

    /// Increases whenever blocks move between layers or a layer's parent changes.
    pub(crate) fn tree_version(&self) -> u64 {
        self.layer_tree.version
    }

    /// Returns the visible entry of a block and the layer that holds it; any layer of the chain if
    /// the entry is absent.
    ///
    /// # Errors
    /// The node to load first.
    pub(crate) fn lookup_one_through(
        &mut self,
        layer: LayerId,
        block: u64,
    ) -> Result<(LayerId, MapEntry), MissingNode> {
        let entry = self.lookup_one(layer, block)?;
        let Some(parent) = self.parent(layer).filter(|_| entry.is_absent()) else {
            return Ok((layer, entry));
        };
        match self.shortcuts.get(layer, block) {
            Some(ShortcutTarget::Nowhere) => return Ok((layer, entry)),
            Some(ShortcutTarget::In(layer)) => {
                let entry = self.lookup_one(layer, block)?;
                if !entry.is_absent() {
                    return Ok((layer, entry));
                }
            }
            None => {}
        }
        let (at, entry) = self.lookup_ancestors(parent, block)?;
        if entry.is_absent() {
            self.shortcuts.set(layer, block, ShortcutTarget::Nowhere);
        } else if at != parent {
            self.shortcuts.set(layer, block, ShortcutTarget::In(at));
        }
        Ok((at, entry))
    }

    /// Looks up a block in a layer and its ancestors, in this order.
    fn lookup_ancestors(&mut self, layer: LayerId, block: u64) -> Result<(LayerId, MapEntry), MissingNode> {
        let mut at = layer;
        loop {
            let entry = self.lookup_one(at, block)?;
            match self.parent(at) {
                Some(parent) if entry.is_absent() => at = parent,
                _ => return Ok((at, entry)),
            }
        }
    }

    /// Records that blocks of a layer are being merged into another one.
    pub(super) fn begin_merge(&mut self, layer: LayerId, into: LayerId) {
        self.layer_tree.version += 1;
        let record = MergedRecord { layer, into, until: None };
        let known = self.layer_tree.merged.entry(layer).or_insert(record);
        assert_eq!(known.into, into, "layer {layer} is merged into one layer only");
    }

    /// Removes a layer. Redirects layers merged into it to its own merge target, if any. Segments
    /// from `newest` on cannot refer to the layer.
    pub(super) fn end_layer(&mut self, layer: LayerId, newest: Incarnation) {
        // The layer number may be reused.
        self.shortcuts.clear();
        let target = self.layer_tree.merged.get_mut(&layer).map(|merged| {
            merged.until = Some(newest);
            merged.into
        });
        match target {
            Some(target) => {
                let redirected = self.layer_tree.merged.values_mut().filter(|merged| merged.into == layer);
                redirected.for_each(|merged| merged.into = target);
            }
            None => self.layer_tree.merged.retain(|_, merged| merged.into != layer),
        }
    }

    /// Removes merged layers that no header can refer to, because all segments are at least as new
    /// as `oldest`.
    pub(crate) fn forget_merged(&mut self, oldest: Incarnation) {
        self.layer_tree.merged.retain(|_, merged| merged.until.is_none_or(|until| until >= oldest));
    }
}

/// Returns the first run of absent entries at or after `from`.
fn absent_run(entries: &[MapEntry], from: usize) -> Option<std::ops::Range<usize>> {
    let rest = entries.get(from..)?;
    let start = from + rest.iter().position(|entry| entry.is_absent())?;
    let length = entries.iter().skip(start).take_while(|entry| entry.is_absent()).count();
    Some(start..start + length)
}
