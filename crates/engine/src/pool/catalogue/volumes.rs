//! Creating, listing, resizing and deleting volumes.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use format::limits::{BLOCK, VOLUME_MAX};
use format::{EventKind, LayerId, QosLimits, VolumeId, VolumeKind, VolumeRecord, VolumeSpread, VolumeState};
use futures_util::future::LocalBoxFuture;
use reactor::{Buffer, Reactor};

use super::{Catalogue, Pool, SEPARATOR, VolumeShared, check_name};
use crate::error::{Error, ErrorKind, Result};
use crate::fair::RateLimits;
use crate::invariant::to_index;
use crate::shard::Shard;
use crate::volume_uid::VolumeUid;

/// Properties of a new volume.
#[derive(Clone, Copy, Debug)]
pub struct NewVolume {
    /// Size in bytes.
    pub size: u64,
    /// Sector size: 512 or 4096 bytes.
    pub sector: u32,
    /// Reserve the full size (thick provisioning).
    pub thick: bool,
    /// Number of shards to stripe the volume over; all shards of the pool if absent.
    pub shards: Option<u16>,
    /// The current time, in seconds since 1970.
    pub now: u64,
}

/// Properties of a volume or snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeInfo {
    /// The stable identity within the pool.
    pub uid: VolumeUid,
    /// The number. It is not reused while a handle on the volume exists.
    pub id: VolumeId,
    /// Name; of a snapshot, `volume@snapshot`.
    pub name: String,
    /// True if it is a snapshot.
    pub snapshot: bool,
    /// The snapshot that a clone was created from, while the snapshot exists.
    pub origin: Option<String>,
    /// Size in bytes.
    pub size: u64,
    /// Sector size in bytes.
    pub sector: u32,
    /// Bytes of data in the volume's own layer: written since its latest snapshot, or since it was
    /// cloned.
    pub stored: u64,
    /// Time of creation, in seconds since 1970.
    pub created: u64,
    /// True while the volume is being deleted.
    pub deleting: bool,
    /// For a deleted snapshot that is retained for layers based on it, such as clones: the number
    /// of these layers. Otherwise zero.
    pub retained_by: usize,
    /// The rate limits and the weight.
    pub qos: QosLimits,
    /// True if the full size is reserved.
    pub thick: bool,
    /// The shards that hold the volume, with an explicit number of shards.
    pub spread: VolumeSpread,
    /// True if freeing the deleted volume failed. The next open tries again.
    pub stuck: bool,
}

/// Sums over all volumes and snapshots of a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VolumeTotals {
    /// Number of volumes and snapshots.
    pub count: u64,
    /// Bytes of stored data.
    pub stored: u64,
    /// Sum of the sizes in bytes.
    pub provisioned: u64,
}

/// Volumes listed between two yields to other tasks of the reactor.
const LIST_STEP: usize = 256;

impl Catalogue {
    /// Returns all volumes and snapshots by name. Of equal names, the volume that is not under
    /// deletion is first.
    async fn list(&self) -> Result<Vec<VolumeInfo>> {
        let ids: Vec<VolumeId> = self.entries.borrow().records().map(|record| record.id).collect();
        let mut infos = Vec::with_capacity(ids.len());
        for chunk in ids.chunks(LIST_STEP) {
            infos.extend(self.infos(chunk).await?);
            // Lets the shard of the catalogue serve requests in between.
            Reactor::current().yield_now().await;
        }
        infos.sort_by(|a, b| (&a.name, a.deleting).cmp(&(&b.name, b.deleting)));
        Ok(infos)
    }

    /// Returns the volume or snapshot of a name. A live one takes precedence over
    /// volumes under deletion.
    async fn named_info(&self, name: String) -> Result<Option<VolumeInfo>> {
        let id = {
            let entries = self.entries.borrow();
            let in_order = entries.named(&name).min_by_key(|record| record.state == VolumeState::Deleting);
            in_order.map(|record| record.id)
        };
        Ok(self.infos(id.as_slice()).await?.pop())
    }

    /// Returns the volumes and snapshots with these numbers, as far as they exist.
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
        let parent = record.parent.and_then(|parent| entries.owner(parent));
        let is_origin = |parent: &&VolumeRecord| {
            let own = parent.name.split_once(SEPARATOR).is_some_and(|(volume, _)| volume == record.name);
            parent.state == VolumeState::Ready && record.kind == VolumeKind::Volume && !own
        };
        VolumeInfo {
            uid: VolumeUid::new(record.created, record.id),
            id: record.id,
            name: record.name.clone(),
            snapshot: record.kind == VolumeKind::Snapshot,
            origin: parent.filter(is_origin).map(|parent| parent.name.clone()),
            size: record.size,
            sector: record.sector,
            stored: stored_blocks * BLOCK as u64,
            created: record.created,
            deleting: record.state == VolumeState::Deleting,
            retained_by: self.retained_by(record),
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

    async fn create(&self, name: String, volume: NewVolume) -> Result<()> {
        let NewVolume { size, sector, thick, shards, now } = volume;
        check_name(&name)?;
        check_size(size, sector)?;
        let _changing = self.changing.acquire().await;
        self.check_name_unused(&name)?;
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
            spread: self.choose_spread(shards)?,
        };
        self.try_reserve(&record, "it").await?;
        if let Err(error) = self.store(&[&record], None).await {
            self.release_reservation(record.layer).await?;
            return Err(error);
        }
        self.activate_layer(&record).await?;
        self.events.emit(EventKind::VolumeCreated, size, &record.name);
        self.insert(record);
        Ok(())
    }

    async fn resize(&self, name: String, size: u64, may_shrink: bool) -> Result<()> {
        let _changing = self.changing.acquire().await;
        let mut record = self.find(&name)?;
        let shared = self.shared(record.id)?;
        if shared.is_snapshot {
            return Err(Error::new(ErrorKind::ReadOnly, "a snapshot cannot be resized"));
        }
        check_size(size, shared.sector)?;
        let old = shared.size.load(Ordering::Acquire);
        if size < old && !may_shrink {
            let message = format!(
                "volume '{name}' has {old} bytes: shrinking it discards data and must be allowed explicitly"
            );
            return Err(Error::new(ErrorKind::Invalid, message));
        }
        record.size = size;
        if size > old {
            // Data beyond the end, from an earlier larger size, must not become visible again.
            self.zero_range(&shared, old, size).await?;
            if let Err(error) = self.try_reserve(&record, "its new size").await {
                self.reserve(&VolumeRecord { size: old, ..record }).await?;
                return Err(error);
            }
        }
        self.store(&[&record], None).await?;
        shared.size.store(size, Ordering::Release);
        self.reserve(&record).await?;
        self.update(record);
        if size < old {
            self.free_range(&shared, size, old).await?;
        }
        self.events.emit(EventKind::VolumeResized, size, &name);
        Ok(())
    }

    /// Zeroes bytes `from..to`, which are beyond the end of the volume.
    async fn zero_range(&self, shared: &VolumeShared, from: u64, to: u64) -> Result<()> {
        let within = from % BLOCK as u64;
        if within != 0 {
            let (index, block) = shared.slices.locate(from / BLOCK as u64);
            let zeros = Buffer::zeroed(BLOCK - to_index(within));
            let (volume, span) = (shared.id, zeros.span());
            let at = to_index(within);
            if let Some(shard) = self.shards.get(index) {
                let zero =
                    move |shard: Rc<Shard>| async move { shard.write_bytes(volume, block, at, &span).await };
                shard.call(zero).await??;
            }
        }
        self.free_range(shared, from, to).await?;
        self.flush().await
    }

    /// Frees the whole blocks in bytes `size..old`, which are beyond the end of the volume.
    async fn free_range(&self, shared: &VolumeShared, size: u64, old: u64) -> Result<()> {
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

    /// Changes the QoS limits of a volume, effective immediately.
    async fn set_qos_limits(&self, name: String, limits: QosLimits) -> Result<()> {
        let _changing = self.changing.acquire().await;
        let mut record = self.find(&name)?;
        let shared = self.shared(record.id)?;
        if shared.is_snapshot {
            return Err(Error::new(
                ErrorKind::ReadOnly,
                "a snapshot has no QoS limits: set the limits of the volume",
            ));
        }
        record.qos = limits;
        self.store(&[&record], None).await?;
        shared.rate_limiter.set(rate_limits(&limits));
        self.apply_weight(&record).await?;
        self.update(record);
        Ok(())
    }

    /// Sets the weight of a volume on every shard.
    pub(super) async fn apply_weight(&self, record: &VolumeRecord) -> Result<()> {
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
            let message = format!("volume '{name}' has snapshots ({snapshots}): delete the snapshots first");
            return Err(Error::new(ErrorKind::Busy, message));
        }
        record.state = VolumeState::Deleting;
        // Set before the first await, so that no handle can be opened from here on (F5).
        shared.deleted.store(true, Ordering::Release);
        if let Err(error) = self.store(&[&record], None).await {
            shared.deleted.store(false, Ordering::Release);
            return Err(error);
        }
        self.release_reservation(record.layer).await?;
        self.update(record);
        self.reclaim_requested.notify();
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
        return invalid(format!("sector size {sector} is invalid: it must be 512 or 4096"));
    }
    if size == 0 {
        return invalid("the volume size must not be 0".into());
    }
    if size > VOLUME_MAX {
        return invalid(format!("volume size {size} is too large: the maximum is {VOLUME_MAX} bytes"));
    }
    if !size.is_multiple_of(u64::from(sector)) {
        return invalid(format!("volume size {size} is not a multiple of the sector size {sector}"));
    }
    Ok(())
}

impl Pool {
    /// Returns all volumes and snapshots, by name.
    ///
    /// # Errors
    /// When the pool was closed.
    pub fn volumes(&self) -> LocalBoxFuture<'_, Result<Vec<VolumeInfo>>> {
        Box::pin(
            async move { self.catalogue().call(|catalogue| async move { catalogue.list().await }).await? },
        )
    }

    /// Returns the volume or snapshot of a name. A live one takes precedence over
    /// volumes under deletion.
    ///
    /// # Errors
    /// When the pool was closed.
    pub fn volume_info<'a>(&'a self, name: &'a str) -> LocalBoxFuture<'a, Result<Option<VolumeInfo>>> {
        Box::pin(async move {
            let name = name.to_owned();
            self.catalogue().call(|catalogue| async move { catalogue.named_info(name).await }).await?
        })
    }

    /// Returns a volume or snapshot by its number.
    ///
    /// # Errors
    /// When the pool was closed.
    pub fn volume_info_by_id(&self, id: VolumeId) -> LocalBoxFuture<'_, Result<Option<VolumeInfo>>> {
        Box::pin(async move {
            let find = move |catalogue: Rc<Catalogue>| async move { catalogue.infos(&[id]).await };
            Ok(self.catalogue().call(find).await??.pop())
        })
    }

    /// Returns sums over all volumes and snapshots.
    ///
    /// # Errors
    /// When the pool was closed.
    pub fn volume_totals(&self) -> LocalBoxFuture<'_, Result<VolumeTotals>> {
        Box::pin(
            async move { self.catalogue().call(|catalogue| async move { catalogue.totals().await }).await? },
        )
    }

    /// Creates a thin volume on all shards, of `size` bytes with sectors of 512 or 4096 bytes.
    /// `now` is in seconds since 1970.
    ///
    /// # Errors
    /// `Invalid` for a bad name or size, `Exists`, `NoSpace`.
    pub fn create_volume<'a>(
        &'a self,
        name: &'a str,
        size: u64,
        sector: u32,
        now: u64,
    ) -> LocalBoxFuture<'a, Result<()>> {
        self.create_volume_with(name, NewVolume { size, sector, thick: false, shards: None, now })
    }

    /// Creates a volume.
    ///
    /// # Errors
    /// `Invalid` for a bad name, size or number of shards, `Exists`, `NoSpace`.
    pub fn create_volume_with<'a>(
        &'a self,
        name: &'a str,
        volume: NewVolume,
    ) -> LocalBoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let name = name.to_owned();
            self.catalogue()
                .call(move |catalogue| async move { catalogue.create(name, volume).await })
                .await?
        })
    }

    /// Changes a volume's size. Shrinking discards data and must be allowed by `may_shrink`.
    ///
    /// # Errors
    /// `NotFound`, `Invalid`.
    pub fn resize_volume<'a>(
        &'a self,
        name: &'a str,
        size: u64,
        may_shrink: bool,
    ) -> LocalBoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let name = name.to_owned();
            let resize =
                move |catalogue: Rc<Catalogue>| async move { catalogue.resize(name, size, may_shrink).await };
            self.catalogue().call(resize).await?
        })
    }

    /// Changes the rate limits and the weight of a volume. The limits apply to all cores together.
    ///
    /// # Errors
    /// `NotFound`; `ReadOnly` for a snapshot.
    pub fn set_qos_limits<'a>(&'a self, name: &'a str, limits: QosLimits) -> LocalBoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let name = name.to_owned();
            let set =
                move |catalogue: Rc<Catalogue>| async move { catalogue.set_qos_limits(name, limits).await };
            self.catalogue().call(set).await?
        })
    }

    /// Deletes a volume or snapshot without open handles. Its blocks are freed in the background; a
    /// volume's name is in use until then.
    ///
    /// # Errors
    /// `NotFound`, `Busy`.
    pub fn delete_volume<'a>(&'a self, name: &'a str) -> LocalBoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let name = name.to_owned();
            self.catalogue().call(move |catalogue| async move { catalogue.delete(name).await }).await?
        })
    }
}
