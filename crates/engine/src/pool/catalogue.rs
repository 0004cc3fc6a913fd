//! The catalogue: which volumes a pool has. One block a volume in a layer of its own, on shard 0.
//!
//! A change is one block, so it happens whole or not at all, and it is flushed before its caller is answered. A volume
//! is deleted in three steps, each durable before the next: marked, emptied, forgotten; an opening goes on with those
//! that a crash interrupted.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use format::limits::{BLOCK, VOLUME_MAX, VOLUMES_MAX};
use format::{LayerId, VolumeId, VolumeKind, VolumeRecord, VolumeState};
use reactor::{Buffer, Home, Reactor, Semaphore, WaitList};

use super::Pool;
use super::create::check_name;
use crate::error::{Error, ErrorKind, Result};
use crate::shard::Shard;
use crate::volume::Slices;

/// What every handle on an open volume shares.
#[derive(Debug)]
pub(crate) struct VolumeShared {
    pub(crate) id: VolumeId,
    pub(crate) name: String,
    pub(crate) layer: LayerId,
    pub(crate) sector: u32,
    pub(crate) size: AtomicU64,
    /// The volume was deleted: handles fail.
    pub(crate) gone: AtomicBool,
}

/// A volume, for lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeInfo {
    /// Name.
    pub name: String,
    /// Size in bytes.
    pub size: u64,
    /// Sector size that it offers, in bytes.
    pub sector: u32,
    /// Bytes of data that it stores.
    pub stored: u64,
    /// Seconds since 1970 when it was created.
    pub created: u64,
    /// True while it is being deleted.
    pub deleting: bool,
}

/// How long a deletion waits for space before it tries again.
const ERASE_AGAIN: std::time::Duration = std::time::Duration::from_millis(200);

struct Entry {
    record: VolumeRecord,
    shared: Arc<VolumeShared>,
}

/// See the module.
pub(crate) struct Catalogue {
    shard: Rc<Shard>,
    shards: Arc<[Home<Shard>]>,
    entries: RefCell<BTreeMap<VolumeId, Entry>>,
    next_layer: Cell<u32>,
    /// One change at a time.
    changing: Rc<Semaphore>,
    /// Deletions that go on.
    erasing: Cell<usize>,
    erased: WaitList,
    stopping: Cell<bool>,
}

impl Catalogue {
    /// Loads the catalogue and goes on with interrupted deletions in the background.
    ///
    /// # Errors
    /// When a record cannot be read.
    pub(crate) async fn load(shard: Rc<Shard>, shards: Arc<[Home<Shard>]>) -> Result<Rc<Self>> {
        let catalogue = Rc::new(Self {
            shard,
            shards,
            entries: RefCell::default(),
            next_layer: Cell::new(LayerId::FIRST_USER.get()),
            changing: Semaphore::new(1),
            erasing: Cell::new(0),
            erased: WaitList::default(),
            stopping: Cell::new(false),
        });
        let mut next = 0;
        while let Some(found) =
            catalogue.shard.next_stored(LayerId::SYSTEM, next, u64::from(VOLUMES_MAX)).await?
        {
            let block = Buffer::new(BLOCK);
            catalogue.shard.read(LayerId::SYSTEM, found, &block.span()).await?;
            let record = VolumeRecord::decode(block.as_slice()).map_err(|error| {
                Error::corrupt(
                    format!("catalogue record {found} is damaged"),
                    Default::default(),
                    Some(error),
                )
            })?;
            catalogue.insert(record);
            next = found + 1;
        }
        let deleting: Vec<VolumeId> = catalogue
            .entries
            .borrow()
            .values()
            .filter(|entry| entry.record.state == VolumeState::Deleting)
            .map(|entry| entry.record.id)
            .collect();
        for id in deleting {
            catalogue.clone().erase_later(id);
        }
        Ok(catalogue)
    }

    fn insert(&self, record: VolumeRecord) {
        self.next_layer.set(self.next_layer.get().max(record.layer.get() + 1));
        let shared = Arc::new(VolumeShared {
            id: record.id,
            name: record.name.clone(),
            layer: record.layer,
            sector: record.sector,
            size: AtomicU64::new(record.size),
            gone: AtomicBool::new(record.state == VolumeState::Deleting),
        });
        self.entries.borrow_mut().insert(record.id, Entry { record, shared });
    }

    /// A handle's share of a volume.
    pub(crate) fn open(&self, name: &str) -> Result<Arc<VolumeShared>> {
        let entries = self.entries.borrow();
        match entries.values().find(|entry| entry.record.name == name) {
            Some(entry) if entry.record.state == VolumeState::Deleting => {
                Err(Error::new(ErrorKind::Busy, format!("volume '{name}' is being deleted")))
            }
            Some(entry) => Ok(entry.shared.clone()),
            None => Err(Error::new(ErrorKind::NotFound, format!("no volume '{name}'"))),
        }
    }

    async fn list(&self) -> Result<Vec<VolumeInfo>> {
        let records: Vec<VolumeRecord> =
            self.entries.borrow().values().map(|entry| entry.record.clone()).collect();
        let mut infos = Vec::new();
        for record in records {
            let mut stored = 0;
            for shard in self.shards.iter() {
                let layer = record.layer;
                stored += shard.call(move |shard| async move { shard.stored(layer) }).await?;
            }
            infos.push(VolumeInfo {
                name: record.name,
                size: record.size,
                sector: record.sector,
                stored: stored * BLOCK as u64,
                created: record.created,
                deleting: record.state == VolumeState::Deleting,
            });
        }
        infos.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(infos)
    }

    async fn create(&self, name: String, size: u64, sector: u32, now: u64) -> Result<()> {
        check_name(&name)?;
        check_size(size, sector)?;
        let _changing = self.changing.acquire().await;
        let id = {
            let entries = self.entries.borrow();
            if entries.values().any(|entry| entry.record.name == name) {
                return Err(Error::new(ErrorKind::Exists, format!("there is a volume '{name}' already")));
            }
            (1..VOLUMES_MAX).map(VolumeId::new).find(|id| !entries.contains_key(id))
        };
        let Some(id) = id else {
            return Err(Error::new(ErrorKind::NoSpace, format!("a pool has at most {VOLUMES_MAX} volumes")));
        };
        let record = VolumeRecord {
            id,
            name,
            kind: VolumeKind::Volume,
            state: VolumeState::Ready,
            size,
            sector,
            layer: LayerId::new(self.next_layer.get()),
            parent: None,
            created: now,
        };
        self.store(&record).await?;
        self.insert(record);
        Ok(())
    }

    async fn resize(&self, name: String, size: u64, may_shrink: bool) -> Result<()> {
        let _changing = self.changing.acquire().await;
        let shared = self.open(&name)?;
        check_size(size, shared.sector)?;
        let old = shared.size.load(Ordering::Acquire);
        if size < old && !may_shrink {
            let message = format!(
                "volume '{name}' has {old} bytes: making it smaller would cut data off; allow shrinking"
            );
            return Err(Error::new(ErrorKind::Invalid, message));
        }
        let record = self.entries.borrow().get(&shared.id).map(|entry| entry.record.clone());
        let Some(mut record) = record else {
            return Err(Error::new(ErrorKind::NotFound, format!("no volume '{name}'")));
        };
        record.size = size;
        if size > old {
            // What lay behind an earlier, larger size must not come back.
            self.clear(&shared, old, size).await?;
        }
        self.store(&record).await?;
        shared.size.store(size, Ordering::Release);
        if let Some(entry) = self.entries.borrow_mut().get_mut(&shared.id) {
            entry.record = record;
        }
        if size < old {
            self.cut(&shared, size, old).await?;
        }
        Ok(())
    }

    /// Makes bytes `from..to` read as zeros, behind the end of the volume.
    async fn clear(&self, shared: &VolumeShared, from: u64, to: u64) -> Result<()> {
        let within = from % BLOCK as u64;
        if within != 0 {
            let (index, block) = Slices::new(self.shards.len()).place(from / BLOCK as u64);
            let zeros = Buffer::zeroed(BLOCK - usize::try_from(within).unwrap_or(0));
            let (layer, span) = (shared.layer, zeros.span());
            let at = usize::try_from(within).unwrap_or(0);
            if let Some(shard) = self.shards.get(index) {
                let clear =
                    move |shard: Rc<Shard>| async move { shard.write_part(layer, block, at, &span).await };
                shard.call(clear).await??;
            }
        }
        self.cut(shared, from, to).await?;
        for shard in self.shards.iter() {
            shard.call(|shard: Rc<Shard>| async move { shard.flush().await }).await??;
        }
        Ok(())
    }

    /// Frees the whole blocks in bytes `size..old`, behind the end of the volume.
    async fn cut(&self, shared: &VolumeShared, size: u64, old: u64) -> Result<()> {
        let (first, end) = (size.div_ceil(BLOCK as u64), old.div_ceil(BLOCK as u64));
        for (index, shard) in self.shards.iter().enumerate() {
            let slices = Slices::new(self.shards.len());
            let (from, to) = (slices.local_bound(index, first), slices.local_bound(index, end));
            if from < to {
                let layer = shared.layer;
                shard.call(move |shard| async move { shard.unmap(layer, from, to - from).await }).await??;
            }
        }
        Ok(())
    }

    /// Marks a volume as deleted; its blocks are freed in the background.
    async fn delete(self: Rc<Self>, name: String) -> Result<()> {
        let _changing = self.changing.acquire().await;
        let shared = self.open(&name)?;
        let handles = Arc::strong_count(&shared) - 2;
        if handles > 0 {
            return Err(Error::new(ErrorKind::Busy, format!("volume '{name}' is in use")));
        }
        let record = self.entries.borrow().get(&shared.id).map(|entry| entry.record.clone());
        let Some(mut record) = record else {
            return Err(Error::new(ErrorKind::NotFound, format!("no volume '{name}'")));
        };
        record.state = VolumeState::Deleting;
        self.store(&record).await?;
        shared.gone.store(true, Ordering::Release);
        if let Some(entry) = self.entries.borrow_mut().get_mut(&shared.id) {
            entry.record = record;
        }
        self.clone().erase_later(shared.id);
        Ok(())
    }

    fn erase_later(self: Rc<Self>, id: VolumeId) {
        self.erasing.set(self.erasing.get() + 1);
        let erase = async move {
            while let Err(error) = self.erase(id).await {
                // The record stays marked: another try, or the next opening, goes on.
                if self.stopping.get() {
                    break;
                }
                tracing::warn!(volume = %id, %error, "a deleted volume was not freed yet");
                if error.kind() != ErrorKind::NoSpace {
                    break;
                }
                Reactor::current().sleep(ERASE_AGAIN).await;
            }
            self.erasing.set(self.erasing.get() - 1);
            self.erased.wake_all();
        };
        Reactor::current().spawn(erase).detach();
    }

    /// Ends what goes on in the background; the shards have begun to stop.
    pub(crate) async fn stop(&self) {
        self.stopping.set(true);
        self.erased.until(|| (self.erasing.get() == 0).then_some(())).await;
    }

    async fn erase(&self, id: VolumeId) -> Result<()> {
        let layer = self.entries.borrow().get(&id).map(|entry| entry.record.layer);
        let Some(layer) = layer else { return Ok(()) };
        for shard in self.shards.iter() {
            let drop = move |shard: Rc<Shard>| async move {
                shard.drop_layer(layer).await?;
                shard.flush().await
            };
            shard.call(drop).await??;
        }
        let _changing = self.changing.acquire().await;
        self.shard.unmap(LayerId::SYSTEM, u64::from(id.get()), 1).await?;
        self.shard.flush().await?;
        self.entries.borrow_mut().remove(&id);
        Ok(())
    }

    /// Writes a record, durably.
    async fn store(&self, record: &VolumeRecord) -> Result<()> {
        let block = Buffer::copy_of(&record.encode());
        self.shard.write_meta(LayerId::SYSTEM, u64::from(record.id.get()), &block.span()).await?;
        self.shard.flush().await
    }
}

fn check_size(size: u64, sector: u32) -> Result<()> {
    let invalid = |message: String| Err(Error::new(ErrorKind::Invalid, message));
    if !matches!(sector, 512 | 4096) {
        return invalid(format!("sectors of {sector} bytes: 512 and 4096 are possible"));
    }
    if size == 0 {
        return invalid("a volume of 0 bytes".into());
    }
    if size > VOLUME_MAX {
        return invalid(format!("{size} bytes are more than the {VOLUME_MAX} that a volume may have"));
    }
    if !size.is_multiple_of(u64::from(sector)) {
        return invalid(format!("{size} bytes are no multiple of the sector size, {sector}"));
    }
    Ok(())
}

impl Pool {
    /// The volumes, by name.
    ///
    /// # Errors
    /// When the pool was closed.
    pub async fn volumes(&self) -> Result<Vec<VolumeInfo>> {
        self.catalogue().call(|catalogue| async move { catalogue.list().await }).await?
    }

    /// Creates a thin volume of `size` bytes with sectors of 512 or 4096 bytes. `now` is in seconds since 1970.
    ///
    /// # Errors
    /// `Invalid` for a bad name or size, `Exists`, `NoSpace`.
    pub async fn create_volume(&self, name: &str, size: u64, sector: u32, now: u64) -> Result<()> {
        let name = name.to_owned();
        let create =
            move |catalogue: Rc<Catalogue>| async move { catalogue.create(name, size, sector, now).await };
        self.catalogue().call(create).await?
    }

    /// Changes a volume's size. What lies behind a smaller end is gone, so that must be allowed.
    ///
    /// # Errors
    /// `NotFound`, `Invalid`.
    pub async fn resize_volume(&self, name: &str, size: u64, may_shrink: bool) -> Result<()> {
        let name = name.to_owned();
        let resize =
            move |catalogue: Rc<Catalogue>| async move { catalogue.resize(name, size, may_shrink).await };
        self.catalogue().call(resize).await?
    }

    /// Deletes a volume that nobody has open. Its name is free once its blocks are, in the background.
    ///
    /// # Errors
    /// `NotFound`, `Busy`.
    pub async fn delete_volume(&self, name: &str) -> Result<()> {
        let name = name.to_owned();
        self.catalogue().call(move |catalogue| async move { catalogue.delete(name).await }).await?
    }
}
