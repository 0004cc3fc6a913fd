//! Snapshots, clones and rollback: a volume's layer becomes immutable, and the volume continues in
//! a new child layer.

use std::rc::Rc;
use std::sync::atomic::Ordering;

use format::{EventKind, QosLimits, VolumeKind, VolumeRecord, VolumeState};

use super::{Catalogue, Pool, SEPARATOR, check_name, split_name};
use crate::error::Result;
use crate::join_all::join_all;
use crate::shard::Shard;

impl Catalogue {
    /// Takes a snapshot, named `volume@snapshot`. It contains every write acknowledged before, and
    /// no write started after.
    async fn snapshot(&self, name: String, now: u64) -> Result<()> {
        let (volume, _) = split_name(&name)?;
        let _changing = self.changing.acquire().await;
        let volume = self.find(volume)?;
        self.check_name_unused(&name)?;
        let id = self.free_id()?;
        let qos = QosLimits::default();
        let kind = VolumeKind::Snapshot;
        let frozen = VolumeRecord { id, name, kind, created: now, qos, thick: false, ..volume.clone() };
        let moved = VolumeRecord { layer: self.new_layer(), parent: Some(frozen.layer), ..volume };
        self.try_reserve(&moved, "a snapshot of it").await?;
        // Stored before the first write to the new layer, so that the layer has an owner after a
        // crash.
        if let Err(error) = self.store(&[&frozen, &moved], None).await {
            self.release_reservation(moved.layer).await?;
            return Err(error);
        }
        self.insert(frozen.clone());
        self.update(moved.clone());
        self.switch_layer(&moved).await?;
        self.release_reservation(frozen.layer).await?;
        self.activate_layer(&frozen).await?;
        // Waits for the writes to the old layer that were in flight, and makes acknowledged ones
        // durable.
        self.flush_queued().await?;
        self.events.emit(EventKind::SnapshotTaken, 0, &frozen.name);
        Ok(())
    }

    /// Switches a volume to its record's layer, in all shards at one point in time.
    async fn switch_layer(&self, record: &VolumeRecord) -> Result<()> {
        let id = record.id;
        self.on_shards(move |shard| shard.hold_writes(id, true)).await?;
        self.activate_layer(record).await
    }

    /// Completes all queued writes and makes them durable.
    async fn flush_queued(&self) -> Result<()> {
        let flush = |shard: Rc<Shard>| async move {
            shard.wait_for_queued().await;
            shard.flush().await
        };
        join_all(self.shards.iter().map(|shard| async move { shard.call(flush).await? })).await
    }

    /// Creates a clone: a volume with the contents of a snapshot.
    async fn clone_snapshot(&self, snapshot: String, name: String, now: u64) -> Result<()> {
        check_name(&name)?;
        split_name(&snapshot)?;
        let _changing = self.changing.acquire().await;
        let origin = self.find(&snapshot)?;
        self.check_name_unused(&name)?;
        let record = VolumeRecord {
            id: self.free_id()?,
            name,
            kind: VolumeKind::Volume,
            layer: self.new_layer(),
            parent: Some(origin.layer),
            created: now,
            thick: false,
            ..origin
        };
        self.store(&[&record], None).await?;
        self.activate_layer(&record).await?;
        self.events.emit(EventKind::VolumeCloned, 0, &format!("{} of {snapshot}", record.name));
        self.insert(record);
        Ok(())
    }

    /// Rolls a volume back to a snapshot. Later snapshots remain.
    async fn roll_back(&self, snapshot: String, now: u64) -> Result<()> {
        let (name, _) = split_name(&snapshot)?;
        let _changing = self.changing.acquire().await;
        let volume = self.find(name)?;
        let origin = self.find(&snapshot)?;
        let shared = self.shared(volume.id)?;
        let old = VolumeRecord {
            id: self.free_id()?,
            // Not a valid name for users.
            name: format!("{name}{SEPARATOR}.rolled-back"),
            kind: VolumeKind::Snapshot,
            state: VolumeState::Deleting,
            created: now,
            thick: false,
            ..volume.clone()
        };
        let size = origin.size;
        let moved = VolumeRecord { layer: self.new_layer(), parent: Some(origin.layer), size, ..volume };
        self.try_reserve(&moved, "the data written since the snapshot, until it is freed").await?;
        if let Err(error) = self.store(&[&old, &moved], None).await {
            self.release_reservation(moved.layer).await?;
            return Err(error);
        }
        // Ready until the volume has switched layers, because a record under deletion may be freed
        // at any time.
        self.insert(VolumeRecord { state: VolumeState::Ready, ..old.clone() });
        self.update(moved.clone());
        self.switch_layer(&moved).await?;
        self.release_reservation(old.layer).await?;
        shared.size.store(size, Ordering::Release);
        self.activate_layer(&old).await?;
        // No write to the old layer may be queued when it is freed.
        self.flush_queued().await?;
        self.shared(old.id)?.deleted.store(true, Ordering::Release);
        self.update(old);
        self.reclaim_requested.notify();
        self.events.emit(EventKind::VolumeRolledBack, 0, &snapshot);
        Ok(())
    }
}

impl Pool {
    /// Takes a snapshot of a volume, named `volume@snapshot`. It durably contains every write
    /// acknowledged before, and no write started after. `now` is in seconds since 1970.
    ///
    /// # Errors
    /// `NotFound`, `Invalid` for a bad name, `Exists`, `NoSpace`.
    pub async fn snapshot_volume(&self, name: &str, now: u64) -> Result<()> {
        let name = name.to_owned();
        let snapshot = move |catalogue: Rc<Catalogue>| async move { catalogue.snapshot(name, now).await };
        self.catalogue().call(snapshot).await?
    }

    /// Creates a clone: a volume with the contents of a snapshot, which shares the snapshot's
    /// blocks. `now` is in seconds since 1970.
    ///
    /// # Errors
    /// As [`Pool::snapshot_volume`].
    pub async fn clone_volume(&self, snapshot: &str, name: &str, now: u64) -> Result<()> {
        let (snapshot, name) = (snapshot.to_owned(), name.to_owned());
        let clone = move |catalogue: Rc<Catalogue>| async move {
            catalogue.clone_snapshot(snapshot, name, now).await
        };
        self.catalogue().call(clone).await?
    }

    /// Rolls a volume back to its snapshot `volume@snapshot`, including its size. Later snapshots
    /// remain. `now` is in seconds since 1970.
    ///
    /// # Errors
    /// `NotFound`, `NoSpace`.
    pub async fn roll_back_volume(&self, snapshot: &str, now: u64) -> Result<()> {
        let snapshot = snapshot.to_owned();
        let roll_back =
            move |catalogue: Rc<Catalogue>| async move { catalogue.roll_back(snapshot, now).await };
        self.catalogue().call(roll_back).await?
    }
}
