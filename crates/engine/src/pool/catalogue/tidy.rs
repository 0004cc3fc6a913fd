//! Freeing what was deleted: a task that goes on where a crash or a full pool has stopped it.
//!
//! What no layer lies above of is emptied. What one layer lies above of is merged into that. What several lie above of (a snapshot
//! with clones) is rid of what none of them shows, and waits until there is one. Each step is durable before the next (F3), and may be done again.

use std::rc::Rc;

use format::{LayerId, VolumeId, VolumeRecord};
use reactor::Reactor;

use super::Catalogue;
use crate::error::{ErrorKind, Result};
use crate::shard::Shard;

/// How long a deletion waits for space before it tries again.
const AGAIN: std::time::Duration = std::time::Duration::from_millis(200);

/// What becomes of a deleted layer.
#[derive(Clone)]
enum Fate {
    Dropped,
    MergedInto(LayerId),
    /// It stays, and keeps what one of these shows.
    Purged(Vec<LayerId>),
}

impl Fate {
    /// The order in which layers are freed: a layer with nothing above it first, since that may
    /// spare a merge or a purge.
    const fn rank(&self) -> u8 {
        match self {
            Self::Dropped => 0,
            Self::MergedInto(_) => 1,
            Self::Purged(_) => 2,
        }
    }
}

impl Catalogue {
    /// Frees what is deleted, until the catalogue is stopped.
    pub(super) async fn tidy(self: Rc<Self>) {
        while !self.stopping.get() {
            match self.next_to_free() {
                Some((record, fate)) => self.try_to_free(&record, &fate).await,
                None => self.untidy.notified().await,
            }
        }
        self.tidying.set(false);
        self.tidied.wake_all();
    }

    async fn try_to_free(&self, record: &VolumeRecord, fate: &Fate) {
        let Err(error) = self.free(record, fate).await else { return };
        if self.stopping.get() {
            return;
        }
        // The record stays marked: another try, or the next opening, goes on.
        tracing::warn!(volume = %record.name, %error, "what was deleted is not freed yet");
        if error.kind() == ErrorKind::NoSpace {
            Reactor::current().sleep(AGAIN).await;
        } else {
            self.stuck.borrow_mut().insert(record.id);
        }
    }

    /// Something deleted that can be freed now: what nobody lies above of first, so that nothing is merged or purged in vain.
    fn next_to_free(&self) -> Option<(VolumeRecord, Fate)> {
        let (entries, stuck) = (self.entries.borrow(), self.stuck.borrow());
        let mut best: Option<(&VolumeRecord, Fate)> = None;
        for record in entries.deleting().filter(|record| !stuck.contains(&record.id)) {
            let mut above = entries.children(record.layer);
            let fate = match (above.next(), above.len()) {
                (None, _) => return Some((record.clone(), Fate::Dropped)),
                (Some(only), 0) => Fate::MergedInto(only),
                // Tried again when one of them is gone.
                _ if self.kept_by(record) > 0 => continue,
                _ => Fate::Purged(entries.children(record.layer).collect()),
            };
            if best.as_ref().is_none_or(|(_, other)| fate.rank() < other.rank()) {
                best = Some((record, fate));
            }
        }
        best.map(|(record, fate)| (record.clone(), fate))
    }

    /// How many layers keep what was deleted from being freed any further.
    pub(super) fn kept_by(&self, record: &VolumeRecord) -> usize {
        let (entries, purged) = (self.entries.borrow(), self.purged.borrow());
        let above = entries.children(record.layer);
        let count = above.len();
        let is_purged = || purged.get(&record.id).is_some_and(|layers| above.eq(layers.iter().copied()));
        if count > 1 && is_purged() { count } else { 0 }
    }

    async fn free(&self, record: &VolumeRecord, fate: &Fate) -> Result<()> {
        let layer = record.layer;
        for shard in self.shards.iter() {
            let fate = fate.clone();
            let free = move |shard: Rc<Shard>| async move {
                match fate {
                    Fate::Dropped => shard.drop_layer(layer).await?,
                    Fate::MergedInto(into) => shard.merge_layer(layer, into).await?,
                    Fate::Purged(above) => shard.purge_layer(layer, &above).await?,
                }
                shard.flush().await
            };
            shard.call(free).await??;
        }
        match fate {
            Fate::Dropped => self.forget(record, None).await,
            Fate::MergedInto(into) => self.forget(record, Some(*into)).await,
            Fate::Purged(above) => {
                self.purged.borrow_mut().insert(record.id, above.clone());
                Ok(())
            }
        }
    }

    /// Takes the record of a layer that is gone away. What lay below the layer lies below the one above it now.
    async fn forget(&self, record: &VolumeRecord, into: Option<LayerId>) -> Result<()> {
        let _changing = self.changing.acquire().await;
        // The volume above may have moved on to another layer meanwhile: its new record says so.
        let above = into.and_then(|into| self.entries.borrow().owner(into).cloned());
        let above = above.map(|above| VolumeRecord { parent: record.parent, ..above });
        let changed: Vec<&VolumeRecord> = above.iter().collect();
        self.store(&changed, Some(record.id)).await?;
        if let Some(above) = above {
            let (layer, parent) = (above.layer, above.parent);
            self.on_shards(move |shard| shard.set_parent(layer, parent)).await?;
            // It has more now.
            self.purged.borrow_mut().remove(&above.id);
            self.update(above);
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
