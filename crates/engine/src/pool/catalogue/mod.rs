//! The catalogue: which volumes and snapshots a pool has. One block each in a layer of its own, on shard 0.
//!
//! A change is one record of the log, so it happens whole or not at all, and it is flushed before its caller is answered. Every layer
//! belongs to one entry, and what lies below it is named there; the shards are told, and keep no such thing themselves.
//!
//! Must not know: how shards store anything.

mod contents;
mod entries;
mod retired;
mod snapshots;
mod spread;
mod thick;
mod tidy;
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
use crate::shard::Shard;
use crate::volume::{Slices, VolumeUid, join_all};
pub use contents::{Change, LostRange, VolumeUsage};
use entries::VolumeTable;
use retired::RetiredIds;
pub use volumes::{NewVolume, VolumeInfo, VolumeTotals};

/// Between a volume's name and its snapshot's.
const AT: char = '@';

/// What every handle on an open volume shares.
#[derive(Debug)]
pub(crate) struct VolumeShared {
    pub(crate) id: VolumeId,
    pub(crate) uid: VolumeUid,
    pub(crate) name: String,
    pub(crate) sector: u32,
    pub(crate) is_snapshot: bool,
    /// Where its blocks are.
    pub(crate) slices: Slices,
    pub(crate) size: AtomicU64,
    /// The volume was deleted: handles fail.
    pub(crate) gone: AtomicBool,
    /// What it may take.
    pub(crate) rate_limiter: RateLimiter,
}

/// See the module.
pub(crate) struct Catalogue {
    shard: Rc<Shard>,
    shards: Arc<[Handle<Shard>]>,
    events: Arc<Events>,
    entries: RefCell<VolumeTable>,
    /// Numbers of deleted volumes that handles may still name, and where the search for a free number goes on.
    retired: RefCell<RetiredIds>,
    next_layer: Cell<u32>,
    /// One change at a time.
    changing: Rc<Semaphore>,
    /// There is something to free.
    untidy: Notify,
    /// What could not be freed, for the next opening.
    stuck: RefCell<BTreeSet<VolumeId>>,
    /// What was rid of what none of these layers above it shows.
    purged: RefCell<BTreeMap<VolumeId, Vec<LayerId>>>,
    stopping: Cell<bool>,
    /// [`Catalogue::tidy`] has not ended.
    tidying: Cell<bool>,
    tidied: WaitList,
}

impl Catalogue {
    /// Loads the catalogue, tells the shards, and goes on with interrupted deletions in the background.
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
            untidy: Notify::default(),
            stuck: RefCell::default(),
            purged: RefCell::default(),
            stopping: Cell::new(false),
            tidying: Cell::new(true),
            tidied: WaitList::default(),
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
        catalogue.introduce_all().await?;
        Reactor::current().spawn(catalogue.clone().tidy()).detach();
        catalogue.untidy.notify();
        Ok(catalogue)
    }

    /// What block `number` of the catalogue holds.
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

    /// Tells every shard of every volume, and learns from them which numbers of layers are taken.
    async fn introduce_all(&self) -> Result<()> {
        let known: Vec<_> = self
            .records()
            .map(|record| (record.id, record.layer, record.parent, record.qos.weight))
            .collect();
        for shard in self.shards.iter() {
            let known = known.clone();
            let introduce = move |shard: Rc<Shard>| async move {
                for (volume, layer, parent, weight) in known {
                    shard.set_active_layer(volume, layer, parent);
                    shard.set_weight(volume, weight);
                }
                shard.last_layer()
            };
            if let Some(last) = shard.call(introduce).await? {
                self.next_layer.set(self.next_layer.get().max(last.get() + 1));
            }
        }
        for record in self.records().filter(VolumeRecord::reserves_space) {
            self.promise(&record).await?;
        }
        Ok(())
    }

    /// Ends the catalogue's task; the shards have begun to stop.
    pub(crate) async fn stop(&self) {
        self.stopping.set(true);
        self.untidy.notify();
        self.tidied.until(|| (!self.tidying.get()).then_some(())).await;
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
            gone: AtomicBool::new(record.state == VolumeState::Deleting),
            rate_limiter: RateLimiter::new(volumes::rate_limits(&record.qos)),
        });
        self.entries.borrow_mut().insert(record, shared);
    }

    /// Where a volume's blocks are.
    fn slices(&self, record: &VolumeRecord) -> Slices {
        Slices::of(record.spread, self.shards.len())
    }

    /// Takes a changed record in, in place of the one before.
    fn update(&self, record: VolumeRecord) {
        self.entries.borrow_mut().replace(record);
    }

    /// Every record, those of what is being deleted included.
    fn records(&self) -> impl Iterator<Item = VolumeRecord> {
        let records: Vec<_> = self.entries.borrow().records().cloned().collect();
        records.into_iter()
    }

    /// The record of what is called `name` and in use.
    fn find(&self, name: &str) -> Result<VolumeRecord> {
        let entries = self.entries.borrow();
        let what = if name.contains(AT) { "snapshot" } else { "volume" };
        match entries.named(name).find(|record| record.state == VolumeState::Ready) {
            Some(record) => Ok(record.clone()),
            None if entries.named(name).next().is_some() => {
                Err(Error::new(ErrorKind::Busy, format!("{what} '{name}' is being deleted")))
            }
            None => Err(Error::new(ErrorKind::NotFound, format!("no {what} '{name}'"))),
        }
    }

    /// A handle's share of a volume or snapshot.
    pub(crate) fn open(&self, name: &str) -> Result<Arc<VolumeShared>> {
        let record = self.find(name)?;
        self.shared(record.id)
    }

    fn shared(&self, id: VolumeId) -> Result<Arc<VolumeShared>> {
        let entries = self.entries.borrow();
        match entries.shared(id) {
            Some(shared) if entries.is_gone(id) => {
                Err(Error::new(ErrorKind::Busy, format!("'{}' is being deleted", shared.name)))
            }
            Some(shared) => Ok(shared.clone()),
            None => Err(Error::new(ErrorKind::NotFound, format!("no volume {id}"))),
        }
    }

    /// Handles on a volume that is open.
    fn handles(&self, id: VolumeId) -> usize {
        self.entries.borrow().shared(id).map_or(0, |shared| Arc::strong_count(shared) - 1)
    }

    /// Refuses a name that is taken by something in use, and one that a volume is being deleted by.
    fn check_free(&self, name: &str) -> Result<()> {
        let taken = |record: &VolumeRecord| {
            let going = record.state == VolumeState::Deleting && record.kind == VolumeKind::Snapshot;
            !going
        };
        if self.entries.borrow().named(name).any(taken) {
            let what = if name.contains(AT) { "snapshot" } else { "volume" };
            return Err(Error::new(ErrorKind::Exists, format!("there is a {what} '{name}' already")));
        }
        Ok(())
    }

    fn free_id(&self) -> Result<VolumeId> {
        let entries = self.entries.borrow();
        let free = self.retired.borrow_mut().next_free(|id| entries.contains(id));
        free.ok_or_else(|| {
            let message = format!("a pool has at most {VOLUMES_MAX} volumes and snapshots");
            Error::new(ErrorKind::NoSpace, message)
        })
    }

    fn new_layer(&self) -> LayerId {
        let layer = self.next_layer.get();
        self.next_layer.set(layer + 1);
        LayerId::new(layer)
    }

    /// Tells every shard which layer a volume uses; writes that were held back go on there.
    async fn introduce(&self, record: &VolumeRecord) -> Result<()> {
        let (volume, layer, parent) = (record.id, record.layer, record.parent);
        self.on_shards(move |shard| shard.set_active_layer(volume, layer, parent)).await
    }

    /// Does the same on all shards, side by side.
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

    /// Writes records and takes one away, in one step and durably.
    async fn store(&self, records: &[&VolumeRecord], gone: Option<VolumeId>) -> Result<()> {
        let block = |id: VolumeId| u64::from(id.get());
        let written: Vec<_> = records
            .iter()
            .map(|record| (block(record.id), Buffer::copy_of(&record.encode()).span()))
            .collect();
        let gone: Vec<_> = gone.map(block).into_iter().collect();
        self.shard.change_system(LayerId::SYSTEM, &written, &gone).await?;
        self.shard.flush().await
    }
}

/// The volume's and the snapshot's own name in `volume@snapshot`.
fn split_name(name: &str) -> Result<(&str, &str)> {
    match name.split_once(AT) {
        Some((volume, snapshot)) => {
            check_name(volume)?;
            check_name(snapshot)?;
            Ok((volume, snapshot))
        }
        None => {
            let message = format!(
                "'{name}' names no snapshot: those are called volume@name, up to {NAME_MAX} bytes each"
            );
            Err(Error::new(ErrorKind::Invalid, message))
        }
    }
}

#[cfg(test)]
mod tests;
