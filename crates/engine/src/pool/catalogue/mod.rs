//! The catalogue: the records of a pool's volumes and snapshots, one block each in a dedicated
//! layer of shard 0.
//!
//! A change is a single record of the log and therefore atomic, and it is flushed before its caller
//! returns. Every layer belongs to one entry, which also names the layer's parent. The shards
//! receive this layer tree from the catalogue and do not store it.
//!
//! Must not know: the storage format of shards.

mod contents;
mod entries;
mod reclaim;
mod retired;
mod snapshots;
mod spread;
mod thick;
mod volumes;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

use format::limits::{BLOCK, NAME_MAX, VOLUMES_MAX};
use format::{FormatError, LayerId, VolumeId, VolumeKind, VolumeRecord, VolumeState};
use reactor::{Buffer, Handle, Notify, Reactor, Semaphore, WaitList};

use super::Pool;
use super::create::check_name;
use crate::error::{Error, ErrorKind, Result};
use crate::events::Events;
use crate::fair::RateLimiter;
use crate::join_all::join_all;
use crate::shard::Shard;
use crate::slices::Slices;
use crate::volume_uid::VolumeUid;
pub use contents::{ChangedRange, VolumeUsage};
use entries::VolumeTable;
use retired::RetiredIds;
pub use volumes::{NewVolume, VolumeInfo, VolumeTotals};

/// Separates the volume's name and the snapshot's name.
const SEPARATOR: char = '@';

/// State shared by all handles on a volume.
#[derive(Debug)]
pub(crate) struct VolumeShared {
    pub(crate) id: VolumeId,
    pub(crate) uid: VolumeUid,
    pub(crate) name: String,
    pub(crate) sector: u32,
    pub(crate) is_snapshot: bool,
    /// The striping of the blocks over shards.
    pub(crate) slices: Slices,
    pub(crate) size: AtomicU64,
    /// True once the volume is deleted: handles fail.
    pub(crate) deleted: AtomicBool,
    /// The rate limits.
    pub(crate) rate_limiter: RateLimiter,
}

/// The catalogue of an open pool; see the module.
pub(crate) struct Catalogue {
    shard: Rc<Shard>,
    shards: Arc<[Handle<Shard>]>,
    events: Arc<Events>,
    entries: RefCell<VolumeTable>,
    /// Numbers of deleted volumes that handles may still refer to.
    retired: RefCell<RetiredIds>,
    next_layer: Cell<u32>,
    /// Serializes changes.
    changing: Rc<Semaphore>,
    /// Signalled when there are deleted layers to free.
    reclaim_requested: Notify,
    /// Volumes that could not be freed. The next open tries again.
    stuck: RefCell<BTreeSet<VolumeId>>,
    /// Deleted snapshots that hold only blocks visible through these child layers.
    purged: RefCell<BTreeMap<VolumeId, Vec<LayerId>>>,
    stopping: Cell<bool>,
    /// True until [`Catalogue::reclaim`] has ended.
    reclaiming: Cell<bool>,
    reclaim_ended: WaitList,
}

impl Catalogue {
    /// Loads the catalogue, passes the layer tree to the shards, and resumes interrupted deletions
    /// in the background.
    ///
    /// # Errors
    /// When a record cannot be read.
    pub(crate) async fn load(
        shard: Rc<Shard>,
        shards: Arc<[Handle<Shard>]>,
        events: Arc<Events>,
    ) -> Result<Rc<Self>> {
        let catalogue = Rc::new(Self {
            shard,
            shards,
            events,
            entries: RefCell::default(),
            retired: RefCell::default(),
            next_layer: Cell::new(LayerId::FIRST_USER.get()),
            changing: Semaphore::new(1),
            reclaim_requested: Notify::default(),
            stuck: RefCell::default(),
            purged: RefCell::default(),
            stopping: Cell::new(false),
            reclaiming: Cell::new(true),
            reclaim_ended: WaitList::default(),
        });
        let mut next = 0;
        while let Some(found) =
            catalogue.shard.next_stored(LayerId::SYSTEM, next, u64::from(VOLUMES_MAX)).await?
        {
            let block = Buffer::new(BLOCK);
            catalogue.shard.read_layer(LayerId::SYSTEM, found, &block.span()).await?;
            catalogue.insert(catalogue.decode(found, block.as_slice())?);
            next = found + 1;
        }
        catalogue.activate_all_layers().await?;
        Reactor::current().spawn(catalogue.clone().reclaim()).detach();
        catalogue.reclaim_requested.notify();
        Ok(catalogue)
    }

    /// Decodes block `number` of the catalogue.
    fn decode(&self, number: u64, block: &[u8]) -> Result<VolumeRecord> {
        let damaged = |error| {
            let message = format!("catalogue record {number} is damaged");
            Error::corrupt(message, Default::default(), Some(error))
        };
        let record = VolumeRecord::decode(block).map_err(damaged)?;
        match record.spread.fits(self.shards.len()) {
            true => Ok(record),
            false => Err(damaged(FormatError::Invalid("volume spread"))),
        }
    }

    /// Activates the layers of all volumes on every shard, and reserves layer numbers that shards
    /// already use.
    async fn activate_all_layers(&self) -> Result<()> {
        let known: Vec<_> = self
            .records()
            .map(|record| (record.id, record.layer, record.parent, record.qos.weight))
            .collect();
        for shard in self.shards.iter() {
            let known = known.clone();
            let activate = move |shard: Rc<Shard>| async move {
                for (volume, layer, parent, weight) in known {
                    shard.set_active_layer(volume, layer, parent);
                    shard.set_weight(volume, weight);
                }
                shard.last_layer()
            };
            if let Some(last) = shard.call(activate).await? {
                self.next_layer.set(self.next_layer.get().max(last.get() + 1));
            }
        }
        for record in self.records().filter(VolumeRecord::reserves_space) {
            self.reserve(&record).await?;
        }
        Ok(())
    }

    /// Stops the reclaim task. The shards are already stopping.
    pub(crate) async fn stop(&self) {
        self.stopping.set(true);
        self.reclaim_requested.notify();
        self.reclaim_ended.until(|| (!self.reclaiming.get()).then_some(())).await;
    }

    fn insert(&self, record: VolumeRecord) {
        self.next_layer.set(self.next_layer.get().max(record.layer.get() + 1));
        let shared = Arc::new(VolumeShared {
            id: record.id,
            uid: VolumeUid::new(record.created, record.id),
            name: record.name.clone(),
            sector: record.sector,
            is_snapshot: record.kind == VolumeKind::Snapshot,
            slices: self.slices(&record),
            size: AtomicU64::new(record.size),
            deleted: AtomicBool::new(record.state == VolumeState::Deleting),
            rate_limiter: RateLimiter::new(volumes::rate_limits(&record.qos)),
        });
        self.entries.borrow_mut().insert(record, shared);
    }

    /// Returns the striping of a volume.
    fn slices(&self, record: &VolumeRecord) -> Slices {
        Slices::of(record.spread, self.shards.len())
    }

    /// Replaces a record in memory.
    fn update(&self, record: VolumeRecord) {
        self.entries.borrow_mut().replace(record);
    }

    /// Returns all records, including those under deletion.
    fn records(&self) -> impl Iterator<Item = VolumeRecord> {
        let records: Vec<_> = self.entries.borrow().records().cloned().collect();
        records.into_iter()
    }

    /// Returns the record of a volume or snapshot that is not under deletion.
    fn find(&self, name: &str) -> Result<VolumeRecord> {
        let entries = self.entries.borrow();
        let noun = if name.contains(SEPARATOR) { "snapshot" } else { "volume" };
        match entries.named(name).find(|record| record.state == VolumeState::Ready) {
            Some(record) => Ok(record.clone()),
            None if entries.named(name).next().is_some() => {
                Err(Error::new(ErrorKind::Busy, format!("{noun} '{name}' is being deleted")))
            }
            None => Err(Error::new(ErrorKind::NotFound, format!("no {noun} '{name}'"))),
        }
    }

    /// Opens a volume or snapshot: returns the state shared by its handles.
    pub(crate) fn open(&self, name: &str) -> Result<Arc<VolumeShared>> {
        let record = self.find(name)?;
        self.shared(record.id)
    }

    fn shared(&self, id: VolumeId) -> Result<Arc<VolumeShared>> {
        let entries = self.entries.borrow();
        match entries.shared(id) {
            Some(shared) if entries.is_deleted(id) => {
                Err(Error::new(ErrorKind::Busy, format!("'{}' is being deleted", shared.name)))
            }
            Some(shared) => Ok(shared.clone()),
            None => Err(Error::new(ErrorKind::NotFound, format!("no volume {id}"))),
        }
    }

    /// Returns the number of open handles on a volume.
    fn handles(&self, id: VolumeId) -> usize {
        self.entries.borrow().shared(id).map_or(0, |shared| Arc::strong_count(shared) - 1)
    }

    /// Refuses a name that is in use, including the name of a volume under deletion.
    fn check_name_unused(&self, name: &str) -> Result<()> {
        let uses_name = |record: &VolumeRecord| {
            record.state != VolumeState::Deleting || record.kind != VolumeKind::Snapshot
        };
        if self.entries.borrow().named(name).any(uses_name) {
            let noun = if name.contains(SEPARATOR) { "snapshot" } else { "volume" };
            return Err(Error::new(ErrorKind::Exists, format!("{noun} '{name}' already exists")));
        }
        Ok(())
    }

    fn free_id(&self) -> Result<VolumeId> {
        let entries = self.entries.borrow();
        let free = self.retired.borrow_mut().next_free(|id| entries.contains(id));
        free.ok_or_else(too_many_volumes)
    }

    /// Returns numbers for `count` new volumes and snapshots.
    fn free_ids(&self, count: usize) -> Result<Vec<VolumeId>> {
        let entries = self.entries.borrow();
        let mut ids: Vec<VolumeId> = Vec::with_capacity(count);
        while ids.len() < count {
            let is_used = |id| entries.contains(id) || ids.contains(&id);
            let free = self.retired.borrow_mut().next_free(is_used);
            ids.push(free.ok_or_else(too_many_volumes)?);
        }
        Ok(ids)
    }

    fn new_layer(&self) -> LayerId {
        let layer = self.next_layer.get();
        self.next_layer.set(layer + 1);
        LayerId::new(layer)
    }

    /// Sets the layer that a volume writes to on every shard. Held writes continue there.
    async fn activate_layer(&self, record: &VolumeRecord) -> Result<()> {
        let (volume, layer, parent) = (record.id, record.layer, record.parent);
        self.on_shards(move |shard| shard.set_active_layer(volume, layer, parent)).await
    }

    /// Applies a change to all shards concurrently.
    async fn on_shards(&self, change: impl Fn(&Shard) + Clone + Send + 'static) -> Result<()> {
        join_all(self.shards.iter().map(|shard| {
            let change = change.clone();
            async move { Ok(shard.call(move |shard: Rc<Shard>| async move { change(&shard) }).await?) }
        }))
        .await
    }

    async fn flush(&self) -> Result<()> {
        let flush = |shard: Rc<Shard>| async move { shard.flush().await };
        join_all(self.shards.iter().map(|shard| async move { shard.call(flush).await? })).await
    }

    /// Writes records and removes one, atomically and durably.
    async fn store(&self, records: &[&VolumeRecord], removed: Option<VolumeId>) -> Result<()> {
        let block = |id: VolumeId| u64::from(id.get());
        let written: Vec<_> = records
            .iter()
            .map(|record| (block(record.id), Buffer::copy_of(&record.encode()).span()))
            .collect();
        let removed: Vec<_> = removed.map(block).into_iter().collect();
        self.shard.change_system(LayerId::SYSTEM, &written, &removed).await?;
        self.shard.flush().await
    }
}

fn too_many_volumes() -> Error {
    Error::new(ErrorKind::NoSpace, format!("a pool has at most {VOLUMES_MAX} volumes and snapshots"))
}

/// Splits `volume@snapshot` into the volume's name and the snapshot's name.
fn split_name(name: &str) -> Result<(&str, &str)> {
    match name.split_once(SEPARATOR) {
        Some((volume, snapshot)) => {
            check_name(volume)?;
            check_name(snapshot)?;
            Ok((volume, snapshot))
        }
        None => {
            let message = format!(
                "'{name}' is not a snapshot name: use volume@snapshot, with up to {NAME_MAX} bytes each"
            );
            Err(Error::new(ErrorKind::Invalid, message))
        }
    }
}

#[cfg(test)]
mod tests;
