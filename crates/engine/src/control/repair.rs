//! The control's part in repair: zones for columns, and final drive states after repair.
//!
//! A lost drive reduces the pool's redundancy until every segment is complete without it; then the
//! drive is removed. A draining drive is removed in the same way. A returned drive counts as lost
//! until it lacks nothing. Always true (Z2): a drive is removed only when no checkpoint usable by a
//! recovery, and no later segment, refers to it or lacks a column.

use std::rc::Rc;

use format::{DriveIndex, DriveState, EventKind, Superblock};
use reactor::{Handle, Reactor};

use super::Control;
use crate::control_link::ZoneGrant;
use crate::error::{ErrorKind, Result};
use crate::invariant::narrow;
use crate::shard::{Completeness, Shard};

/// Drives that change state when segments are complete.
#[derive(Debug, PartialEq, Eq)]
struct PendingDrives {
    /// Lost or draining; to be removed.
    removing: Vec<DriveIndex>,
    /// Returned; to be online.
    returning: Vec<DriveIndex>,
}

impl PendingDrives {
    fn apply(&self, superblock: &mut Superblock, remove: bool) {
        let (since, now) = (superblock.generation, superblock.stamp());
        let removing = self.removing.iter().filter(|_| remove).map(|drive| (drive, DriveState::Removed));
        let returning = self.returning.iter().map(|drive| (drive, DriveState::Online));
        for (drive, state) in removing.chain(returning) {
            if let Some(record) = superblock.drives.get_mut(drive.index()) {
                if record.state.is_in_use() && !state.is_in_use() {
                    record.left_at = now;
                }
                (record.state, record.since) = (state, since);
            }
        }
    }
}

impl Control {
    /// Allocates a zone for one column of a segment. The segment's other columns are on the drives
    /// `avoid`. Repair has the same limit as user data and leaves one segment per shard; otherwise
    /// a full pool could not be overwritten after a drive loss.
    ///
    /// # Errors
    /// If the pool has failed.
    pub(super) async fn allocate_one(&self, avoid: &[DriveIndex]) -> Result<ZoneGrant> {
        let (zone, backed) = {
            let mut state = self.state.borrow_mut();
            if let Some(failure) = &state.failure {
                return Err(failure.clone());
            }
            if !state.zones.has_other(avoid) {
                return Ok(ZoneGrant::NoDrive);
            }
            let shards: u32 = narrow(state.superblock.shards.len(), "C5");
            let reserved = self.reserve.get().with_drives(state.zones.drives()) + shards;
            // Zones that no segment can use, for lack of zones on other drives, are always
            // available.
            let only_unused = state.zones.available(self.geometry.scheme) <= reserved;
            match state.zones.allocate_one(self.geometry.scheme, avoid, only_unused) {
                Some(taken) => taken,
                None => return Ok(ZoneGrant::NoSpace),
            }
        };
        self.count_space();
        if backed {
            return Ok(ZoneGrant::Zone(zone));
        }
        if let Err(error) = self.reserve_backing(&[zone]).await {
            self.state.borrow_mut().zones.return_unused([zone].into_iter(), &[zone]);
            self.count_space();
            return if error.kind() == ErrorKind::NoSpace { Ok(ZoneGrant::NoSpace) } else { Err(error) };
        }
        Ok(ZoneGrant::Zone(zone))
    }

    /// Removes lost and draining drives that nothing refers to, and sets returned drives that lack
    /// nothing to online. Runs in the background. If a shard is not `complete`, only returned
    /// drives are considered.
    pub(super) fn finish_drive_changes(self: Rc<Self>, complete: bool) {
        if !complete && self.pending_drives().returning.is_empty() {
            return;
        }
        self.finish_again.set(true);
        if self.finishing_changes.replace(true) {
            return;
        }
        let finish = async move {
            while self.finish_again.replace(false) {
                self.try_finish_drive_changes().await;
            }
            self.finishing_changes.set(false);
            self.idle.wake_all();
        };
        Reactor::current().spawn(finish).detach();
    }

    /// Waits while drive states are being checked.
    pub(crate) async fn drive_changes_finished(&self) {
        self.idle.until(|| (!self.finishing_changes.get()).then_some(())).await;
    }

    async fn try_finish_drive_changes(self: &Rc<Self>) {
        // Drives that drain or have returned are known to every shard.
        let Ok(_permit) = self.begin_change().await else { return };
        let before = self.pending_drives();
        let removable = !before.removing.is_empty() && self.may_remove();
        let shards = self.shards.borrow().clone();
        let all_shards = shards.len() == self.state.borrow().superblock.shards.len();
        if !all_shards || !removable && before.returning.is_empty() {
            return;
        }
        // The shards must know all lost drives.
        for drive in &before.removing {
            if self.loss_propagated(*drive).await.is_err() {
                return;
            }
        }
        let mut complete = Completeness::default();
        let only_whole = before.returning.is_empty();
        for shard in &shards {
            match shard.call(move |shard| async move { shard.repair.confirm(&shard, only_whole).await }).await
            {
                Ok(Some(shard_state)) => complete = complete.and(shard_state),
                _ => return,
            }
        }
        // A drive lost meanwhile was not checked. Segments opened from now on have all columns.
        if self.pending_drives() != before {
            return;
        }
        let remove = removable && complete.is_whole() && self.may_remove();
        let lost = self.lost_drives();
        let restore = remove || complete.missing <= lost && self.has_room_with(lost);
        if !remove && (!restore || before.returning.is_empty()) {
            return;
        }
        let applied = self.publish(|superblock| before.apply(superblock, remove));
        if applied.await.is_ok() {
            let emit = |drives: &[DriveIndex], kind| {
                drives.iter().for_each(|drive| self.events.emit_drive(*drive, kind, &self.path_of(*drive)));
            };
            let numbers = |drives: &[DriveIndex]| drives.iter().map(|drive| drive.get()).collect::<Vec<_>>();
            if remove {
                let drives = numbers(&before.removing);
                tracing::info!(?drives, "drives removed: all data is on other drives");
                emit(&before.removing, EventKind::DriveRemoved);
            }
            if !before.returning.is_empty() {
                let drives = numbers(&before.returning);
                tracing::info!(?drives, "drives are complete again");
                emit(&before.returning, EventKind::DriveResynced);
            }
            if remove {
                let reserve = self.reserve.get().grown(&self.state.borrow().superblock);
                self.reserve.set(reserve);
                self.forget(&before.removing, &shards).await;
            }
        }
        self.count_space();
        self.schedule_retirement();
    }

    /// Drops removed drives in all shards and in the control.
    async fn forget(&self, drives: &[DriveIndex], shards: &[Handle<Shard>]) {
        for drive in drives.iter().copied() {
            for shard in shards {
                let _ = shard.call(move |shard| async move { shard.remove_drive(drive) }).await;
            }
            if let Some(place) = self.drives.borrow_mut().get_mut(drive.index()) {
                *place = None;
            }
        }
    }

    /// The drives that change state when segments are complete.
    fn pending_drives(&self) -> PendingDrives {
        let state = self.state.borrow();
        let numbered = || (0..).map(DriveIndex::new).zip(&state.superblock.drives);
        let drives_in = |wanted: fn(DriveState) -> bool| {
            numbered().filter(|(_, record)| wanted(record.state)).map(|(index, _)| index).collect()
        };
        PendingDrives {
            removing: drives_in(|state| state.is_lost() || state == DriveState::Draining),
            returning: drives_in(|state| state == DriveState::Returning),
        }
    }

    /// Number of lost drives.
    fn lost_drives(&self) -> usize {
        self.state.borrow().superblock.drives.iter().filter(|record| record.state.is_lost()).count()
    }

    /// Returns true if segments have enough drives and space for all columns without the lost
    /// drives.
    fn may_remove(&self) -> bool {
        let drives = self.state.borrow().zones.drives();
        drives >= u32::from(self.geometry.scheme.width()) && self.has_room_with(0)
    }

    /// Returns true if there is space for segments when only `lost` drives count as lost. Segments
    /// may lack one column per lost drive, so unequal drives may have room only while more drives
    /// count as lost.
    fn has_room_with(&self, lost: usize) -> bool {
        let state = self.state.borrow();
        let (zones, scheme) = (&state.zones, self.geometry.scheme);
        let shards: u32 = narrow(state.superblock.shards.len(), "C5");
        let reserved = self.reserve.get().with_drives(zones.drives()) + shards;
        let available = zones.available_with(scheme, narrow(lost, "C5"));
        available >= zones.available(scheme).min(reserved)
    }
}
