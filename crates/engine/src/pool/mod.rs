//! An open pool: a handle on its shards, catalogue, journal and control.
//!
//! Must not know: frontends, threads (the caller names the reactors to use), the wall clock, the
//! source of randomness.

mod catalogue;
mod close;
mod create;
mod drives;
mod journal;
mod members;
mod open;
mod scrub;

use std::sync::Arc;

use format::{DriveErrors, DriveState, PoolId, Scheme};
use futures_util::future::LocalBoxFuture;
use reactor::{Handle, Reactor};

pub(crate) use catalogue::{Catalogue, VolumeShared};
pub use catalogue::{ChangedRange, NewVolume, VolumeInfo, VolumeTotals, VolumeUsage};
pub use create::{CreateOptions, check_name, create};
pub use drives::{DriveContents, MemberDrive, PoolLabel, erase, identify};
pub(crate) use journal::Journal;
pub(crate) use open::{
    AssembledPool, DriveFilter, DriveFindings, ShardShared, assemble, assemble_unchecked, plan_shard,
};
pub use open::{OpenOptions, OpenReport, open};

use crate::control::{Control, SpaceCounters};
use crate::error::{Error, Result};
use crate::finding::LostRange;
use crate::repair::{BackgroundLimiter, RecentLatency, RepairLimits, RepairStatus};
use crate::scrub::{Scrub, ScrubStatus};
use crate::shard::{Shard, ShardCounters};

/// An open pool. Cheap to clone; usable from any thread.
#[derive(Clone)]
pub struct Pool {
    inner: Arc<PoolInner>,
}

struct PoolInner {
    id: PoolId,
    name: String,
    scheme: Scheme,
    zone_bytes: u64,
    atomic_blocks: u32,
    control: Handle<Control>,
    catalogue: Handle<Catalogue>,
    journal: Handle<Journal>,
    shards: Arc<[Handle<Shard>]>,
    repair: Arc<BackgroundLimiter>,
    scrub: Arc<Scrub>,
}

/// The status of a drive of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DriveStatus {
    /// The index in the pool.
    pub index: u16,
    /// The identity.
    pub id: format::DriveId,
    /// The path under which the drive was opened.
    pub path: String,
    /// The size in bytes.
    pub size: u64,
    /// The state.
    pub state: DriveState,
    /// Number of zones.
    pub zones: u32,
    /// Number of free zones.
    pub free_zones: u32,
    /// Failed and corrupt reads.
    pub errors: DriveErrors,
    /// True if read errors occurred in too many zones: the drive should be replaced.
    pub failing: bool,
}

/// The status of a pool.
#[derive(Clone, Debug)]
pub struct PoolStatus {
    /// The identity.
    pub id: PoolId,
    /// The name.
    pub name: String,
    /// The scheme of new data.
    pub scheme: Scheme,
    /// The zone size in bytes.
    pub zone_bytes: u64,
    /// The drives, by index.
    pub drives: Vec<DriveStatus>,
    /// The fill level.
    pub space: SpaceCounters,
    /// The counters of each shard.
    pub shards: Vec<ShardCounters>,
    /// Progress of the rebuild of missing columns.
    pub repair: RepairStatus,
    /// Progress of the scrub.
    pub scrub: ScrubStatus,
    /// Recent latency of client I/O during a rebuild or scrub; `None` without client I/O.
    pub client_latency: Option<RecentLatency>,
    /// Lost data, for each volume and snapshot that shows it. Reads of it fail until it is
    /// overwritten.
    pub lost: Vec<LostRange>,
    /// Minimum number of lost blocks beyond the list in `lost`, which is bounded. Nonzero until a
    /// scrub of the whole pool finds no more blocks than are listed.
    pub lost_unlisted: u64,
    /// Number of map nodes that are only in memory: their copies on the drives are lost, and the
    /// pool has no space to store them again. A crash loses the blocks below them.
    pub unsaved_nodes: u64,
    /// The reason why the newest state is not recorded in the [`crate::PoolStateStore`]: older
    /// copies of the drives may be opened unnoticed.
    pub unrecorded: Option<String>,
    /// The reason why the pool accepts no writes, if it has failed.
    pub failure: Option<Error>,
}

impl PoolStatus {
    /// Returns the number of drives that are missing or failed.
    pub fn lost_drives(&self) -> usize {
        let lost = |drive: &&DriveStatus| drive.state.is_lost();
        self.drives.iter().filter(lost).count()
    }

    /// Number of columns with known damage that is not repaired yet; across openings. With more
    /// than 0, the pool is not healthy: its redundancy is reduced.
    pub fn damaged_columns(&self) -> u64 {
        self.scrub.unhealed
    }

    /// Returns the bytes of user data that fit into `segments` segments.
    pub fn data_bytes(&self, segments: u64) -> u64 {
        segments * self.zone_bytes * u64::from(self.scheme.data())
    }
}

impl Pool {
    /// Returns the identity.
    pub fn id(&self) -> PoolId {
        self.inner.id
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// Returns the scheme of new data.
    pub fn scheme(&self) -> Scheme {
        self.inner.scheme
    }

    /// Returns the size in bytes up to which a write within one slice (4 MiB of a volume) is atomic
    /// with respect to crashes. Blocks that the write covers partly count as whole.
    pub fn atomic_write_bytes(&self) -> u64 {
        u64::from(self.inner.atomic_blocks) * format::limits::BLOCK_BYTES
    }

    pub(crate) fn catalogue(&self) -> &Handle<Catalogue> {
        &self.inner.catalogue
    }

    pub(crate) fn shards(&self) -> &Arc<[Handle<Shard>]> {
        &self.inner.shards
    }

    /// Returns the current status.
    ///
    /// # Errors
    /// When the pool was closed.
    pub fn status(&self) -> LocalBoxFuture<'_, Result<PoolStatus>> {
        Box::pin(async move {
            let query = |control: std::rc::Rc<Control>| async move {
                let (failing, scrub) = (control.failing(), control.scrub_status());
                let (space, free_zones, now) =
                    (control.space(), control.free_zones(), Reactor::current().now());
                let failures = (control.failure(), control.unrecorded());
                (control.superblock(), space, free_zones, failures, failing, (scrub, now))
            };
            let (superblock, space, free_zones, (failure, unrecorded), failing, (scrub, now)) =
                self.inner.control.call(query).await?;
            let (mut scrub, positions, until) = scrub;
            let mut shards = Vec::new();
            let mut repair = RepairStatus::default();
            let (mut lost_blocks, mut lost_unlisted, mut unsaved_nodes) = (Vec::new(), 0, 0);
            for (number, shard) in self.inner.shards.iter().enumerate() {
                let after =
                    positions.get(number).map_or_else(format::Incarnation::default, |position| *position);
                let query = move |shard: std::rc::Rc<Shard>| async move {
                    let lost = (shard.lost.list(&shard).await, shard.unsaved_nodes());
                    (
                        shard.counters(),
                        shard.repair.status(),
                        shard.scrubber.progress(&shard, after, until),
                        lost,
                    )
                };
                let (counters, of_shard, progress, ((lost, more), unsaved)) = shard.call(query).await?;
                lost_blocks.push(lost);
                unsaved_nodes += unsaved;
                lost_unlisted += more;
                scrub.add(progress);
                repair.add(&of_shard);
                shards.push(counters);
            }
            let lost = match lost_blocks.iter().all(Vec::is_empty) {
                true => Vec::new(),
                false => {
                    self.catalogue()
                        .call(|catalogue| async move { catalogue.locate(lost_blocks).await })
                        .await??
                }
            };
            let drives = (0..).zip(superblock.drives).zip(free_zones);
            let drives = drives.map(|((index, drive), free_zones)| DriveStatus {
                index,
                id: drive.id,
                path: drive.path,
                size: drive.size,
                state: drive.state,
                zones: drive.zones,
                free_zones,
                errors: drive.errors,
                failing: failing.contains(&format::DriveIndex::new(index)),
            });
            Ok(PoolStatus {
                id: self.inner.id,
                name: self.inner.name.clone(),
                scheme: self.inner.scheme,
                zone_bytes: self.inner.zone_bytes,
                drives: drives.collect(),
                space,
                shards,
                repair,
                scrub,
                client_latency: self.inner.repair.recent_latency(now),
                lost,
                lost_unlisted,
                unsaved_nodes,
                unrecorded,
                failure,
            })
        })
    }

    /// Fails a drive on purpose, for drills and before the drive is pulled.
    ///
    /// # Errors
    /// `NotFound` if the drive is not in use; `PoolFailed` if the loss would exceed the redundancy.
    /// The pool is unchanged after an error.
    pub fn fail_drive(&self, index: u16) -> LocalBoxFuture<'_, Result<()>> {
        Box::pin(async move {
            let fail = move |control: std::rc::Rc<Control>| async move {
                control.fail_drive(format::DriveIndex::new(index)).await
            };
            self.inner.control.call(fail).await?
        })
    }

    /// Returns the speed limits of rebuilds.
    pub fn repair_limits(&self) -> RepairLimits {
        self.inner.repair.limits()
    }

    /// Sets the speed limits of rebuilds, until the pool is closed.
    ///
    /// # Errors
    /// When the pool was closed.
    pub fn set_repair_limits(&self, limits: RepairLimits) -> LocalBoxFuture<'_, Result<()>> {
        Box::pin(async move {
            self.inner.repair.set(limits);
            self.request_repair().await
        })
    }

    /// Makes every shard search for segments with missing columns.
    async fn request_repair(&self) -> Result<()> {
        for shard in self.inner.shards.iter() {
            shard.call(|shard| async move { shard.repair.request() }).await?;
        }
        Ok(())
    }

    /// Waits until the rebuild can do nothing more for now: all columns are present, the rebuild is
    /// paused, or it lacks a drive or space; [`Pool::status`] has the state. Drained drives are
    /// removed by then.
    ///
    /// # Errors
    /// When the pool was closed.
    pub fn wait_for_repair(&self) -> LocalBoxFuture<'_, Result<()>> {
        Box::pin(async move {
            for shard in self.inner.shards.iter() {
                shard.call(|shard| async move { shard.repair.wait_for_requests(&shard).await }).await?;
            }
            self.inner.control.call(|control| async move { control.drive_changes_finished().await }).await?;
            Ok(())
        })
    }

    /// Writes a checkpoint of every shard.
    ///
    /// # Errors
    /// When a checkpoint cannot be written.
    pub fn checkpoint(&self) -> LocalBoxFuture<'_, Result<()>> {
        Box::pin(async move {
            for shard in self.inner.shards.iter() {
                shard.call(|shard| async move { shard.checkpoint_now().await }).await??;
            }
            Ok(())
        })
    }
}

#[cfg(test)]
mod atomic_tests;
#[cfg(test)]
mod extents_tests;
#[cfg(test)]
mod full_pool_tests;
#[cfg(test)]
mod journal_tests;
#[cfg(test)]
mod numbers_tests;
#[cfg(test)]
mod snapshot_tests;
#[cfg(test)]
mod spread_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod thick_tests;
#[cfg(test)]
mod waits_tests;
