//! Creating, listing, resizing and deleting volumes.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use format::limits::{BLOCK, VOLUME_MAX};
use format::{EventKind, LayerId, QosLimits, VolumeId, VolumeKind, VolumeRecord, VolumeSpread, VolumeState};
use reactor::{Buffer, Reactor};

use super::{AT, Catalogue, Pool, VolumeShared, check_name};
use crate::error::{Error, ErrorKind, Result};
use crate::fair::RateLimits;
use crate::shard::Shard;
use crate::volume::VolumeUid;

/// A volume to be made.
#[derive(Clone, Copy, Debug)]
pub struct NewVolume {
    /// Size in bytes.
    pub size: u64,
    /// Sector size that it offers: 512 or 4096 bytes.
    pub sector: u32,
    /// Keep room for all of it.
    pub thick: bool,
    /// How many of the pool's shards its blocks are dealt out to; all if not said.
    pub shards: Option<u16>,
    /// Seconds since 1970.
    pub now: u64,
}

/// A volume or snapshot, for lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeInfo {
    /// Its stable identity within the pool.
    pub uid: VolumeUid,
    /// Number: never that of another volume while a handle on this one lives.
    pub id: VolumeId,
    /// Name; of a snapshot, `volume@snapshot`.
    pub name: String,
    /// True if it is a snapshot.
    pub snapshot: bool,
    /// The snapshot that a clone was made of, while there is one.
    pub origin: Option<String>,
    /// Size in bytes.
    pub size: u64,
    /// Sector size that it offers, in bytes.
    pub sector: u32,
    /// Bytes of data that are its own: written since the snapshot below it was taken, or since it was cloned.
    pub stored: u64,
    /// Seconds since 1970 when it was created.
    pub created: u64,
    /// True while it is being deleted.
    pub deleting: bool,
    /// Of a deleted snapshot that holds no more than what others were built on, clones among them: how many these are. Zero otherwise.
    pub kept_by: usize,
    /// What it may take, and its weight beside others.
    pub qos: QosLimits,
    /// Room is kept for all of it.
    pub thick: bool,
    /// The shards that hold its blocks, by number even if they are all.
    pub spread: VolumeSpread,
    /// It could not be freed; the next opening tries again.
    pub stuck: bool,
}

/// Sums over all volumes and snapshots of a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VolumeTotals {
    /// Volumes and snapshots.
    pub count: u64,
    /// Bytes of data that they store.
    pub stored: u64,
    /// Bytes of their sizes.
    pub provisioned: u64,
}

/// Volumes that are listed at once, before the reactor serves other requests.
const LIST_STEP: usize = 256;

impl Catalogue {
    /// Returns all volumes and snapshots by name; of equal names, the one in use first.
    async fn list(&self) -> Result<Vec<VolumeInfo>> {
        let ids: Vec<VolumeId> = self.entries.borrow().records().map(|record| record.id).collect();
        let mut infos = Vec::with_capacity(ids.len());
        for some in ids.chunks(LIST_STEP) {
            infos.extend(self.infos(some).await?);
            // The shard of the catalogue serves requests in between.
            Reactor::current().yield_now().await;
        }
        infos.sort_by(|a, b| (&a.name, a.deleting).cmp(&(&b.name, b.deleting)));
        Ok(infos)
    }

    /// Returns the volume or snapshot of a name: the one in use if others of that name are being
    /// deleted.
    async fn named_info(&self, name: String) -> Result<Option<VolumeInfo>> {
        let id = {
            let entries = self.entries.borrow();
            let in_order = entries.named(&name).min_by_key(|record| record.state == VolumeState::Deleting);
            in_order.map(|record| record.id)
        };
        Ok(self.infos(id.as_slice()).await?.pop())
    }

    /// Returns these volumes and snapshots, without those that are gone.
    async fn infos(&self, ids: &[VolumeId]) -> Result<Vec<VolumeInfo>> {
        let records: Vec<VolumeRecord> = {
            let entries = self.entries.borrow();
            ids.iter().filter_map(|id| entries.get(*id)).cloned().collect()
        };
        let layers: Arc<[LayerId]> = records.iter().map(|record| record.layer).collect();
        let mut stored = vec![0; layers.len()];
        for shard in self.shards.iter() {
            let layers = layers.clone();
            let count = move |shard: Rc<Shard>| async move {
                layers.iter().map(|layer| shard.stored(*layer)).collect::<Vec<u64>>()
            };
            let counts = shard.call(count).await?;
            stored.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
        }
        Ok(records.iter().zip(stored).map(|(record, stored)| self.info(record, stored)).collect())
    }

    fn info(&self, record: &VolumeRecord, stored_blocks: u64) -> VolumeInfo {
        let entries = self.entries.borrow();
        let below = record.parent.and_then(|parent| entries.owner(parent));
        let is_origin = |below: &&VolumeRecord| {
            let own = below.name.split_once(AT).is_some_and(|(volume, _)| volume == record.name);
            below.state == VolumeState::Ready && record.kind == VolumeKind::Volume && !own
        };
        VolumeInfo {
            uid: VolumeUid::new(record.created, record.id),
            id: record.id,
            name: record.name.clone(),
            snapshot: record.kind == VolumeKind::Snapshot,
            origin: below.filter(is_origin).map(|below| below.name.clone()),
            size: record.size,
            sector: record.sector,
            stored: stored_blocks * BLOCK as u64,
            created: record.created,
            deleting: record.state == VolumeState::Deleting,
            kept_by: self.kept_by(record),
            qos: record.qos,
            thick: record.thick,
            spread: self.slices(record).spread(),
            stuck: self.stuck.borrow().contains(&record.id),
        }
    }

    /// Sums the sizes of all volumes and snapshots.
    async fn totals(&self) -> Result<VolumeTotals> {
        let (mut totals, layers) = {
            let entries = self.entries.borrow();
            let mut totals = VolumeTotals::default();
            for record in entries.records() {
                totals.count += 1;
                totals.provisioned = totals.provisioned.saturating_add(record.size);
            }
            let layers: Arc<[LayerId]> = entries.records().map(|record| record.layer).collect();
            (totals, layers)
        };
        for shard in self.shards.iter() {
            let layers = layers.clone();
            let sum = move |shard: Rc<Shard>| async move {
                layers.iter().map(|layer| shard.stored(*layer)).sum::<u64>()
            };
            totals.stored += shard.call(sum).await? * BLOCK as u64;
        }
        Ok(totals)
    }

    async fn create(&self, name: String, wanted: NewVolume) -> Result<()> {
        let NewVolume { size, sector, thick, shards, now } = wanted;
        check_name(&name)?;
        check_size(size, sector)?;
        let _changing = self.changing.acquire().await;
        self.check_free(&name)?;
        let record = VolumeRecord {
            id: self.free_id()?,
            name,
            kind: VolumeKind::Volume,
            state: VolumeState::Ready,
            size,
            sector,
            layer: self.new_layer(),
            parent: None,
            created: now,
            qos: QosLimits::default(),
            thick,
            spread: self.spread(shards)?,
        };
        self.keep_room(&record, "it").await?;
        if let Err(error) = self.store(&[&record], None).await {
            self.keep_no_room(record.layer).await?;
            return Err(error);
        }
        self.introduce(&record).await?;
        self.events.emit(EventKind::VolumeCreated, size, &record.name);
        self.insert(record);
        Ok(())
    }

    async fn resize(&self, name: String, size: u64, may_shrink: bool) -> Result<()> {
        let _changing = self.changing.acquire().await;
        let mut record = self.find(&name)?;
        let shared = self.shared(record.id)?;
        if shared.is_snapshot {
            return Err(Error::new(ErrorKind::ReadOnly, "a snapshot has the size that its volume had"));
        }
        check_size(size, shared.sector)?;
        let old = shared.size.load(Ordering::Acquire);
        if size < old && !may_shrink {
            let message = format!(
                "volume '{name}' has {old} bytes: making it smaller would cut data off; allow shrinking"
            );
            return Err(Error::new(ErrorKind::Invalid, message));
        }
        record.size = size;
        if size > old {
            // What lay behind an earlier, larger size must not come back.
            self.clear(&shared, old, size).await?;
            if let Err(error) = self.keep_room(&record, "its new size").await {
                self.promise(&VolumeRecord { size: old, ..record }).await?;
                return Err(error);
            }
        }
        self.store(&[&record], None).await?;
        shared.size.store(size, Ordering::Release);
        self.promise(&record).await?;
        self.update(record);
        if size < old {
            self.cut(&shared, size, old).await?;
        }
        self.events.emit(EventKind::VolumeResized, size, &name);
        Ok(())
    }

    /// Makes bytes `from..to` read as zeros, behind the end of the volume.
    async fn clear(&self, shared: &VolumeShared, from: u64, to: u64) -> Result<()> {
        let within = from % BLOCK as u64;
        if within != 0 {
            let (index, block) = shared.slices.locate(from / BLOCK as u64);
            let zeros = Buffer::zeroed(BLOCK - usize::try_from(within).unwrap_or(0));
            let (volume, span) = (shared.id, zeros.span());
            let at = usize::try_from(within).unwrap_or(0);
            if let Some(shard) = self.shards.get(index) {
                let clear =
                    move |shard: Rc<Shard>| async move { shard.write_bytes(volume, block, at, &span).await };
                shard.call(clear).await??;
            }
        }
        self.cut(shared, from, to).await?;
        self.flush().await
    }

    /// Frees the whole blocks in bytes `size..old`, behind the end of the volume.
    async fn cut(&self, shared: &VolumeShared, size: u64, old: u64) -> Result<()> {
        let (first, end) = (size.div_ceil(BLOCK as u64), old.div_ceil(BLOCK as u64));
        for (index, shard) in self.shards.iter().enumerate() {
            let slices = shared.slices;
            let (from, to) = (slices.local_bound(index, first), slices.local_bound(index, end));
            if from < to {
                let volume = shared.id;
                shard.call(move |shard| async move { shard.unmap(volume, from, to - from).await }).await??;
            }
        }
        Ok(())
    }

    /// Changes what a volume may take, at once.
    async fn set_qos_limits(&self, name: String, limits: QosLimits) -> Result<()> {
        let _changing = self.changing.acquire().await;
        let mut record = self.find(&name)?;
        let shared = self.shared(record.id)?;
        if shared.is_snapshot {
            return Err(Error::new(ErrorKind::ReadOnly, "a snapshot has no limits: set those of the volume"));
        }
        record.qos = limits;
        self.store(&[&record], None).await?;
        shared.rate_limiter.set(rate_limits(&limits));
        self.tell_weight(&record).await?;
        self.update(record);
        Ok(())
    }

    /// Tells every shard what a volume gets beside others.
    pub(super) async fn tell_weight(&self, record: &VolumeRecord) -> Result<()> {
        let (volume, weight) = (record.id, record.qos.weight);
        self.on_shards(move |shard| shard.set_weight(volume, weight)).await
    }

    /// Marks a volume or snapshot as deleted; its blocks are freed in the background.
    async fn delete(&self, name: String) -> Result<()> {
        let _changing = self.changing.acquire().await;
        let mut record = self.find(&name)?;
        let shared = self.shared(record.id)?;
        if self.handles(record.id) > 1 {
            return Err(Error::new(ErrorKind::Busy, format!("'{name}' is in use")));
        }
        let snapshots = self.entries.borrow().snapshots_of(&name);
        if snapshots > 0 {
            let message = format!("volume '{name}' has snapshots ({snapshots}): delete those first");
            return Err(Error::new(ErrorKind::Busy, message));
        }
        record.state = VolumeState::Deleting;
        // Before anything is waited for: nobody opens it from here on (F5).
        shared.gone.store(true, Ordering::Release);
        if let Err(error) = self.store(&[&record], None).await {
            shared.gone.store(false, Ordering::Release);
            return Err(error);
        }
        self.keep_no_room(record.layer).await?;
        self.update(record);
        self.untidy.notify();
        self.events.emit(EventKind::VolumeDeleted, 0, &name);
        Ok(())
    }
}

/// Returns the rate limits of a volume.
pub(super) fn rate_limits(limits: &QosLimits) -> RateLimits {
    RateLimits {
        operations: limits.operations,
        bytes: limits.bytes,
        burst: Duration::from_millis(limits.burst_ms.into()),
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

    /// Returns the volume or snapshot of a name; one that is being deleted only if no other one has
    /// the name.
    ///
    /// # Errors
    /// When the pool was closed.
    pub async fn volume_info(&self, name: &str) -> Result<Option<VolumeInfo>> {
        let name = name.to_owned();
        self.catalogue().call(|catalogue| async move { catalogue.named_info(name).await }).await?
    }

    /// Returns a volume or snapshot by its number.
    ///
    /// # Errors
    /// When the pool was closed.
    pub async fn volume_info_by_id(&self, id: VolumeId) -> Result<Option<VolumeInfo>> {
        let find = move |catalogue: Rc<Catalogue>| async move { catalogue.infos(&[id]).await };
        Ok(self.catalogue().call(find).await??.pop())
    }

    /// Returns sums over all volumes and snapshots.
    ///
    /// # Errors
    /// When the pool was closed.
    pub async fn volume_totals(&self) -> Result<VolumeTotals> {
        self.catalogue().call(|catalogue| async move { catalogue.totals().await }).await?
    }

    /// Creates a thin volume on all shards, of `size` bytes with sectors of 512 or 4096 bytes. `now` is in seconds since 1970.
    ///
    /// # Errors
    /// `Invalid` for a bad name or size, `Exists`, `NoSpace`.
    pub async fn create_volume(&self, name: &str, size: u64, sector: u32, now: u64) -> Result<()> {
        self.create_volume_as(name, NewVolume { size, sector, thick: false, shards: None, now }).await
    }

    /// Creates a volume.
    ///
    /// # Errors
    /// `Invalid` for a bad name, size or number of shards, `Exists`, `NoSpace`.
    pub async fn create_volume_as(&self, name: &str, wanted: NewVolume) -> Result<()> {
        let name = name.to_owned();
        self.catalogue().call(move |catalogue| async move { catalogue.create(name, wanted).await }).await?
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

    /// Changes what a volume may take, and what it gets beside others; from now on, on all cores together.
    ///
    /// # Errors
    /// `NotFound`; `ReadOnly` for a snapshot.
    pub async fn set_qos_limits(&self, name: &str, limits: QosLimits) -> Result<()> {
        let name = name.to_owned();
        let set = move |catalogue: Rc<Catalogue>| async move { catalogue.set_qos_limits(name, limits).await };
        self.catalogue().call(set).await?
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
