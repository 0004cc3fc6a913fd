//! Access to the pool's control for shards on other reactors.

use std::rc::Rc;

use format::{
    DriveIndex, Incarnation, Scheme, SegmentClass, SegmentRecord, ShardIndex, ShardRecord, Superblock,
    ZoneIndex,
};
use reactor::{Handle, IoError};

use super::{Control, ZoneGrant};
use crate::bad_reads::BadRead;
use crate::error::Result;
use crate::scrub::ScrubFindings;
use crate::segments::AllocPriority;

/// A shard's handle to the pool's control.
#[derive(Clone)]
pub(crate) struct ControlLink {
    pub(crate) control: Handle<Control>,
    pub(crate) shard: ShardIndex,
}

impl ControlLink {
    /// See [`Control::allocate`].
    pub(crate) async fn allocate(
        &self,
        scheme: Scheme,
        class: SegmentClass,
        priority: AllocPriority,
    ) -> Result<(SegmentRecord, AllocPriority)> {
        let allocate =
            move |control: Rc<Control>| async move { control.allocate(scheme, class, priority).await };
        self.control.call(allocate).await?
    }

    /// Publishes the shard's record in the superblock.
    pub(crate) async fn publish(&self, record: ShardRecord) -> Result<()> {
        let index = self.shard.index();
        let publish = move |control: Rc<Control>| async move {
            let change = |superblock: &mut Superblock| {
                if let Some(place) = superblock.shards.get_mut(index) {
                    *place = record;
                }
            };
            control.publish(change).await
        };
        self.control.call(publish).await?
    }

    /// See [`Control::drive_failed`].
    pub(crate) async fn drive_failed(
        &self,
        drive: DriveIndex,
        operation: &'static str,
        error: IoError,
    ) -> Result<()> {
        let failed =
            move |control: Rc<Control>| async move { control.drive_failed(drive, operation, error).await };
        self.control.call(failed).await?
    }

    /// Releases zones in the background.
    pub(crate) fn release(&self, zones: Vec<(DriveIndex, ZoneIndex)>) {
        let control = self.control.clone();
        let _ = self.control.remote().post(move || {
            if let Some(control) = control.local() {
                control.release(&zones);
                control.retire_if_short();
            }
        });
    }

    /// See [`Control::allocate_one`].
    pub(crate) async fn allocate_one(&self, avoid: Vec<DriveIndex>) -> Result<ZoneGrant> {
        let allocate = move |control: Rc<Control>| async move { control.allocate_one(&avoid).await };
        self.control.call(allocate).await?
    }

    /// See [`Control::record_bad_reads`].
    pub(crate) async fn record_bad_reads(&self, reads: Vec<BadRead>) {
        let note = move |control: Rc<Control>| async move { control.record_bad_reads(&reads).await };
        // A failed or closed pool ignores this.
        let _ = self.control.call(note).await;
    }

    /// See [`Control::record_lost_blocks`].
    pub(crate) async fn record_lost_blocks(&self, count: u64) {
        let shard = self.shard;
        // A failed or closed pool ignores this.
        let _ =
            self.control.call(move |control| async move { control.record_lost_blocks(shard, count) }).await;
    }

    /// See [`Control::record_scrub_progress`].
    pub(crate) async fn record_scrub_progress(&self, run: u64, position: Incarnation, found: ScrubFindings) {
        let shard = self.shard;
        let note = move |control: Rc<Control>| async move {
            control.record_scrub_progress(run, shard, position, &found).await;
        };
        // A failed or closed pool ignores this.
        let _ = self.control.call(note).await;
    }

    /// Cleans in the other shards; returns true if this freed space.
    pub(crate) async fn clean_other_shards(&self) -> bool {
        let shard = self.shard.index();
        let clean = move |control: Rc<Control>| async move { control.clean_others(shard).await };
        self.control.call(clean).await.unwrap_or(false)
    }

    /// Reports that repair in this shard has finished or cannot continue; see
    /// [`Control::finish_drive_changes`].
    pub(crate) async fn repair_finished(&self, complete: bool) {
        let _ = self.control.call(move |control| async move { control.finish_drive_changes(complete) }).await;
    }
}
