//! Snapshots, clones and rollback in open pools.

use super::Pools;
use super::volumes::explain;
use crate::error::{ErrorKind, Result};
use crate::unix_time::unix_time;
use api::types::{DiffRange, Volume, VolumeDiff, VolumeUsage};

/// Bytes of a volume that are counted in one step; its reactor does other work between steps.
const COUNT_STEP: u64 = 64 << 30;
/// Bytes of a volume that are compared in one step.
const DIFF_STEP: u64 = 1 << 30;
/// Number of ranges after which a response ends.
const RANGES_MAX: usize = 4096;

impl Pools {
    /// Creates the snapshot `name`, `volume@snapshot`.
    ///
    /// # Errors
    /// When there is no such volume, the name is invalid or in use, or the pool is full.
    pub(crate) async fn create_snapshot(&self, pool: &str, name: &str) -> Result<Volume> {
        let open = self.get(pool)?;
        self.volume(pool, name.split_once('@').map_or(name, |(volume, _)| volume)).await?;
        let (wanted, now) = (name.to_owned(), unix_time());
        let taken = open.call(move |pool| async move { pool.snapshot_volume(&wanted, now).await }).await;
        taken.map_err(|error| explain(error, pool, name))?;
        tracing::info!(pool, snapshot = name, "snapshot created");
        self.volume(pool, name).await
    }

    /// Creates snapshots of several volumes, `volume@snapshot`, at one point in time.
    ///
    /// # Errors
    /// When a volume does not exist or occurs twice, a name is invalid or in use, or the pool is
    /// full. No snapshot is created then.
    pub(crate) async fn create_snapshots(&self, pool: &str, names: &[String]) -> Result<Vec<Volume>> {
        let open = self.get(pool)?;
        for name in names {
            self.volume(pool, name.split_once('@').map_or(name.as_str(), |(volume, _)| volume)).await?;
        }
        let (wanted, now) = (names.to_vec(), unix_time());
        let take = open.call(move |pool| async move {
            let names: Vec<&str> = wanted.iter().map(String::as_str).collect();
            pool.snapshot_volumes(&names, now).await
        });
        take.await.map_err(|error| match error.kind() {
            ErrorKind::NoSpace => explain(error, pool, ""),
            // Names the volume or snapshot, which is one of several.
            _ => error,
        })?;
        tracing::info!(pool, snapshots = ?names, "snapshots created together");
        let mut created = Vec::new();
        for name in names {
            created.push(self.volume(pool, name).await?);
        }
        Ok(created)
    }

    /// Creates a volume from a snapshot.
    ///
    /// # Errors
    /// When there is no such snapshot, or the name is invalid or in use.
    pub(crate) async fn clone_snapshot(&self, pool: &str, snapshot: &str, name: &str) -> Result<Volume> {
        let open = self.get(pool)?;
        self.volume(pool, snapshot).await?;
        let (from, to, now) = (snapshot.to_owned(), name.to_owned(), unix_time());
        let cloned = open.call(move |pool| async move { pool.clone_volume(&from, &to, now).await }).await;
        cloned.map_err(|error| explain(error, pool, name))?;
        tracing::info!(pool, snapshot, volume = name, "snapshot cloned");
        self.volume(pool, name).await
    }

    /// Rolls a volume back to a snapshot of it.
    ///
    /// # Errors
    /// When there is no such snapshot, or the pool is full.
    pub(crate) async fn roll_back(&self, pool: &str, snapshot: &str) -> Result<Volume> {
        let open = self.get(pool)?;
        let (wanted, now) = (snapshot.to_owned(), unix_time());
        let back = open.call(move |pool| async move { pool.roll_back_volume(&wanted, now).await }).await;
        back.map_err(|error| explain(error, pool, snapshot))?;
        tracing::info!(pool, snapshot, "volume rolled back");
        let (volume, _) = snapshot.split_once('@').unwrap_or((snapshot, ""));
        self.volume(pool, volume).await
    }

    /// Counts the data of a volume or snapshot.
    ///
    /// # Errors
    /// When there is no such volume.
    pub(crate) async fn usage(&self, pool: &str, name: &str) -> Result<VolumeUsage> {
        let open = self.get(pool)?;
        let volume = self.volume(pool, name).await?;
        let (mut referenced, mut exclusive) = (0, 0);
        let mut offset = 0;
        while offset < volume.size {
            let wanted = name.to_owned();
            let count = open
                .call(move |pool| async move { pool.volume_usage(&wanted, offset, COUNT_STEP).await })
                .await;
            let counted = count.map_err(|error| explain(error, pool, name))?;
            referenced += counted.referenced;
            exclusive += counted.exclusive;
            offset = offset.saturating_add(COUNT_STEP);
        }
        // Data of a parent layer under deletion is exclusive too, although it may be hidden.
        let shared = referenced.saturating_sub(exclusive);
        Ok(VolumeUsage { pool: pool.to_owned(), name: name.to_owned(), referenced, exclusive, shared })
    }

    /// Returns the ranges of a volume or snapshot that hold data, beginning at `offset`.
    ///
    /// # Errors
    /// When it does not exist.
    pub(crate) async fn allocated(&self, pool: &str, name: &str, offset: u64) -> Result<VolumeDiff> {
        let open = self.get(pool)?;
        let size = self.volume(pool, name).await?.size;
        let mut ranges: Vec<DiffRange> = Vec::new();
        let mut next = offset;
        while next < size && ranges.len() < RANGES_MAX {
            let of = name.to_owned();
            let find = open.call(move |pool| async move {
                let volume = pool.open_volume(&of).await?.attach();
                // The volume may have been shrunk meanwhile.
                let length = volume.size().saturating_sub(next).min(COUNT_STEP);
                if length == 0 { Ok(Vec::new()) } else { volume.extents(next, length).await }
            });
            let extents = find.await.map_err(|error| explain(error, pool, name))?;
            if extents.is_empty() {
                return Ok(VolumeDiff { ranges, next: None });
            }
            for engine::Extent { length, data } in extents {
                match ranges.last_mut().filter(|last| last.offset + last.length == next) {
                    Some(last) if data => last.length += length,
                    None if data => ranges.push(DiffRange { offset: next, length, data }),
                    _ => {}
                }
                next += length;
            }
        }
        Ok(VolumeDiff { ranges, next: (next < size).then_some(next) })
    }

    /// Returns the ranges in which volume or snapshot `name` differs from `base`, beginning at
    /// `offset`.
    ///
    /// # Errors
    /// When one of them does not exist, or they have no common origin.
    pub(crate) async fn diff(&self, pool: &str, base: &str, name: &str, offset: u64) -> Result<VolumeDiff> {
        let open = self.get(pool)?;
        let size = self.volume(pool, name).await?.size;
        self.volume(pool, base).await?;
        let mut ranges: Vec<DiffRange> = Vec::new();
        let mut next = offset;
        while next < size && ranges.len() < RANGES_MAX {
            let (of, base) = (name.to_owned(), base.to_owned());
            let find = open
                .call(move |pool| async move { pool.volume_changes(&of, &base, next, DIFF_STEP).await })
                .await;
            for change in find.map_err(|error| explain(error, pool, name))? {
                let engine::ChangedRange { offset, length, data } = change;
                match ranges.last_mut() {
                    Some(last) if last.offset + last.length == offset && last.data == data => {
                        last.length += length;
                    }
                    _ => ranges.push(DiffRange { offset, length, data }),
                }
            }
            next = next.saturating_add(DIFF_STEP);
        }
        Ok(VolumeDiff { ranges, next: (next < size).then_some(next) })
    }
}
