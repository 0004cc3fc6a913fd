//! How layers are related: which lies below which, and where the blocks of merged ones went.
//!
//! What lies below a layer is what the catalogue says, and never stored here. Where a merged layer went is stored, as long as a
//! header of a record may name it.

use std::collections::BTreeMap;

use format::{Incarnation, LayerId, MapEntry, MergedRecord};
use smallvec::SmallVec;

use super::shortcut::ShortcutTarget;
use super::{Map, MissingNode, Pins};

/// See the module.
#[derive(Clone, Default)]
pub(super) struct LayerTree {
    /// The layer below each that has one.
    parents: BTreeMap<LayerId, LayerId>,
    /// How many layers lie directly above each that has some.
    above: BTreeMap<LayerId, u32>,
    merged: BTreeMap<LayerId, MergedRecord>,
    /// Rises whenever blocks go from one layer to another, or what lies below a layer changes.
    changes: u64,
}

/// Layers, from the top down.
pub(crate) type Chain = SmallVec<[LayerId; 4]>;

/// Leaves pinned in a layer and those below it.
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

    /// True if it lies below another layer.
    pub(super) fn has_child_layer(&self, layer: LayerId) -> bool {
        self.above.contains_key(&layer)
    }

    /// Says what lies below a layer; gives what did.
    fn set_below(&mut self, layer: LayerId, parent: Option<LayerId>) -> Option<LayerId> {
        let before = match parent {
            Some(parent) => self.parents.insert(layer, parent),
            None => self.parents.remove(&layer),
        };
        if let Some(before) = before
            && let Some(above) = self.above.get_mut(&before)
        {
            *above -= 1;
            if *above == 0 {
                self.above.remove(&before);
            }
        }
        if let Some(parent) = parent {
            *self.above.entry(parent).or_default() += 1;
        }
        before
    }

    pub(super) fn records(&self) -> impl Iterator<Item = &MergedRecord> {
        self.merged.values()
    }
}

impl Map {
    /// Says what lies below a layer.
    pub(crate) fn set_parent(&mut self, layer: LayerId, parent: Option<LayerId>) {
        self.layer_tree.changes += 1;
        // A new one that has none above it has no shortcuts, and nobody has any through it.
        if self.layer_tree.set_below(layer, parent).is_some() || self.layer_tree.has_child_layer(layer) {
            self.shortcuts.forget();
        }
    }

    /// What lies below a layer.
    pub(crate) fn parent(&self, layer: LayerId) -> Option<LayerId> {
        self.layer_tree.parents.get(&layer).copied()
    }

    /// The layers in which a block may be whose record's header names `layer`.
    pub(crate) fn merged_into(&self, layer: LayerId) -> Chain {
        std::iter::successors(Some(layer), |at| self.layer_tree.merged.get(at).map(|merged| merged.into))
            .collect()
    }

    /// The highest number of a layer that is in use here, or was merged into one that is.
    pub(crate) fn last_layer(&self) -> Option<LayerId> {
        let merged = self.layer_tree.merged.last_key_value().map(|(layer, _)| *layer);
        self.layers.last_key_value().map(|(layer, _)| *layer).max(merged)
    }

    /// As [`Map::lookup`], and what a layer does not have is looked for in those below it.
    ///
    /// # Errors
    /// A node to be read first; `entries` is as it was then.
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
            let Some(wanted) = entries.get_mut(before..) else { break };
            match self.fill(at, block, wanted) {
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

    /// Fills in what a layer has of the blocks from `block` on whose entries are absent. True if none is left.
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

    /// Pins the leaves that [`Map::lookup_through`] needs, except those of layers that are `empty`. For walks through more layers than the
    /// memory budget has room for: what is pinned stays so over several tries, and the caller takes the pins back.
    ///
    /// # Errors
    /// A node to be read first.
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

    /// True if a node of the layer is pinned, by somebody who waits for a record or a node, or by a checkpoint.
    pub(crate) fn is_pinned(&self, layer: LayerId) -> bool {
        self.nodes.iter().any(|node| node.layer == layer && node.pins > 0)
    }

    /// Rises whenever blocks go from one layer to another, or what lies below a layer changes.
    pub(crate) fn tree_version(&self) -> u64 {
        self.layer_tree.changes
    }

    /// The entry that a block of a layer shows, and the layer that it is in, any one of them if it is in none.
    ///
    /// # Errors
    /// A node to be read first.
    pub(crate) fn lookup_one_through(
        &mut self,
        layer: LayerId,
        block: u64,
    ) -> Result<(LayerId, MapEntry), MissingNode> {
        let entry = self.lookup_one(layer, block)?;
        let Some(below) = self.parent(layer).filter(|_| entry.is_absent()) else { return Ok((layer, entry)) };
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
        let (at, entry) = self.look_below(below, block)?;
        if entry.is_absent() {
            self.shortcuts.set(layer, block, ShortcutTarget::Nowhere);
        } else if at != below {
            self.shortcuts.set(layer, block, ShortcutTarget::In(at));
        }
        Ok((at, entry))
    }

    /// Looks for a block in a layer and those below it, one after the other.
    fn look_below(&mut self, layer: LayerId, block: u64) -> Result<(LayerId, MapEntry), MissingNode> {
        let mut at = layer;
        loop {
            let entry = self.lookup_one(at, block)?;
            match self.parent(at) {
                Some(parent) if entry.is_absent() => at = parent,
                _ => return Ok((at, entry)),
            }
        }
    }

    /// Blocks of a layer are going to another one, from now on.
    pub(super) fn begin_merge(&mut self, layer: LayerId, into: LayerId) {
        self.layer_tree.changes += 1;
        let record = MergedRecord { layer, into, until: None };
        let known = self.layer_tree.merged.entry(layer).or_insert(record);
        assert_eq!(known.into, into, "layer {layer} is merged into one layer");
    }

    /// A layer is gone. What was merged into it goes by the layer that it was merged into itself, if it was. Segments from
    /// `newest` on cannot name it any more.
    pub(super) fn end_layer(&mut self, layer: LayerId, newest: Incarnation) {
        // Its number may be used again.
        self.shortcuts.forget();
        let heir = self.layer_tree.merged.get_mut(&layer).map(|merged| {
            merged.until = Some(newest);
            merged.into
        });
        match heir {
            Some(heir) => {
                let to_it = self.layer_tree.merged.values_mut().filter(|merged| merged.into == layer);
                to_it.for_each(|merged| merged.into = heir);
            }
            None => self.layer_tree.merged.retain(|_, merged| merged.into != layer),
        }
    }

    /// Forgets merged layers that no header can name any more: every segment is newer than `oldest`, or that one.
    pub(crate) fn forget_merged(&mut self, oldest: Incarnation) {
        self.layer_tree.merged.retain(|_, merged| merged.until.is_none_or(|until| until >= oldest));
    }
}

/// The first run of absent entries at or behind `from`.
fn absent_run(entries: &[MapEntry], from: usize) -> Option<std::ops::Range<usize>> {
    let rest = entries.get(from..)?;
    let start = from + rest.iter().position(|entry| entry.is_absent())?;
    let length = entries.iter().skip(start).take_while(|entry| entry.is_absent()).count();
    Some(start..start + length)
}
