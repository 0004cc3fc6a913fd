//! Snapshots and clones of the pools in service.

use super::Pools;
use super::volumes::{explain, now};
use crate::error::Result;
use crate::wire::{Change, Changes, Usage, Volume};

/// Bytes of a volume that are counted in one step: its reactor does other things in between.
const COUNT_STEP: u64 = 64 << 30;
/// Bytes of a volume in which changes are looked for in one step.
const CHANGES_STEP: u64 = 1 << 30;
/// Changes after which an answer ends.
const CHANGES_MAX: usize = 4096;

impl Pools {
    /// Takes a snapshot, by the name `volume@snapshot`.
    ///
    /// # Errors
    /// When there is no such volume, the name makes no sense or is taken, or the pool is full.
    pub(crate) async fn take_snapshot(&self, pool: &str, name: &str) -> Result<Volume> {
        let open = self.get(pool)?;
        self.volume(pool, name.split_once('@').map_or(name, |(volume, _)| volume)).await?;
        let (wanted, now) = (name.to_owned(), now());
        let taken = open.call(move |pool| async move { pool.snapshot_volume(&wanted, now).await }).await;
        taken.map_err(|error| explain(error, pool, name))?;
        tracing::info!(pool, snapshot = name, "snapshot taken");
        self.volume(pool, name).await
    }

    /// Makes a volume of a snapshot.
    ///
    /// # Errors
    /// When there is no such snapshot, or the name makes no sense or is taken.
    pub(crate) async fn clone_snapshot(&self, pool: &str, snapshot: &str, name: &str) -> Result<Volume> {
        let open = self.get(pool)?;
        self.volume(pool, snapshot).await?;
        let (from, to, now) = (snapshot.to_owned(), name.to_owned(), now());
        let cloned = open.call(move |pool| async move { pool.clone_volume(&from, &to, now).await }).await;
        cloned.map_err(|error| explain(error, pool, name))?;
        tracing::info!(pool, snapshot, volume = name, "snapshot cloned");
        self.volume(pool, name).await
    }

    /// Makes a volume what its snapshot is.
    ///
    /// # Errors
    /// When there is no such snapshot, or the pool is full.
    pub(crate) async fn roll_back(&self, pool: &str, snapshot: &str) -> Result<Volume> {
        let open = self.get(pool)?;
        let (wanted, now) = (snapshot.to_owned(), now());
        let back = open.call(move |pool| async move { pool.roll_back_volume(&wanted, now).await }).await;
        back.map_err(|error| explain(error, pool, snapshot))?;
        tracing::info!(pool, snapshot, "volume rolled back");
        let (volume, _) = snapshot.split_once('@').unwrap_or((snapshot, ""));
        self.volume(pool, volume).await
    }

    /// Counts what a volume or snapshot holds.
    ///
    /// # Errors
    /// When there is no such volume.
    pub(crate) async fn usage(&self, pool: &str, name: &str) -> Result<Usage> {
        let open = self.get(pool)?;
        let volume = self.volume(pool, name).await?;
        let (mut shown, mut alone) = (0, 0);
        let mut offset = 0;
        while offset < volume.size {
            let wanted = name.to_owned();
            let count = open
                .call(move |pool| async move { pool.volume_usage(&wanted, offset, COUNT_STEP).await })
                .await;
            let counted = count.map_err(|error| explain(error, pool, name))?;
            shown += counted.shown;
            alone += counted.alone;
            offset = offset.saturating_add(COUNT_STEP);
        }
        // What is being freed below it is its own too, though it may be hidden.
        let shared = shown.saturating_sub(alone);
        Ok(Usage { pool: pool.to_owned(), name: name.to_owned(), shown, alone, shared })
    }

    /// Where a volume or snapshot differs from another one, from `offset` on.
    ///
    /// # Errors
    /// When one of them is not there, or they have nothing in common.
    pub(crate) async fn changes(&self, pool: &str, name: &str, since: &str, offset: u64) -> Result<Changes> {
        let open = self.get(pool)?;
        let size = self.volume(pool, name).await?.size;
        self.volume(pool, since).await?;
        let mut changes: Vec<Change> = Vec::new();
        let mut next = offset;
        while next < size && changes.len() < CHANGES_MAX {
            let (of, base) = (name.to_owned(), since.to_owned());
            let find = open
                .call(move |pool| async move { pool.volume_changes(&of, &base, next, CHANGES_STEP).await })
                .await;
            for found in find.map_err(|error| explain(error, pool, name))? {
                let engine::Change { offset, length, data } = found;
                match changes.last_mut() {
                    Some(last) if last.offset + last.length == offset && last.data == data => {
                        last.length += length;
                    }
                    _ => changes.push(Change { offset, length, data }),
                }
            }
            next = next.saturating_add(CHANGES_STEP);
        }
        Ok(Changes { changes, next: (next < size).then_some(next) })
    }
}
