//! The services of the pool's control, as the shards and their logs use them.
//!
//! The control has its own reactor and calls the shards in turn. The shards know it only by this
//! interface.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use format::{
    DriveIndex, Incarnation, Scheme, SegmentClass, SegmentRecord, ShardIndex, ShardRecord, ZoneIndex,
};
use reactor::IoError;

use crate::bad_reads::BadRead;
use crate::error::Result;
use crate::scrub::ScrubFindings;
use crate::segments::AllocPriority;
use crate::zones::FreeSpace;

/// The future of a service.
pub(crate) type ServiceFuture<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// Result of a zone allocation for a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ZoneGrant {
    /// An allocated zone.
    Zone((DriveIndex, ZoneIndex)),
    /// Too little free space, or the rest is reserved.
    NoSpace,
    /// Every online drive holds a column of the segment.
    NoDrive,
}

/// The services of the control, for shards on any reactor.
pub(crate) trait ControlServices: Send + Sync {
    /// Allocates zones for a new segment; also returns the lowest priority that may use it.
    fn allocate(
        &self,
        scheme: Scheme,
        class: SegmentClass,
        priority: AllocPriority,
    ) -> ServiceFuture<'_, Result<(SegmentRecord, AllocPriority)>>;

    /// Publishes a shard's record in the superblock.
    fn publish(&self, shard: ShardIndex, record: ShardRecord) -> ServiceFuture<'_, Result<()>>;

    /// Takes a failed drive offline in all shards and publishes the loss in the superblocks (C3).
    fn drive_failed(
        &self,
        drive: DriveIndex,
        operation: &'static str,
        error: IoError,
    ) -> ServiceFuture<'_, Result<()>>;

    /// Releases zones in the background.
    fn release(&self, zones: Vec<(DriveIndex, ZoneIndex)>);

    /// Allocates a zone for one column of a segment, on none of the drives `avoid`.
    fn allocate_one(&self, avoid: Vec<DriveIndex>) -> ServiceFuture<'_, Result<ZoneGrant>>;

    /// Returns the free zones that new segments can take.
    fn free_space(&self) -> ServiceFuture<'_, Result<FreeSpace>>;

    /// Counts bad reads. A failed or closed pool ignores this.
    fn record_bad_reads(&self, reads: Vec<BadRead>) -> ServiceFuture<'_, ()>;

    /// Stores the number of lost blocks of a shard. A failed or closed pool ignores this.
    fn record_lost_blocks(&self, shard: ShardIndex, count: u64) -> ServiceFuture<'_, ()>;

    /// Stores the progress of a shard's scrub. A failed or closed pool ignores this.
    fn record_scrub_progress(
        &self,
        shard: ShardIndex,
        run: u64,
        position: Incarnation,
        found: ScrubFindings,
    ) -> ServiceFuture<'_, ()>;

    /// Cleans in the shards other than `shard`; returns true if this freed space.
    fn clean_other_shards(&self, shard: ShardIndex) -> ServiceFuture<'_, bool>;

    /// Reports that repair in a shard has finished or cannot continue.
    fn repair_finished(&self, complete: bool) -> ServiceFuture<'_, ()>;
}

/// A shard's access to the pool's control.
#[derive(Clone)]
pub(crate) struct ControlLink {
    pub(crate) control: Arc<dyn ControlServices>,
    pub(crate) shard: ShardIndex,
}

impl ControlLink {
    /// See [`ControlServices::allocate`].
    pub(crate) async fn allocate(
        &self,
        scheme: Scheme,
        class: SegmentClass,
        priority: AllocPriority,
    ) -> Result<(SegmentRecord, AllocPriority)> {
        self.control.allocate(scheme, class, priority).await
    }

    /// See [`ControlServices::publish`].
    pub(crate) async fn publish(&self, record: ShardRecord) -> Result<()> {
        self.control.publish(self.shard, record).await
    }

    /// See [`ControlServices::drive_failed`].
    pub(crate) async fn drive_failed(
        &self,
        drive: DriveIndex,
        operation: &'static str,
        error: IoError,
    ) -> Result<()> {
        self.control.drive_failed(drive, operation, error).await
    }

    /// See [`ControlServices::release`].
    pub(crate) fn release(&self, zones: Vec<(DriveIndex, ZoneIndex)>) {
        self.control.release(zones);
    }

    /// See [`ControlServices::allocate_one`].
    pub(crate) async fn allocate_one(&self, avoid: Vec<DriveIndex>) -> Result<ZoneGrant> {
        self.control.allocate_one(avoid).await
    }

    /// See [`ControlServices::free_space`].
    pub(crate) async fn free_space(&self) -> Result<FreeSpace> {
        self.control.free_space().await
    }

    /// See [`ControlServices::record_bad_reads`].
    pub(crate) async fn record_bad_reads(&self, reads: Vec<BadRead>) {
        self.control.record_bad_reads(reads).await;
    }

    /// See [`ControlServices::record_lost_blocks`].
    pub(crate) async fn record_lost_blocks(&self, count: u64) {
        self.control.record_lost_blocks(self.shard, count).await;
    }

    /// See [`ControlServices::record_scrub_progress`].
    pub(crate) async fn record_scrub_progress(&self, run: u64, position: Incarnation, found: ScrubFindings) {
        self.control.record_scrub_progress(self.shard, run, position, found).await;
    }

    /// See [`ControlServices::clean_other_shards`].
    pub(crate) async fn clean_other_shards(&self) -> bool {
        self.control.clean_other_shards(self.shard).await
    }

    /// See [`ControlServices::repair_finished`].
    pub(crate) async fn repair_finished(&self, complete: bool) {
        self.control.repair_finished(complete).await;
    }
}
