//! A pool: its shards, its catalogue and its control, brought together; the handle that everybody else holds.
//!
//! Must not know: frontends, threads (it is told which reactors to use), the wall clock, where randomness comes from.

mod catalogue;
mod close;
mod create;
mod drives;
mod journal;
mod members;
mod memory;
mod open;
mod scrub;
mod superblocks;

use std::sync::Arc;

use format::{DriveErrors, DriveState, PoolId, Scheme};
use reactor::{Drive, Handle, Reactor};

pub(crate) use catalogue::{Catalogue, VolumeShared};
pub use catalogue::{Change, LostRange, NewVolume, VolumeInfo, VolumeTotals, VolumeUsage};
pub use create::{CreateOptions, check_name, create};
pub(crate) use create::{check_zones, prepare_drive, short_path};
pub use drives::{FoundOnDrive, Member, PoolOnDrive, erase, identify};
pub(crate) use journal::Journal;
pub use memory::{StateMemory, StateStamp};
pub(crate) use open::{Assembled, DriveFindings, Shared, Wanted, assemble, gather, plan_shard};
pub use open::{OpenOptions, OpenReport, open};
pub(crate) use superblocks::{DriveSuperblock, OnDrive, read_superblocks};

use crate::control::{Control, SpaceCounters};
use crate::error::{Error, Result};
use crate::repair::{BackgroundLimiter, RecentLatency, RepairLimits, RepairStatus};
use crate::scrub::{Scrub, ScrubStatus};
use crate::shard::{Shard, ShardCounters};
use crate::volume::Volume;

/// A drive that can be opened on any reactor. Opening is cheap and cannot fail: the file or device is open already.
pub trait DriveSource: Send + Sync {
    /// The drive, for the reactor that runs on this thread.
    fn open(&self) -> std::rc::Rc<dyn Drive>;

    /// Its path or name, for messages.
    fn path(&self) -> String;
}

/// Settings of the engine that an operator may change; the defaults suit most machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tuning {
    /// Memory for the map, in bytes, all shards together.
    pub map_bytes: u64,
    /// Records that each shard keeps in flight before it gathers more into the next one.
    pub records_in_flight: usize,
    /// Bytes of log after which a shard makes a checkpoint: what a recovery reads at most.
    pub checkpoint_bytes: u64,
    /// How fast repair may go, to begin with.
    pub repair: RepairLimits,
    /// In how many of its zones a drive may fail reads, or answer them wrongly, within a day, before it is emptied; or a quarter of
    /// them, if that is less. 0 for any number.
    pub retire_after: u32,
    /// How many percent of the time that they take by themselves operations may take in the mean beside those of other volumes, before the volume that has
    /// most of them under way is held back. 0 for any number.
    pub slowdown: u32,
}

impl Default for Tuning {
    fn default() -> Self {
        Self {
            map_bytes: 1 << 30,
            records_in_flight: 4,
            checkpoint_bytes: 1 << 30,
            repair: RepairLimits::default(),
            retire_after: 32,
            slowdown: 200,
        }
    }
}

/// A pool in service. Cheap to clone; usable from any thread.
#[derive(Clone)]
pub struct Pool {
    inner: Arc<Inner>,
}

struct Inner {
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

/// A drive, as the pool sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DriveStatus {
    /// Its number in the pool.
    pub index: u16,
    /// Its identity.
    pub id: format::DriveId,
    /// The path it was opened by.
    pub path: String,
    /// Capacity in bytes.
    pub size: u64,
    /// Whether it is in use.
    pub state: DriveState,
    /// Zones that it has room for.
    pub zones: u32,
    /// Those that are free.
    pub free_zones: u32,
    /// Reads that it did not answer as it should.
    pub errors: DriveErrors,
    /// It does so in too many places: it is to be replaced.
    pub failing: bool,
}

/// A pool, as it is now.
#[derive(Clone, Debug)]
pub struct PoolStatus {
    /// Identity.
    pub id: PoolId,
    /// Name.
    pub name: String,
    /// Scheme of new data.
    pub scheme: Scheme,
    /// Bytes of a zone.
    pub zone_bytes: u64,
    /// Its drives.
    pub drives: Vec<DriveStatus>,
    /// How full it is.
    pub space: SpaceCounters,
    /// What each shard counted.
    pub shards: Vec<ShardCounters>,
    /// How far it is with columns that are missing.
    pub repair: RepairStatus,
    /// How far it is with reading everything.
    pub scrub: ScrubStatus,
    /// How long what users asked for took lately, while one of these was at work; `None` if nobody asked for anything.
    pub users: Option<RecentLatency>,
    /// Data that is lost: reading it gives an error until it is overwritten. By volume.
    pub lost: Vec<LostRange>,
    /// Lost blocks beyond those: as many as a pool lists are known by their number only.
    pub lost_more: u64,
    /// Why it takes no more writes, if so.
    pub failure: Option<Error>,
}

impl PoolStatus {
    /// Drives that are not in use.
    pub fn lost_drives(&self) -> usize {
        let lost = |drive: &&DriveStatus| drive.state.is_lost();
        self.drives.iter().filter(lost).count()
    }

    /// Bytes of user data that fit into `segments` segments.
    pub fn data_bytes(&self, segments: u64) -> u64 {
        segments * self.zone_bytes * u64::from(self.scheme.data())
    }
}

impl Pool {
    /// Identity.
    pub fn id(&self) -> PoolId {
        self.inner.id
    }

    /// Name.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// Scheme of new data.
    pub fn scheme(&self) -> Scheme {
        self.inner.scheme
    }

    /// Bytes up to which a write within one slice (4 MiB of a volume) is there whole after a crash, or not at all.
    pub fn atomic_write_bytes(&self) -> u64 {
        u64::from(self.inner.atomic_blocks) * format::limits::BLOCK_BYTES
    }

    pub(crate) fn catalogue(&self) -> &Handle<Catalogue> {
        &self.inner.catalogue
    }

    pub(crate) fn shards(&self) -> &Arc<[Handle<Shard>]> {
        &self.inner.shards
    }

    /// The pool as it is now.
    ///
    /// # Errors
    /// When it was closed.
    pub async fn status(&self) -> Result<PoolStatus> {
        let look = |control: std::rc::Rc<Control>| async move {
            let (failing, scrub) = (control.failing(), control.scrub_status());
            let (space, free_zones, now) = (control.space(), control.free_zones(), Reactor::current().now());
            (control.superblock(), space, free_zones, control.failure(), failing, (scrub, now))
        };
        let (superblock, space, free_zones, failure, failing, (scrub, now)) =
            self.inner.control.call(look).await?;
        let (mut scrub, positions, until) = scrub;
        let mut shards = Vec::new();
        let mut repair = RepairStatus::default();
        let (mut lost_blocks, mut lost_more) = (Vec::new(), 0);
        for (number, shard) in self.inner.shards.iter().enumerate() {
            let after = positions.get(number).copied().unwrap_or_default();
            let look = move |shard: std::rc::Rc<Shard>| async move {
                let lost = shard.lost_blocks().await;
                (shard.counters(), shard.repair_status(), shard.scrub_progress(after, until), lost)
            };
            let (counters, of_shard, progress, (lost, more)) = shard.call(look).await?;
            lost_blocks.push(lost);
            lost_more += more;
            scrub.add(progress);
            repair.add(&of_shard);
            shards.push(counters);
        }
        let lost = match lost_blocks.iter().all(Vec::is_empty) {
            true => Vec::new(),
            false => self.catalogue().call(|catalogue| async move { catalogue.locate(&lost_blocks) }).await?,
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
            users: self.inner.repair.recent_latency(now),
            lost,
            lost_more,
            failure,
        })
    }

    /// Takes a drive out of use, as if it had failed: for drills, and before pulling one.
    ///
    /// # Errors
    /// `NotFound` if there is no such drive in use; `PoolFailed` if the pool could not bear the loss (then nothing is
    /// changed).
    pub async fn fail_drive(&self, index: u16) -> Result<()> {
        let fail = move |control: std::rc::Rc<Control>| async move {
            control.fail_drive(format::DriveIndex::new(index)).await
        };
        self.inner.control.call(fail).await?
    }

    /// How fast repair may go.
    pub fn repair_limits(&self) -> RepairLimits {
        self.inner.repair.limits()
    }

    /// Sets how fast repair may go, until the pool is closed.
    ///
    /// # Errors
    /// When the pool was closed.
    pub async fn set_repair_limits(&self, limits: RepairLimits) -> Result<()> {
        self.inner.repair.set(limits);
        self.request_repair().await
    }

    /// Has every shard look for segments that miss columns.
    async fn request_repair(&self) -> Result<()> {
        for shard in self.inner.shards.iter() {
            shard.call(|shard| async move { shard.request_repair() }).await?;
        }
        Ok(())
    }

    /// Waits until repair has done what it can for now: everything is whole, or it is paused, or a drive or space is wanted.
    /// [`Pool::status`] tells which. Drives that nothing refers to any more are removed by then.
    ///
    /// # Errors
    /// When the pool was closed.
    pub async fn wait_for_repair(&self) -> Result<()> {
        for shard in self.inner.shards.iter() {
            shard.call(|shard| async move { shard.wait_for_repair().await }).await?;
        }
        self.inner.control.call(|control| async move { control.drive_changes_finished().await }).await?;
        Ok(())
    }

    /// Makes every shard write a checkpoint now.
    ///
    /// # Errors
    /// When one cannot be written.
    pub async fn checkpoint(&self) -> Result<()> {
        for shard in self.inner.shards.iter() {
            shard.call(|shard| async move { shard.checkpoint_now().await }).await??;
        }
        Ok(())
    }

    /// Opens a volume by name.
    ///
    /// # Errors
    /// `NotFound`, or `Busy` while it is being deleted.
    pub async fn open_volume(&self, name: &str) -> Result<Volume> {
        let name = name.to_owned();
        let open = move |catalogue: std::rc::Rc<Catalogue>| async move { catalogue.open(&name) };
        let shared = self.inner.catalogue.call(open).await??;
        Ok(Volume::new(shared, self.clone()))
    }
}

#[cfg(test)]
mod atomic_tests;
#[cfg(test)]
mod extents_tests;
#[cfg(test)]
mod journal_tests;
#[cfg(test)]
mod snapshot_tests;
#[cfg(test)]
mod spread_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod thick_tests;
