//! The space used by volumes and snapshots, and the differences between two of them.

use std::collections::BTreeMap;
use std::rc::Rc;

use format::limits::BLOCK;
use format::{LayerId, VolumeRecord, VolumeState};
use futures_util::future::LocalBoxFuture;

use super::{Catalogue, Pool};
use crate::error::{Error, ErrorKind, Result};
use crate::finding::LostRange;
use crate::shard::{Ancestor, Child, LayerNeighbours, Shard};

/// The data in a range of a volume or snapshot, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VolumeUsage {
    /// Data visible in the volume; the rest reads as zeros.
    pub referenced: u64,
    /// Data visible only in this volume. Deleting the volume frees it.
    pub exclusive: u64,
}

/// A range in which a volume or snapshot differs from another one, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChangedRange {
    /// The first byte.
    pub offset: u64,
    /// The length.
    pub length: u64,
    /// True for data; otherwise the range reads as zeros.
    pub data: bool,
}

impl Catalogue {
    /// Returns the ranges of lost blocks in each volume and snapshot that shows them. `lost` holds
    /// layers and blocks, for each shard.
    ///
    /// # Errors
    /// If the pool was closed.
    pub(crate) async fn locate(&self, lost: Vec<Vec<(LayerId, u64)>>) -> Result<Vec<LostRange>> {
        let mut ranges: Vec<LostRange> = Vec::new();
        for (index, blocks) in lost.into_iter().enumerate() {
            let mut by_layer: BTreeMap<LayerId, Vec<u64>> = BTreeMap::new();
            blocks.into_iter().for_each(|(layer, block)| by_layer.entry(layer).or_default().push(block));
            for (layer, blocks) in by_layer {
                let shown = self.shown(index, layer, blocks).await?;
                ranges.extend(shown.into_iter().flat_map(|(layer, block)| self.range(index, layer, block)));
            }
        }
        ranges.sort();
        ranges.dedup_by(|next, last| {
            let follows = last.volume == next.volume && last.offset + last.length == next.offset;
            if follows {
                last.length += next.length;
            }
            follows
        });
        Ok(ranges)
    }

    /// Returns the layers in which blocks of `layer` in a shard are visible, with these blocks.
    async fn shown(&self, shard: usize, layer: LayerId, blocks: Vec<u64>) -> Result<Vec<(LayerId, u64)>> {
        let above = self.layers_above(layer);
        let Some(shard) = self.shards.get(shard).filter(|_| !above.is_empty()) else {
            return Ok(blocks.into_iter().map(|block| (layer, block)).collect());
        };
        let find = move |shard: Rc<Shard>| async move { shard.layers_showing(layer, &blocks, &above).await };
        Ok(shard.call(find).await?)
    }

    /// Returns all layers above a layer with their parents, each after its parent.
    fn layers_above(&self, layer: LayerId) -> Vec<(LayerId, LayerId)> {
        let entries = self.entries.borrow();
        let mut above: Vec<(LayerId, LayerId)> = Vec::new();
        let mut next = Some(layer);
        let mut visited = 0;
        while let Some(parent) = next {
            above.extend(entries.children(parent).map(|child| (child, parent)));
            next = above.get(visited).map(|(layer, _)| *layer);
            visited += 1;
        }
        above
    }

    /// Returns the range of a block of a layer in its volume or snapshot; nothing if it is being
    /// deleted or ends before the block.
    fn range(&self, shard: usize, layer: LayerId, block: u64) -> Vec<LostRange> {
        let owner = self.entries.borrow().owner(layer).cloned();
        let one = |volume: &str, block: u64, end: u64| {
            let (offset, volume) = (block * BLOCK as u64, volume.to_owned());
            let length = (BLOCK as u64).min(end.saturating_sub(offset));
            (length > 0).then_some(LostRange { volume, offset, length })
        };
        match owner {
            None if layer < LayerId::FIRST_USER => one("", block, u64::MAX).into_iter().collect(),
            Some(record) if record.state == VolumeState::Ready => {
                let runs = self.slices(&record).volume_runs(shard, block, 1);
                runs.into_iter().filter_map(|(block, _)| one(&record.name, block, record.size)).collect()
            }
            _ => Vec::new(),
        }
    }

    async fn usage(&self, name: String, offset: u64, length: u64) -> Result<VolumeUsage> {
        let record = self.find(&name)?;
        let around = LayerNeighbours {
            children: self.children(record.layer, None),
            ancestors: self.deleted_ancestors(&record),
        };
        let (first, end) = blocks(offset, length);
        let end = end.min(record.size.div_ceil(BLOCK as u64));
        let slices = self.slices(&record);
        let mut usage = VolumeUsage::default();
        for (index, shard) in self.shards.iter().enumerate() {
            let (layer, around) = (record.layer, around.clone());
            let (from, to) = (slices.local_bound(index, first), slices.local_bound(index, end));
            let count =
                move |shard: Rc<Shard>| async move { shard.layer_usage(layer, &around, from, to).await };
            let usage_here = shard.call(count).await??;
            usage.referenced += usage_here.referenced * BLOCK as u64;
            usage.exclusive += usage_here.exclusive * BLOCK as u64;
        }
        Ok(usage)
    }

    async fn changes(
        &self,
        name: String,
        base: String,
        offset: u64,
        length: u64,
    ) -> Result<Vec<ChangedRange>> {
        let (layer, between) = self.layers_between(&name, &base)?;
        let (record, base_size) = (self.find(&name)?, self.find(&base)?.size);
        // Both volumes have the same striping, because one was created from the other.
        let (size, slices) = (record.size, self.slices(&record));
        let (first, end) = blocks(offset, length);
        let end = end.min(size.div_ceil(BLOCK as u64));
        let mut changes = Vec::new();
        // Beyond the end of the base there is no data, even in shared layers: a shrunk volume may
        // still hold blocks there if a crash preceded their release.
        let common_end = base_size.div_ceil(BLOCK as u64).clamp(first, end.max(first));
        for (from, to, layers) in [(first, common_end, between), (common_end, end, self.chain(layer))] {
            for (index, shard) in self.shards.iter().enumerate() {
                let layers = layers.clone();
                let (from, to) = (slices.local_bound(index, from), slices.local_bound(index, to));
                let find =
                    move |shard: Rc<Shard>| async move { shard.changed(layer, &layers, from, to).await };
                for run in shard.call(find).await?? {
                    for (block, count) in slices.volume_runs(index, run.block, run.count) {
                        let (offset, length) = (block * BLOCK as u64, count * BLOCK as u64);
                        changes.push(ChangedRange { offset, length, data: run.data });
                    }
                }
            }
        }
        // The base covers only a part of its last block.
        let last_block = base_size / BLOCK as u64;
        if base_size < size && !base_size.is_multiple_of(BLOCK as u64) && (first..end).contains(&last_block) {
            let offset = last_block * BLOCK as u64;
            let holds =
                |change: &ChangedRange| (change.offset..change.offset + change.length).contains(&offset);
            if !changes.iter().any(holds) {
                changes.push(ChangedRange { offset, length: BLOCK as u64, data: true });
            }
        }
        changes.sort_by_key(|change: &ChangedRange| change.offset);
        let mut joined: Vec<ChangedRange> = Vec::with_capacity(changes.len());
        for change in changes {
            match joined.last_mut() {
                Some(last) if last.offset + last.length == change.offset && last.data == change.data => {
                    last.length += change.length;
                }
                _ => joined.push(change),
            }
        }
        if let Some(last) = joined.last_mut() {
            last.length = last.length.min(size - last.offset);
        }
        Ok(joined)
    }

    /// Returns the layer of `name`, and the layers that belong to only one of the two chains.
    fn layers_between(&self, name: &str, base: &str) -> Result<(LayerId, Vec<LayerId>)> {
        let (changed, base_record) = (self.find(name)?, self.find(base)?);
        let (own, base_chain) = (self.chain(changed.layer), self.chain(base_record.layer));
        if own.last() != base_chain.last() {
            let message =
                format!("'{name}' and '{base}' are unrelated: neither is a snapshot or clone of the other");
            return Err(Error::new(ErrorKind::Invalid, message));
        }
        let only_own = own.iter().filter(|layer| !base_chain.contains(layer));
        let only_base = base_chain.iter().filter(|layer| !own.contains(layer));
        Ok((changed.layer, only_own.chain(only_base).copied().collect()))
    }

    /// Returns the child layers of a layer without `except`, and recursively the children of
    /// deleted ones.
    fn children(&self, layer: LayerId, except: Option<LayerId>) -> Vec<Child> {
        let entries = self.entries.borrow();
        let direct = entries.children(layer).filter(|child| Some(*child) != except);
        let is_deleting =
            |layer| entries.owner(layer).is_some_and(|record| record.state == VolumeState::Deleting);
        let children = direct
            .map(|layer| Child { layer, deleting: is_deleting(layer).then(|| self.children(layer, None)) });
        children.collect()
    }

    /// Returns the nearest ancestors of a layer, as long as they are under deletion.
    fn deleted_ancestors(&self, record: &VolumeRecord) -> Vec<Ancestor> {
        let mut all = Vec::new();
        let entries = self.entries.borrow();
        let mut above = record;
        while let Some(next) = above.parent
            && let Some(record) = entries.owner(next)
            && record.state == VolumeState::Deleting
        {
            all.push(Ancestor { layer: next, siblings: self.children(next, Some(above.layer)) });
            above = record;
        }
        all
    }

    /// Returns a layer and its ancestors, from the top down.
    fn chain(&self, layer: LayerId) -> Vec<LayerId> {
        let entries = self.entries.borrow();
        std::iter::successors(Some(layer), |layer| entries.owner(*layer)?.parent).collect()
    }
}

fn blocks(offset: u64, length: u64) -> (u64, u64) {
    (offset / BLOCK as u64, offset.saturating_add(length).div_ceil(BLOCK as u64))
}

impl Pool {
    /// Returns the data in bytes `offset..offset + length` of a volume or snapshot. Reads that part
    /// of the map.
    ///
    /// # Errors
    /// `NotFound`; those of reading the map.
    pub fn volume_usage<'a>(
        &'a self,
        name: &'a str,
        offset: u64,
        length: u64,
    ) -> LocalBoxFuture<'a, Result<VolumeUsage>> {
        Box::pin(async move {
            let name = name.to_owned();
            let count =
                move |catalogue: Rc<Catalogue>| async move { catalogue.usage(name, offset, length).await };
            self.catalogue().call(count).await?
        })
    }

    /// Returns the ranges in `offset..offset + length` in which a volume or snapshot differs from
    /// `base`, in order and in whole blocks: the blocks written or trimmed in either since they
    /// diverged, up to the end of the volume.
    ///
    /// # Errors
    /// `NotFound`; `Invalid` if the two are unrelated; those of reading the map.
    pub fn volume_changes<'a>(
        &'a self,
        name: &'a str,
        base: &'a str,
        offset: u64,
        length: u64,
    ) -> LocalBoxFuture<'a, Result<Vec<ChangedRange>>> {
        Box::pin(async move {
            let (name, base) = (name.to_owned(), base.to_owned());
            let find = move |catalogue: Rc<Catalogue>| async move {
                catalogue.changes(name, base, offset, length).await
            };
            self.catalogue().call(find).await?
        })
    }
}
