//! Frees the layers of deleted volumes and snapshots, in a task that resumes after a crash and
//! retries while the pool is full.
//!
//! A layer without children is dropped. A layer with one child is merged into it. A layer with
//! several children, such as a snapshot with clones, is purged of the blocks that no child can see
//! and retained until one child remains. Each step is durable before the next (F3) and idempotent.

use std::rc::Rc;

use format::{LayerId, VolumeId, VolumeRecord};
use reactor::Reactor;

use super::Catalogue;
use crate::error::{ErrorKind, Result};
use crate::shard::Shard;

/// Delay before a deletion that lacks space is retried.
const RETRY_DELAY: std::time::Duration = std::time::Duration::from_millis(200);

/// The next step of freeing a deleted layer.
#[derive(Clone)]
enum ReclaimStep {
    Drop,
    MergeInto(LayerId),
    /// The layer is retained, with the blocks that one of these children can see.
    Purge(Vec<LayerId>),
}

impl ReclaimStep {
    /// The order in which layers are freed: a layer with nothing above it first, since that may
    /// spare a merge or a purge.
    const fn rank(&self) -> u8 {
        match self {
            Self::Drop => 0,
            Self::MergeInto(_) => 1,
            Self::Purge(_) => 2,
        }
    }
}

impl Catalogue {
    /// Frees deleted layers until the catalogue is stopped.
    pub(super) async fn reclaim(self: Rc<Self>) {
        while !self.stopping.get() {
            match self.next_to_free() {
                Some((record, step)) => self.try_free(&record, &step).await,
                None => self.reclaim_requested.notified().await,
            }
        }
        self.reclaiming.set(false);
        self.reclaim_ended.wake_all();
    }

    async fn try_free(&self, record: &VolumeRecord, step: &ReclaimStep) {
        let Err(error) = self.free(record, step).await else { return };
        if self.stopping.get() {
            return;
        }
        // The record stays marked, so that a retry or the next open resumes.
        tracing::warn!(volume = %record.name, %error, "a deleted volume could not be freed yet");
        if error.kind() == ErrorKind::NoSpace {
            Reactor::current().sleep(RETRY_DELAY).await;
        } else {
            self.stuck.borrow_mut().insert(record.id);
        }
    }

    /// Returns a deleted volume that can be freed now. Layers without children come first, which
    /// may avoid a merge or purge.
    fn next_to_free(&self) -> Option<(VolumeRecord, ReclaimStep)> {
        let (entries, stuck) = (self.entries.borrow(), self.stuck.borrow());
        let mut best: Option<(&VolumeRecord, ReclaimStep)> = None;
        for record in entries.deleting().filter(|record| !stuck.contains(&record.id)) {
            let mut children = entries.children(record.layer);
            let step = match (children.next(), children.len()) {
                (None, _) => return Some((record.clone(), ReclaimStep::Drop)),
                (Some(only), 0) => ReclaimStep::MergeInto(only),
                // Retried when a child is removed.
                _ if self.retained_by(record) > 0 => continue,
                _ => ReclaimStep::Purge(entries.children(record.layer).collect()),
            };
            if best.as_ref().is_none_or(|(_, other)| step.rank() < other.rank()) {
                best = Some((record, step));
            }
        }
        best.map(|(record, step)| (record.clone(), step))
    }

    /// Returns the number of child layers for which a purged layer is retained, or 0 if it can be
    /// freed further.
    pub(super) fn retained_by(&self, record: &VolumeRecord) -> usize {
        let (entries, purged) = (self.entries.borrow(), self.purged.borrow());
        let children = entries.children(record.layer);
        let count = children.len();
        let is_purged = || purged.get(&record.id).is_some_and(|layers| children.eq(layers.iter().copied()));
        if count > 1 && is_purged() { count } else { 0 }
    }

    async fn free(&self, record: &VolumeRecord, step: &ReclaimStep) -> Result<()> {
        let layer = record.layer;
        for shard in self.shards.iter() {
            let step = step.clone();
            let free = move |shard: Rc<Shard>| async move {
                match step {
                    ReclaimStep::Drop => shard.drop_layer(layer).await?,
                    ReclaimStep::MergeInto(into) => shard.merge_layer(layer, into).await?,
                    ReclaimStep::Purge(children) => shard.purge_layer(layer, &children).await?,
                }
                shard.flush().await
            };
            shard.call(free).await??;
        }
        match step {
            ReclaimStep::Drop => self.remove_record(record, None).await,
            ReclaimStep::MergeInto(into) => self.remove_record(record, Some(*into)).await,
            ReclaimStep::Purge(children) => {
                self.purged.borrow_mut().insert(record.id, children.clone());
                Ok(())
            }
        }
    }

    /// Removes the record of a freed layer. Its parent becomes the parent of the child it was
    /// merged into.
    async fn remove_record(&self, record: &VolumeRecord, into: Option<LayerId>) -> Result<()> {
        let _changing = self.changing.acquire().await;
        // Read again, because the child's volume may have switched to another layer in the
        // meantime.
        let child = into.and_then(|into| self.entries.borrow().owner(into).cloned());
        let child = child.map(|child| VolumeRecord { parent: record.parent, ..child });
        let changed: Vec<&VolumeRecord> = child.iter().collect();
        self.store(&changed, Some(record.id)).await?;
        if let Some(child) = child {
            let (layer, parent) = (child.layer, child.parent);
            self.on_shards(move |shard| shard.set_parent(layer, parent)).await?;
            // The merged blocks may need another purge.
            self.purged.borrow_mut().remove(&child.id);
            self.update(child);
        }
        let id: VolumeId = record.id;
        self.on_shards(move |shard| shard.forget_volume(id)).await?;
        if let Some(shared) = self.entries.borrow_mut().remove(id) {
            self.retired.borrow_mut().retire(&shared);
        }
        self.purged.borrow_mut().remove(&id);
        Ok(())
    }
}
