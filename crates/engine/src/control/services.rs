//! The services of the control, called by shards on other reactors.

use std::rc::Rc;

use format::{
    DriveIndex, Incarnation, Scheme, SegmentClass, SegmentRecord, ShardIndex, ShardRecord, Superblock,
    ZoneIndex,
};
use reactor::{Handle, IoError};

use super::Control;
use crate::bad_reads::BadRead;
use crate::control_link::{ControlServices, ServiceFuture, ZoneGrant};
use crate::error::Result;
use crate::scrub::ScrubFindings;
use crate::segments::AllocPriority;
use crate::zones::FreeSpace;

impl ControlServices for Handle<Control> {
    fn allocate(
        &self,
        scheme: Scheme,
        class: SegmentClass,
        priority: AllocPriority,
    ) -> ServiceFuture<'_, Result<(SegmentRecord, AllocPriority)>> {
        let allocate =
            move |control: Rc<Control>| async move { control.allocate(scheme, class, priority).await };
        Box::pin(async move { self.call(allocate).await? })
    }

    fn publish(&self, shard: ShardIndex, record: ShardRecord) -> ServiceFuture<'_, Result<()>> {
        let publish = move |control: Rc<Control>| async move {
            let change = |superblock: &mut Superblock| {
                if let Some(place) = superblock.shards.get_mut(shard.index()) {
                    *place = record;
                }
            };
            control.publish(change).await
        };
        Box::pin(async move { self.call(publish).await? })
    }

    fn drive_failed(
        &self,
        drive: DriveIndex,
        operation: &'static str,
        error: IoError,
    ) -> ServiceFuture<'_, Result<()>> {
        let failed =
            move |control: Rc<Control>| async move { control.drive_failed(drive, operation, error).await };
        Box::pin(async move { self.call(failed).await? })
    }

    fn release(&self, zones: Vec<(DriveIndex, ZoneIndex)>) {
        let control = self.clone();
        let _ = self.remote().post(move || {
            if let Some(control) = control.local() {
                control.release(&zones);
                control.retire_if_short();
            }
        });
    }

    fn allocate_one(&self, avoid: Vec<DriveIndex>) -> ServiceFuture<'_, Result<ZoneGrant>> {
        let allocate = move |control: Rc<Control>| async move { control.allocate_one(&avoid).await };
        Box::pin(async move { self.call(allocate).await? })
    }

    fn free_space(&self) -> ServiceFuture<'_, Result<FreeSpace>> {
        Box::pin(async move { Ok(self.call(move |control| async move { control.free_space() }).await?) })
    }

    fn record_bad_reads(&self, reads: Vec<BadRead>) -> ServiceFuture<'_, ()> {
        let record = move |control: Rc<Control>| async move { control.record_bad_reads(&reads).await };
        Box::pin(async move {
            let _ = self.call(record).await;
        })
    }

    fn record_lost_blocks(&self, shard: ShardIndex, count: u64) -> ServiceFuture<'_, ()> {
        let record = move |control: Rc<Control>| async move { control.record_lost_blocks(shard, count) };
        Box::pin(async move {
            let _ = self.call(record).await;
        })
    }

    fn record_scrub_progress(
        &self,
        shard: ShardIndex,
        run: u64,
        position: Incarnation,
        found: ScrubFindings,
    ) -> ServiceFuture<'_, ()> {
        let record = move |control: Rc<Control>| async move {
            control.record_scrub_progress(run, shard, position, &found).await;
        };
        Box::pin(async move {
            let _ = self.call(record).await;
        })
    }

    fn clean_other_shards(&self, shard: ShardIndex) -> ServiceFuture<'_, bool> {
        let clean = move |control: Rc<Control>| async move { control.clean_others(shard.index()).await };
        Box::pin(async move { self.call(clean).await.unwrap_or(false) })
    }

    fn repair_finished(&self, complete: bool) -> ServiceFuture<'_, ()> {
        let finish = move |control: Rc<Control>| async move { control.finish_drive_changes(complete) };
        Box::pin(async move {
            let _ = self.call(finish).await;
        })
    }
}
