//! The pool's part in repair: zones for columns, and deciding on drives when segments are complete.
//!
//! A drive that was lost counts against what the pool bears until every segment is whole without it. Then it is removed,
//! and the pool bears as much as it did before; so is one that was to be emptied. One that has come back counts until no segment
//! misses anything for it. Always true (Z2): a drive is removed only when no checkpoint that a recovery
//! could start from, and no segment since, refers to it or misses a column.

use std::rc::Rc;

use format::{DriveIndex, DriveState, EventKind, Superblock, ZoneIndex};
use reactor::{Home, Reactor};

use super::Control;
use crate::error::{ErrorKind, Result};
use crate::shard::{Completeness, Shard};

/// The answer to a wish for a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ZoneGrant {
    /// Here it is.
    Zone((DriveIndex, ZoneIndex)),
    /// There is too little space; what is left is needed more elsewhere.
    NoSpace,
    /// Every drive in use has a column of the segment.
    NoDrive,
}

/// Drives of which it is not decided what becomes of them.
#[derive(Debug, PartialEq, Eq)]
struct PendingDrives {
    /// Lost, or to be emptied.
    removing: Vec<DriveIndex>,
    /// Lost once, and in use again.
    returning: Vec<DriveIndex>,
}

impl PendingDrives {
    fn decide(&self, superblock: &mut Superblock, removes: bool) {
        let (since, now) = (superblock.generation, superblock.stamp());
        let removing = self.removing.iter().filter(|_| removes).map(|drive| (drive, DriveState::Removed));
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
    /// A zone for a column of a segment whose others are on the drives `avoid`. Repair takes no more than users may, and
    /// leaves a segment for each shard: otherwise overwriting in a full pool would end with the loss of a drive.
    ///
    /// # Errors
    /// When the pool has failed.
    pub(super) async fn allocate_one(&self, avoid: &[DriveIndex]) -> Result<ZoneGrant> {
        let (zone, backed) = {
            let mut state = self.state.borrow_mut();
            if let Some(failure) = &state.failure {
                return Err(failure.clone());
            }
            if !state.zones.has_other(avoid) {
                return Ok(ZoneGrant::NoDrive);
            }
            let shards = u32::try_from(state.superblock.shards.len()).unwrap_or(u32::MAX);
            let kept = self.reserve.get().with_drives(state.zones.drives()) + shards;
            // Zones that no segment could use, for want of others, are there for it in any case.
            let only_unused = state.zones.available(self.geometry.scheme) <= kept;
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

    /// Removes the drives that are lost or were to be emptied, if nothing refers to them any more, and takes those that came back for
    /// as good as others, if nothing misses anything for them. In the background.
    /// If a shard is not `whole`, only drives that came back can be decided on.
    pub(super) fn finish_drive_changes(self: Rc<Self>, whole: bool) {
        if !whole && self.pending_drives().returning.is_empty() {
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

    /// Waits while lost drives are being looked at.
    pub(crate) async fn drive_changes_finished(&self) {
        self.idle.until(|| (!self.finishing_changes.get()).then_some(())).await;
    }

    async fn try_finish_drive_changes(self: &Rc<Self>) {
        // Whoever is to be emptied, or has come back, is known to every shard.
        let Ok(_alone) = self.begin_change().await else { return };
        let before = self.pending_drives();
        let parts = !before.removing.is_empty() && self.may_remove();
        let shards = self.shards.borrow().clone();
        let all_known = shards.len() == self.state.borrow().superblock.shards.len();
        if !all_known || !parts && before.returning.is_empty() {
            return;
        }
        // The shards must know of all of them.
        for drive in &before.removing {
            if self.loss_propagated(*drive).await.is_err() {
                return;
            }
        }
        let mut complete = Completeness::default();
        let only_whole = before.returning.is_empty();
        for shard in &shards {
            match shard.call(move |shard| async move { shard.confirm(only_whole).await }).await {
                Ok(Some(of_shard)) => complete = complete.and(of_shard),
                _ => return,
            }
        }
        // A drive that was lost meanwhile was not asked about; segments that are opened from here on have all their columns.
        if self.pending_drives() != before {
            return;
        }
        let removes = parts && complete.is_whole() && self.may_remove();
        let lost = self.lost_drives();
        let returns = removes || complete.missing <= lost && self.has_room_with(lost);
        if !removes && (!returns || before.returning.is_empty()) {
            return;
        }
        let decided = self.publish(|superblock| before.decide(superblock, removes));
        if decided.await.is_ok() {
            let say = |drives: &[DriveIndex], kind| {
                drives.iter().for_each(|drive| self.events.emit_drive(*drive, kind, &self.path_of(*drive)));
            };
            let numbers = |drives: &[DriveIndex]| drives.iter().map(|drive| drive.get()).collect::<Vec<_>>();
            if removes {
                let drives = numbers(&before.removing);
                tracing::info!(
                    ?drives,
                    "everything lies on other drives: these are no part of the pool any more"
                );
                say(&before.removing, EventKind::DriveRemoved);
            }
            if !before.returning.is_empty() {
                let drives = numbers(&before.returning);
                tracing::info!(
                    ?drives,
                    "what they missed is there: these drives are as good as the others again"
                );
                say(&before.returning, EventKind::DriveResynced);
            }
            if removes {
                let reserve = self.reserve.get().grown(&self.state.borrow().superblock);
                self.reserve.set(reserve);
                self.forget(&before.removing, &shards).await;
            }
        }
        self.count_space();
        self.schedule_retirement();
    }

    /// Lets go of drives that belong to the pool no more.
    async fn forget(&self, drives: &[DriveIndex], shards: &[Home<Shard>]) {
        for drive in drives.iter().copied() {
            for shard in shards {
                let _ = shard.call(move |shard| async move { shard.remove_drive(drive) }).await;
            }
            if let Some(place) = self.drives.borrow_mut().get_mut(drive.index()) {
                *place = None;
            }
        }
    }

    /// The drives that are decided on when segments are complete.
    fn pending_drives(&self) -> PendingDrives {
        let state = self.state.borrow();
        let numbered = || (0..).map(DriveIndex::new).zip(&state.superblock.drives);
        let those = |wanted: fn(DriveState) -> bool| {
            numbered().filter(|(_, record)| wanted(record.state)).map(|(index, _)| index).collect()
        };
        PendingDrives {
            removing: those(|state| state.is_lost() || state == DriveState::Draining),
            returning: those(|state| state == DriveState::Returning),
        }
    }

    /// Drives that are lost.
    fn lost_drives(&self) -> usize {
        self.state.borrow().superblock.drives.iter().filter(|record| record.state.is_lost()).count()
    }

    /// True if the pool does without the lost drives: a segment finds a drive for each of its columns, and room for them.
    fn may_remove(&self) -> bool {
        let drives = self.state.borrow().zones.drives();
        drives >= u32::from(self.geometry.scheme.width()) && self.has_room_with(0)
    }

    /// True if there is room for segments when so few drives count as lost. The drives may be too unequal for that; segments may do
    /// without columns as long as others count as lost.
    fn has_room_with(&self, lost: usize) -> bool {
        let state = self.state.borrow();
        let (zones, scheme) = (&state.zones, self.geometry.scheme);
        let shards = u32::try_from(state.superblock.shards.len()).unwrap_or(u32::MAX);
        let kept = self.reserve.get().with_drives(zones.drives()) + shards;
        let then = zones.available_with(scheme, u32::try_from(lost).unwrap_or(u32::MAX));
        then >= zones.available(scheme).min(kept)
    }
}
