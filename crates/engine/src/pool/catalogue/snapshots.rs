//! Snapshots, clones and rollback: a volume's layer becomes immutable, and the volume continues in
//! a new child layer.

use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use format::{EventKind, QosLimits, VolumeKind, VolumeRecord, VolumeState};
use futures_util::future::LocalBoxFuture;

use super::{Catalogue, Pool, SEPARATOR, check_name, split_name};
use crate::error::{Error, ErrorKind, Result};
use crate::join_all::join_all;
use crate::shard::Shard;

/// The records that a snapshot adds and changes.
struct VolumeSnapshot {
    /// The snapshot, which keeps the volume's layer.
    frozen: VolumeRecord,
    /// The volume, which moves to a new layer.
    moved: VolumeRecord,
}

impl Catalogue {
    /// Takes snapshots, named `volume@snapshot`, of different volumes at one point in time. They
    /// contain every write acknowledged before, and no write started after. One that contains a
    /// write contains everything that was acknowledged before that write began, on all the volumes.
    async fn snapshot(&self, names: Vec<String>, now: u64) -> Result<()> {
        let volumes = names.iter().map(|name| Ok(split_name(name)?.0)).collect::<Result<Vec<&str>>>()?;
        self.check_group(&volumes)?;
        let _changing = self.changing.acquire().await;
        let plan = self.plan_snapshots(&names, &volumes, now)?;
        self.reserve_moved(&plan).await?;
        // Stored before the first write to the new layers, so that the layers have owners after a
        // crash; in one record, so that a crash leaves all snapshots or none.
        let records: Vec<_> = plan.iter().flat_map(|of| [&of.frozen, &of.moved]).collect();
        if let Err(error) = self.store(&records, None).await {
            self.release_moved(plan.iter()).await?;
            return Err(error);
        }
        for VolumeSnapshot { frozen, moved } in &plan {
            self.insert(frozen.clone());
            self.update(moved.clone());
        }
        self.switch_layers(plan.iter().map(|of| &of.moved)).await?;
        for VolumeSnapshot { frozen, .. } in &plan {
            self.release_reservation(frozen.layer).await?;
            self.activate_layer(frozen).await?;
        }
        // Waits for the writes to the old layers that were in flight, and makes acknowledged ones
        // durable.
        self.flush_queued().await?;
        plan.iter().for_each(|of| self.events.emit(EventKind::SnapshotTaken, 0, &of.frozen.name));
        Ok(())
    }

    /// Refuses an empty group, one that names a volume twice, and one whose records do not fit into
    /// one write of the catalogue.
    fn check_group(&self, volumes: &[&str]) -> Result<()> {
        let invalid = |message: String| Err(Error::new(ErrorKind::Invalid, message));
        let most = group_max(self.shard.atomic_blocks());
        if volumes.is_empty() {
            return invalid("a group of snapshots needs at least one volume".into());
        }
        if volumes.len() > most {
            let message = format!(
                "snapshots of {} volumes cannot be taken together: this pool allows up to {most}",
                volumes.len()
            );
            return invalid(message);
        }
        let mut seen = BTreeSet::new();
        match volumes.iter().find(|volume| !seen.insert(**volume)) {
            Some(twice) => invalid(format!("volume '{twice}' occurs twice in the group")),
            None => Ok(()),
        }
    }

    /// Returns the records of new snapshots and of their volumes. Changes nothing.
    fn plan_snapshots(&self, names: &[String], volumes: &[&str], now: u64) -> Result<Vec<VolumeSnapshot>> {
        let mut found = Vec::new();
        for (name, volume) in names.iter().zip(volumes) {
            let volume = self.find(volume)?;
            self.check_name_unused(name)?;
            found.push((name.clone(), volume));
        }
        let ids = self.free_ids(found.len())?;
        let plan = found.into_iter().zip(ids).map(|((name, volume), id)| {
            let qos = QosLimits::default();
            let kind = VolumeKind::Snapshot;
            let frozen = VolumeRecord { id, name, kind, created: now, qos, thick: false, ..volume.clone() };
            let moved = VolumeRecord { layer: self.new_layer(), parent: Some(frozen.layer), ..volume };
            VolumeSnapshot { frozen, moved }
        });
        Ok(plan.collect())
    }

    /// Reserves the full size of the thick volumes again, for their new layers.
    ///
    /// # Errors
    /// `NoSpace` if the pool lacks space; nothing is reserved for the new layers then.
    async fn reserve_moved(&self, plan: &[VolumeSnapshot]) -> Result<()> {
        for (number, VolumeSnapshot { moved, .. }) in plan.iter().enumerate() {
            if let Err(error) = self.try_reserve(moved, "a snapshot of it").await {
                self.release_moved(plan.iter().take(number)).await?;
                return Err(error);
            }
        }
        Ok(())
    }

    async fn release_moved(&self, plan: impl Iterator<Item = &VolumeSnapshot>) -> Result<()> {
        for VolumeSnapshot { moved, .. } in plan {
            self.release_reservation(moved.layer).await?;
        }
        Ok(())
    }

    /// Switches volumes to their records' layers, in all shards at one point in time: no volume
    /// switches in any shard before all of them are held in every shard (F2).
    async fn switch_layers(&self, records: impl Iterator<Item = &VolumeRecord>) -> Result<()> {
        let layers: Arc<[_]> = records.map(|record| (record.id, record.layer, record.parent)).collect();
        let held = layers.clone();
        self.on_shards(move |shard| held.iter().for_each(|(volume, ..)| shard.hold_writes(*volume, true)))
            .await?;
        self.on_shards(move |shard| {
            for (volume, layer, parent) in layers.iter() {
                shard.set_active_layer(*volume, *layer, *parent);
            }
        })
        .await
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
        self.switch_layers(std::iter::once(&moved)).await?;
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

/// Returns the largest number of volumes with snapshots taken together: two records of each must
/// fit into one write of `atomic_blocks` blocks.
fn group_max(atomic_blocks: u32) -> usize {
    (atomic_blocks as usize / 2).max(1)
}

impl Pool {
    /// Takes a snapshot of a volume, named `volume@snapshot`. It durably contains every write
    /// acknowledged before, and no write started after. `now` is in seconds since 1970.
    ///
    /// # Errors
    /// `NotFound`, `Invalid` for a bad name, `Exists`, `NoSpace`.
    pub fn snapshot_volume<'a>(&'a self, name: &'a str, now: u64) -> LocalBoxFuture<'a, Result<()>> {
        Box::pin(async move { self.snapshot_volumes(&[name], now).await })
    }

    /// Takes snapshots of different volumes at one point in time, as [`Pool::snapshot_volume`].
    /// Each contains everything that was acknowledged, on any of the volumes, before a write that
    /// one of them contains began. After a crash all of them exist or none.
    ///
    /// # Errors
    /// As [`Pool::snapshot_volume`]; `Invalid` for a volume that occurs twice, and for more than
    /// [`Pool::snapshot_group_max`] volumes. No snapshot is taken then.
    pub fn snapshot_volumes<'a>(&'a self, names: &'a [&'a str], now: u64) -> LocalBoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            let snapshot =
                move |catalogue: Rc<Catalogue>| async move { catalogue.snapshot(names, now).await };
            self.catalogue().call(snapshot).await?
        })
    }

    /// Returns the largest number of volumes with snapshots taken together; 32 unless segments are
    /// tiny.
    pub fn snapshot_group_max(&self) -> usize {
        group_max(self.inner.atomic_blocks)
    }

    /// Creates a clone: a volume with the contents of a snapshot, which shares the snapshot's
    /// blocks. `now` is in seconds since 1970.
    ///
    /// # Errors
    /// As [`Pool::snapshot_volume`].
    pub fn clone_volume<'a>(
        &'a self,
        snapshot: &'a str,
        name: &'a str,
        now: u64,
    ) -> LocalBoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let (snapshot, name) = (snapshot.to_owned(), name.to_owned());
            let clone = move |catalogue: Rc<Catalogue>| async move {
                catalogue.clone_snapshot(snapshot, name, now).await
            };
            self.catalogue().call(clone).await?
        })
    }

    /// Rolls a volume back to its snapshot `volume@snapshot`, including its size. Later snapshots
    /// remain. `now` is in seconds since 1970.
    ///
    /// # Errors
    /// `NotFound`, `NoSpace`.
    pub fn roll_back_volume<'a>(&'a self, snapshot: &'a str, now: u64) -> LocalBoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let snapshot = snapshot.to_owned();
            let roll_back =
                move |catalogue: Rc<Catalogue>| async move { catalogue.roll_back(snapshot, now).await };
            self.catalogue().call(roll_back).await?
        })
    }
}
