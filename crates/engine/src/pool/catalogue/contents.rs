//! What volumes and snapshots hold, and where two of them differ.

use std::rc::Rc;

use format::limits::BLOCK;
use format::{LayerId, VolumeRecord, VolumeState};

use super::{Catalogue, Pool};
use crate::error::{Error, ErrorKind, Result};
use crate::shard::{Ancestor, Child, LayerNeighbours, Shard};

/// What part of a volume or snapshot holds, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VolumeUsage {
    /// Data that it shows; the rest reads as zeros.
    pub shown: u64,
    /// Data that only it shows: deleting it frees this.
    pub alone: u64,
}

/// A stretch in which a volume or snapshot differs from another one, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// Where it begins.
    pub offset: u64,
    /// How long it is.
    pub length: u64,
    /// True if it holds data; otherwise it reads as zeros.
    pub data: bool,
}

/// Bytes of a volume or snapshot that are lost: reading them gives an error until they are overwritten.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LostRange {
    /// Its name; empty for the pool's own catalogue and event log.
    pub volume: String,
    /// Where they begin.
    pub offset: u64,
    /// How many they are.
    pub length: u64,
}

impl Catalogue {
    /// The ranges that lost blocks are, by volume. `lost` names, for each shard, layers and their blocks.
    pub(crate) fn locate(&self, lost: &[Vec<(LayerId, u64)>]) -> Vec<LostRange> {
        let mut ranges: Vec<LostRange> = Vec::new();
        for (shard, blocks) in lost.iter().enumerate() {
            for (layer, block) in blocks {
                let owner = self.entries.borrow().owner(*layer).cloned();
                let global = match &owner {
                    Some(record) => self.slices(record).volume_runs(shard, *block, 1),
                    None => vec![(*block, 1)],
                };
                let volume = owner.map(|record| record.name).unwrap_or_default();
                ranges.extend(global.into_iter().map(|(block, count)| LostRange {
                    volume: volume.clone(),
                    offset: block * BLOCK as u64,
                    length: count * BLOCK as u64,
                }));
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
        ranges
    }

    async fn usage(&self, name: String, offset: u64, length: u64) -> Result<VolumeUsage> {
        let record = self.find(&name)?;
        let around = LayerNeighbours { above: self.above(record.layer, None), below: self.below(&record) };
        let (first, end) = blocks(offset, length);
        let end = end.min(record.size.div_ceil(BLOCK as u64));
        let slices = self.slices(&record);
        let mut usage = VolumeUsage::default();
        for (index, shard) in self.shards.iter().enumerate() {
            let (layer, around) = (record.layer, around.clone());
            let (from, to) = (slices.local_bound(index, first), slices.local_bound(index, end));
            let count = move |shard: Rc<Shard>| async move { shard.held(layer, &around, from, to).await };
            let held = shard.call(count).await??;
            usage.shown += held.shown * BLOCK as u64;
            usage.alone += held.alone * BLOCK as u64;
        }
        Ok(usage)
    }

    async fn changes(&self, name: String, base: String, offset: u64, length: u64) -> Result<Vec<Change>> {
        let (shows, between) = self.between(&name, &base)?;
        let (record, base_size) = (self.find(&name)?, self.find(&base)?.size);
        // Those of the other one lie where its own do: one was made of the other.
        let (size, slices) = (record.size, self.slices(&record));
        let (first, end) = blocks(offset, length);
        let end = end.min(size.div_ceil(BLOCK as u64));
        let mut changes = Vec::new();
        // Behind the end of the other one there is nothing, whatever layers they share: one that was made smaller may still
        // have something there, if a crash came before it was freed.
        let both = base_size.div_ceil(BLOCK as u64).clamp(first, end.max(first));
        for (from, to, layers) in [(first, both, between), (both, end, self.chain(shows))] {
            for (index, shard) in self.shards.iter().enumerate() {
                let layers = layers.clone();
                let (from, to) = (slices.local_bound(index, from), slices.local_bound(index, to));
                let find =
                    move |shard: Rc<Shard>| async move { shard.changed(shows, &layers, from, to).await };
                for run in shard.call(find).await?? {
                    for (block, count) in slices.volume_runs(index, run.block, run.count) {
                        let (offset, length) = (block * BLOCK as u64, count * BLOCK as u64);
                        changes.push(Change { offset, length, data: run.data });
                    }
                }
            }
        }
        // Of the block in which the other one ends, it shows only a part.
        let cut = base_size / BLOCK as u64;
        if base_size < size && !base_size.is_multiple_of(BLOCK as u64) && (first..end).contains(&cut) {
            let offset = cut * BLOCK as u64;
            let holds = |change: &Change| (change.offset..change.offset + change.length).contains(&offset);
            if !changes.iter().any(holds) {
                changes.push(Change { offset, length: BLOCK as u64, data: true });
            }
        }
        changes.sort_by_key(|change: &Change| change.offset);
        let mut joined: Vec<Change> = Vec::with_capacity(changes.len());
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

    /// The layer of `name`, and the layers that only one of the two is or lies above.
    fn between(&self, name: &str, base: &str) -> Result<(LayerId, Vec<LayerId>)> {
        let (changed, base_record) = (self.find(name)?, self.find(base)?);
        let (ours, theirs) = (self.chain(changed.layer), self.chain(base_record.layer));
        if ours.last() != theirs.last() {
            let message = format!(
                "'{name}' and '{base}' have nothing in common: neither is a snapshot or clone of the other"
            );
            return Err(Error::new(ErrorKind::Invalid, message));
        }
        let only_ours = ours.iter().filter(|layer| !theirs.contains(layer));
        let only_theirs = theirs.iter().filter(|layer| !ours.contains(layer));
        Ok((changed.layer, only_ours.chain(only_theirs).copied().collect()))
    }

    /// The layers directly above one but for `except`, and above those of them that are being deleted.
    fn above(&self, layer: LayerId, except: Option<LayerId>) -> Vec<Child> {
        let entries = self.entries.borrow();
        let directly = entries.children(layer).filter(|above| Some(*above) != except);
        let is_deleting =
            |layer| entries.owner(layer).is_some_and(|record| record.state == VolumeState::Deleting);
        let with_further = directly
            .map(|layer| Child { layer, deleting: is_deleting(layer).then(|| self.above(layer, None)) });
        with_further.collect()
    }

    /// The layers right below one that are being deleted.
    fn below(&self, record: &VolumeRecord) -> Vec<Ancestor> {
        let mut all = Vec::new();
        let entries = self.entries.borrow();
        let mut above = record;
        while let Some(next) = above.parent
            && let Some(record) = entries.owner(next)
            && record.state == VolumeState::Deleting
        {
            all.push(Ancestor { layer: next, beside: self.above(next, Some(above.layer)) });
            above = record;
        }
        all
    }

    /// A layer and all below it, from the top down.
    fn chain(&self, layer: LayerId) -> Vec<LayerId> {
        let entries = self.entries.borrow();
        std::iter::successors(Some(layer), |layer| entries.owner(*layer)?.parent).collect()
    }
}

fn blocks(offset: u64, length: u64) -> (u64, u64) {
    (offset / BLOCK as u64, offset.saturating_add(length).div_ceil(BLOCK as u64))
}

impl Pool {
    /// What bytes `offset..offset + length` of a volume or snapshot hold. Reads that part of the map.
    ///
    /// # Errors
    /// `NotFound`; those of reading the map.
    pub async fn volume_usage(&self, name: &str, offset: u64, length: u64) -> Result<VolumeUsage> {
        let name = name.to_owned();
        let count =
            move |catalogue: Rc<Catalogue>| async move { catalogue.usage(name, offset, length).await };
        self.catalogue().call(count).await?
    }

    /// Where bytes `offset..offset + length` of a volume or snapshot differ from those of `base`, in order and in whole blocks: what was
    /// written or trimmed in either since they were one. What lies behind the end of the volume is left out.
    ///
    /// # Errors
    /// `NotFound`; `Invalid` if the two were never one; those of reading the map.
    pub async fn volume_changes(
        &self,
        name: &str,
        base: &str,
        offset: u64,
        length: u64,
    ) -> Result<Vec<Change>> {
        let (name, base) = (name.to_owned(), base.to_owned());
        let find = move |catalogue: Rc<Catalogue>| async move {
            catalogue.changes(name, base, offset, length).await
        };
        self.catalogue().call(find).await?
    }
}
