//! The pool's part in repair: zones for columns, and forgetting drives that nothing refers to any more.
//!
//! A drive that was lost counts against what the pool bears until every segment is whole without it. Then it is removed,
//! and the pool bears as much as it did before. Always true (Z2): a drive is removed only when no checkpoint that a recovery
//! could start from, and no segment since, refers to it or misses a column.

use std::rc::Rc;

use format::{DriveIndex, DriveState, ZoneIndex};
use reactor::Reactor;

use super::Control;
use crate::error::{ErrorKind, Result};

/// The answer to a wish for a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spare {
    /// Here it is.
    Zone((DriveIndex, ZoneIndex)),
    /// There is too little space; what is left is needed more elsewhere.
    NoSpace,
    /// Every drive in use has a column of the segment.
    NoDrive,
}

impl Control {
    /// A zone for a column of a segment whose others are on the drives `avoid`. Repair takes no more than users may, and
    /// leaves a segment for each shard: otherwise overwriting in a full pool would end with the loss of a drive.
    ///
    /// # Errors
    /// When the pool has failed.
    pub(super) async fn allocate_one(&self, avoid: &[DriveIndex]) -> Result<Spare> {
        let (zone, warm) = {
            let mut state = self.state.borrow_mut();
            if let Some(failure) = &state.failure {
                return Err(failure.clone());
            }
            if !state.zones.has_other(avoid) {
                return Ok(Spare::NoDrive);
            }
            let shards = u32::try_from(state.superblock.shards.len()).unwrap_or(u32::MAX);
            let kept = self.reserve.with_drives(state.zones.drives()) + shards;
            if state.zones.available(self.geometry.scheme) <= kept {
                return Ok(Spare::NoSpace);
            }
            match state.zones.allocate_one(self.geometry.scheme, avoid) {
                Some(taken) => taken,
                None => return Ok(Spare::NoSpace),
            }
        };
        self.count_space();
        if warm {
            return Ok(Spare::Zone(zone));
        }
        if let Err(error) = self.reserve_backing(&[zone]).await {
            self.state.borrow_mut().zones.give_back([zone].into_iter(), &[zone]);
            self.count_space();
            return if error.kind() == ErrorKind::NoSpace { Ok(Spare::NoSpace) } else { Err(error) };
        }
        Ok(Spare::Zone(zone))
    }

    /// Removes the drives that are lost, if nothing refers to them any more. In the background.
    pub(super) fn dismiss_lost(self: Rc<Self>) {
        self.dismiss_again.set(true);
        if self.dismissing.replace(true) {
            return;
        }
        let dismiss = async move {
            while self.dismiss_again.replace(false) {
                self.try_dismiss().await;
            }
            self.dismissing.set(false);
            self.idle.wake_all();
        };
        Reactor::current().spawn(dismiss).detach();
    }

    /// Waits while lost drives are being looked at.
    pub(crate) async fn dismissed(&self) {
        self.idle.until(|| (!self.dismissing.get()).then_some(())).await;
    }

    async fn try_dismiss(&self) {
        let lost = self.lost_drives();
        let shards = self.shards.borrow().clone();
        let all_known = shards.len() == self.state.borrow().superblock.shards.len();
        if lost.is_empty() || !all_known || !self.has_enough_drives() {
            return;
        }
        // The shards must know of all of them.
        for drive in &lost {
            if self.loss_settled(*drive).await.is_err() {
                return;
            }
        }
        for shard in shards {
            let whole = shard.call(|shard| async move { shard.confirm_whole().await }).await;
            if whole != Ok(true) {
                return;
            }
        }
        // A drive that was lost meanwhile was not asked about; segments that are opened from here on have all their columns.
        if self.lost_drives() != lost || !self.has_enough_drives() {
            return;
        }
        let removed = self.publish(|superblock| {
            let since = superblock.generation;
            for drive in &lost {
                if let Some(record) = superblock.drives.get_mut(drive.index()) {
                    (record.state, record.since) = (DriveState::Removed, since);
                }
            }
        });
        if removed.await.is_ok() {
            let numbers: Vec<_> = lost.iter().map(|drive| drive.get()).collect();
            tracing::info!(drives = ?numbers, "everything is whole without the lost drives: they are no part of the pool any more");
        }
        self.count_space();
    }

    fn lost_drives(&self) -> Vec<DriveIndex> {
        let state = self.state.borrow();
        let lost = |state| matches!(state, DriveState::Missing | DriveState::Failed);
        let numbered = (0..).map(DriveIndex::new).zip(&state.superblock.drives);
        numbered.filter(|(_, record)| lost(record.state)).map(|(index, _)| index).collect()
    }

    /// True if a segment finds a drive for each of its columns.
    fn has_enough_drives(&self) -> bool {
        let state = self.state.borrow();
        state.zones.drives() >= u32::from(self.geometry.scheme.width())
    }
}
