//! Drive loss: publish it in the superblocks, then take the drive offline in every shard (C3).
//!
//! Until a shard is notified, it keeps writing to the drive; a failed write waits until the loss is
//! published. Therefore no record is acknowledged that lacks a column on the drive before a
//! superblock records the loss.

use std::rc::Rc;

use format::{DriveIndex, DriveState, EventKind};
use reactor::{Handle, IoError, IoErrorKind, Reactor};

use super::Control;
use crate::error::{Error, ErrorKind, Result};
use crate::invariant::narrow;
use crate::shard::Shard;

impl Control {
    /// Takes a drive offline in all shards and publishes the loss in the superblocks (C3).
    ///
    /// # Errors
    /// If the scheme does not tolerate the loss; the pool has then failed.
    pub(super) async fn drive_failed(
        self: &Rc<Self>,
        drive: DriveIndex,
        operation: &'static str,
        error: IoError,
    ) -> Result<()> {
        self.drive_error(drive, operation, error);
        self.loss_propagated(drive).await
    }

    /// Handles a drive error; a drive that was removed counts as missing and may return.
    pub(super) fn drive_error(self: &Rc<Self>, drive: DriveIndex, operation: &'static str, error: IoError) {
        let gone = error.kind() == IoErrorKind::Gone;
        let state = if gone { DriveState::Missing } else { DriveState::Failed };
        self.remove_from_use(state, drive, operation, error);
    }

    /// Takes a drive offline on request.
    ///
    /// # Errors
    /// `NotFound` if it is not online, `PoolFailed` if the pool does not tolerate the loss; then
    /// nothing has changed.
    pub(crate) async fn fail_drive(self: &Rc<Self>, drive: DriveIndex) -> Result<()> {
        {
            let state = self.state.borrow();
            if !state.is_in_use(drive) {
                return Err(Error::new(ErrorKind::NotFound, format!("drive {drive} is not online")));
            }
            if state.lost_with(drive) > usize::from(self.geometry.scheme.parity()) {
                let message = format!(
                    "the pool cannot tolerate the loss of drive {drive}: {} lost or incomplete",
                    state.lost()
                );
                return Err(Error::new(ErrorKind::PoolFailed, message));
            }
        }
        let error = IoError::new(IoErrorKind::Gone);
        self.remove_from_use(DriveState::Failed, drive, "taken offline on request", error);
        self.loss_propagated(drive).await
    }

    /// Takes a drive offline. [`Control::loss_propagated`] waits for completion.
    fn remove_from_use(
        self: &Rc<Self>,
        new_state: DriveState,
        drive: DriveIndex,
        operation: &'static str,
        error: IoError,
    ) {
        let first = {
            let mut state = self.state.borrow_mut();
            let online = state.superblock.drive(drive).is_some_and(|record| record.state.is_in_use());
            if !online {
                false
            } else if state.lost_with(drive) > usize::from(self.geometry.scheme.parity()) {
                let failure = Error::new(
                    ErrorKind::PoolFailed,
                    format!(
                        "{operation} on drive {drive} ({error}), and the pool cannot tolerate another loss"
                    ),
                );
                tracing::error!(%drive, %error, operation, "too many drives are lost: the pool is read-only");
                state.failure.get_or_insert(failure);
                false
            } else {
                state.mark_lost(drive, new_state);
                state.cancel_draining_drives(&self.events);
                true
            }
        };
        if let Some(failure) = self.failure() {
            self.fail_shards(&failure);
            return;
        }
        if first {
            self.count_space();
            tracing::error!(%drive, %error, operation, "drive lost: the pool is degraded");
            let path = self.path_of(drive);
            let (kind, text) = match new_state {
                DriveState::Missing => (EventKind::DriveLost, format!("{path}: {operation}: {error}")),
                _ if error.kind() == IoErrorKind::Gone => {
                    (EventKind::DriveFailed, format!("{path}: {operation}"))
                }
                _ => (EventKind::DriveFailed, format!("{path}: {operation}: {error}")),
            };
            self.events.emit_drive(drive, kind, &text);
            self.state.borrow_mut().propagating.push(drive);
            let control = self.clone();
            Reactor::current().spawn(async move { control.propagate_loss(drive).await }).detach();
        }
    }

    /// Publishes a loss and then notifies the shards, which update and publish their own state.
    async fn propagate_loss(self: Rc<Self>, drive: DriveIndex) {
        if self.publish(|_| ()).await.is_ok() {
            let shards = self.shards.borrow().clone();
            for shard in shards {
                let draining = self.draining();
                let take_offline = move |shard: Rc<Shard>| async move {
                    shard.repair.set_draining(&shard, &draining);
                    shard.detach_drive(drive).await
                };
                // A closed or failed shard does not use the drive.
                let _ = shard.call(take_offline).await;
            }
        }
        if let Some(place) = self.drives.borrow_mut().get_mut(drive.index()) {
            *place = None;
        }
        self.state.borrow_mut().propagating.retain(|propagating| *propagating != drive);
        self.loss_done.wake_all();
    }

    /// Waits until a loss is published and all shards are notified.
    pub(super) async fn loss_propagated(&self, drive: DriveIndex) -> Result<()> {
        let settled = || {
            let state = self.state.borrow();
            match &state.failure {
                Some(failure) => Some(Err(failure.clone())),
                None => (!state.propagating.contains(&drive)).then_some(Ok(())),
            }
        };
        self.loss_done.until(settled).await
    }

    /// Registers a shard before its first write and notifies it of all lost drives.
    ///
    /// # Errors
    /// If the pool has failed.
    pub(crate) async fn add_shard(&self, shard: Handle<Shard>) -> Result<()> {
        self.shards.borrow_mut().push(shard.clone());
        let drives = self.state.borrow().superblock.drives.clone();
        for (index, _) in drives.iter().enumerate().filter(|(_, drive)| !drive.state.is_in_use()) {
            let drive = DriveIndex::new(narrow(index, "C5"));
            shard.call(move |shard| async move { shard.detach_drive(drive).await }).await??;
        }
        let draining = self.draining();
        shard.call(move |shard| async move { shard.repair.set_draining(&shard, &draining) }).await?;
        Ok(())
    }

    /// Fails every shard: the pool is read-only from now on.
    fn fail_shards(&self, failure: &Error) {
        self.published.wake_all();
        self.loss_done.wake_all();
        self.scrubbing.wake();
        for shard in self.shards.borrow().iter() {
            let (home, failure) = (shard.clone(), failure.clone());
            let _ = shard.remote().post(move || {
                home.local().into_iter().for_each(|shard| shard.fail(&failure));
            });
        }
    }
}
