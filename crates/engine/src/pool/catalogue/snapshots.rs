//! Snapshots, clones and rolling back: a volume leaves its layer as it is, and writes to a new one above it.

use std::rc::Rc;
use std::sync::atomic::Ordering;

use format::{EventKind, QosLimits, VolumeKind, VolumeRecord, VolumeState};

use super::{AT, Catalogue, Pool, check_name, split_name};
use crate::error::Result;
use crate::shard::Shard;
use crate::volume::join_all;

impl Catalogue {
    /// Takes a snapshot, named `volume@snapshot`: all that was acknowledged before, and nothing that was begun after.
    async fn snapshot(&self, name: String, now: u64) -> Result<()> {
        let (volume, _) = split_name(&name)?;
        let _changing = self.changing.acquire().await;
        let volume = self.find(volume)?;
        self.check_free(&name)?;
        let id = self.free_id()?;
        let qos = QosLimits::default();
        let kind = VolumeKind::Snapshot;
        let frozen = VolumeRecord { id, name, kind, created: now, qos, thick: false, ..volume.clone() };
        let moved = VolumeRecord { layer: self.new_layer(), parent: Some(frozen.layer), ..volume };
        self.keep_room(&moved, "a snapshot of it").await?;
        // Known before the first write goes to the new layer: a crash from here on finds it, empty or not.
        if let Err(error) = self.store(&[&frozen, &moved], None).await {
            self.keep_no_room(moved.layer).await?;
            return Err(error);
        }
        self.insert(frozen.clone());
        self.update(moved.clone());
        self.go_over(&moved).await?;
        self.keep_no_room(frozen.layer).await?;
        self.introduce(&frozen).await?;
        // What was under way to the old layer when it was left, and what was acknowledged and not yet durable.
        self.flush_queued().await?;
        self.events.emit(EventKind::SnapshotTaken, 0, &frozen.name);
        Ok(())
    }

    /// Lets a volume use its record's layer, in all shards at one point in time.
    async fn go_over(&self, record: &VolumeRecord) -> Result<()> {
        let id = record.id;
        self.on_shards(move |shard| shard.hold_writes(id, true)).await?;
        self.introduce(record).await
    }

    /// Makes everything durable that was queued by now.
    async fn flush_queued(&self) -> Result<()> {
        let flush = |shard: Rc<Shard>| async move {
            shard.settle().await;
            shard.flush().await
        };
        join_all(self.shards.iter().map(|shard| async move { shard.call(flush).await? })).await
    }

    /// Creates a volume that begins as a snapshot is.
    async fn clone_snapshot(&self, snapshot: String, name: String, now: u64) -> Result<()> {
        check_name(&name)?;
        split_name(&snapshot)?;
        let _changing = self.changing.acquire().await;
        let origin = self.find(&snapshot)?;
        self.check_free(&name)?;
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
        self.introduce(&record).await?;
        self.events.emit(EventKind::VolumeCloned, 0, &format!("{} of {snapshot}", record.name));
        self.insert(record);
        Ok(())
    }

    /// Makes a volume what its snapshot is. Snapshots that were taken since stay.
    async fn roll_back(&self, snapshot: String, now: u64) -> Result<()> {
        let (name, _) = split_name(&snapshot)?;
        let _changing = self.changing.acquire().await;
        let volume = self.find(name)?;
        let origin = self.find(&snapshot)?;
        let shared = self.shared(volume.id)?;
        let left = VolumeRecord {
            id: self.free_id()?,
            // A name that nobody can give.
            name: format!("{name}{AT}.rolled-back"),
            kind: VolumeKind::Snapshot,
            state: VolumeState::Deleting,
            created: now,
            thick: false,
            ..volume.clone()
        };
        let size = origin.size;
        let moved = VolumeRecord { layer: self.new_layer(), parent: Some(origin.layer), size, ..volume };
        self.keep_room(&moved, "what was written since the snapshot, until that is freed").await?;
        if let Err(error) = self.store(&[&left, &moved], None).await {
            self.keep_no_room(moved.layer).await?;
            return Err(error);
        }
        // It looks as if it were in use until the volume has left it: what is being deleted may be freed at once.
        self.insert(VolumeRecord { state: VolumeState::Ready, ..left.clone() });
        self.update(moved.clone());
        self.go_over(&moved).await?;
        self.keep_no_room(left.layer).await?;
        shared.size.store(size, Ordering::Release);
        self.introduce(&left).await?;
        // Nothing is queued for the old layer any more when it is freed.
        self.flush_queued().await?;
        self.shared(left.id)?.gone.store(true, Ordering::Release);
        self.update(left);
        self.untidy.notify();
        self.events.emit(EventKind::VolumeRolledBack, 0, &snapshot);
        Ok(())
    }
}

impl Pool {
    /// Takes a snapshot of a volume, by the name `volume@snapshot`. It holds everything that was acknowledged before, durably, and
    /// nothing that was begun after. `now` is in seconds since 1970.
    ///
    /// # Errors
    /// `NotFound`, `Invalid` for a bad name, `Exists`, `NoSpace`.
    pub async fn snapshot_volume(&self, name: &str, now: u64) -> Result<()> {
        let name = name.to_owned();
        let snapshot = move |catalogue: Rc<Catalogue>| async move { catalogue.snapshot(name, now).await };
        self.catalogue().call(snapshot).await?
    }

    /// Creates a volume that begins as a snapshot is, and shares its blocks. `now` is in seconds since 1970.
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

    /// Makes a volume what it was when its snapshot `volume@snapshot` was taken, its size included. Later snapshots stay.
    /// `now` is in seconds since 1970.
    ///
    /// # Errors
    /// `NotFound`, `NoSpace`.
    pub async fn roll_back_volume(&self, snapshot: &str, now: u64) -> Result<()> {
        let snapshot = snapshot.to_owned();
        let back = move |catalogue: Rc<Catalogue>| async move { catalogue.roll_back(snapshot, now).await };
        self.catalogue().call(back).await?
    }
}
