//! Losing drives: the superblocks say so first, then everybody takes it out of use, and only then does anybody count on it (C3).
//!
//! Until a shard is told it goes on writing to the drive; what the drive fails then waits for the loss to be settled. So no record
//! is ever answered that a drive misses without a superblock saying that it may.

use std::rc::Rc;

use format::{DriveIndex, DriveState, EventKind};
use reactor::{Home, IoError, IoErrorKind, Reactor};

use super::Control;
use crate::error::{Error, ErrorKind, Result};
use crate::shard::Shard;

impl Control {
    /// Takes a drive out of use everywhere and makes the superblocks say so (C3).
    ///
    /// # Errors
    /// When that is more than the scheme bears: the pool has failed then.
    pub(super) async fn drive_failed(
        self: &Rc<Self>,
        drive: DriveIndex,
        doing: &'static str,
        error: IoError,
    ) -> Result<()> {
        self.drive_error(drive, doing, error);
        self.loss_propagated(drive).await
    }

    /// Loses a drive for what it answered: one that is gone may come back as it was.
    pub(super) fn drive_error(self: &Rc<Self>, drive: DriveIndex, doing: &'static str, error: IoError) {
        let gone = error.kind() == IoErrorKind::Gone;
        let state = if gone { DriveState::Missing } else { DriveState::Failed };
        self.remove_from_use(state, drive, doing, error);
    }

    /// Takes a drive out of use on request.
    ///
    /// # Errors
    /// `NotFound` if it is not in use, `PoolFailed` if the pool could not bear that; nothing has changed then.
    pub(crate) async fn fail_drive(self: &Rc<Self>, drive: DriveIndex) -> Result<()> {
        {
            let state = self.state.borrow();
            if !state.is_in_use(drive) {
                return Err(Error::new(ErrorKind::NotFound, format!("drive {drive} is not in use")));
            }
            if state.lost_with(drive) > usize::from(self.geometry.scheme.parity()) {
                let message = format!(
                    "the pool cannot bear the loss of drive {drive}: {} lost already, or not whole yet",
                    state.lost()
                );
                return Err(Error::new(ErrorKind::PoolFailed, message));
            }
        }
        let error = IoError::new(IoErrorKind::Gone);
        self.remove_from_use(DriveState::Failed, drive, "taken out of use on request", error);
        self.loss_propagated(drive).await
    }

    /// Takes a drive out of use: [`Control::loss_propagated`] tells when that is done.
    fn remove_from_use(
        self: &Rc<Self>,
        becomes: DriveState,
        drive: DriveIndex,
        doing: &'static str,
        error: IoError,
    ) {
        let first = {
            let mut state = self.state.borrow_mut();
            let online = state.superblock.drive(drive).is_some_and(|record| record.state.is_in_use());
            if !online {
                false
            } else if state.lost_with(drive) > usize::from(self.geometry.scheme.parity()) {
                let why = Error::new(
                    ErrorKind::PoolFailed,
                    format!("{doing} on drive {drive} ({error}), and the pool cannot bear another loss"),
                );
                tracing::error!(%drive, %error, doing, "too many drives are lost: the pool takes no more writes");
                state.failure.get_or_insert(why);
                false
            } else {
                state.mark_lost(drive, becomes);
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
            tracing::error!(%drive, %error, doing, "a drive is lost: the pool is degraded");
            let path = self.path_of(drive);
            let (kind, text) = match becomes {
                DriveState::Missing => (EventKind::DriveLost, format!("{path}: {doing}: {error}")),
                _ if error.kind() == IoErrorKind::Gone => {
                    (EventKind::DriveFailed, format!("{path}: {doing}"))
                }
                _ => (EventKind::DriveFailed, format!("{path}: {doing}: {error}")),
            };
            self.events.emit_drive(drive, kind, &text);
            self.state.borrow_mut().propagating.push(drive);
            let control = self.clone();
            Reactor::current().spawn(async move { control.propagate_loss(drive).await }).detach();
        }
    }

    /// Publishes that a drive is lost, then tells the shards, each of which publishes what that changes for it.
    async fn propagate_loss(self: Rc<Self>, drive: DriveIndex) {
        if self.publish(|_| ()).await.is_ok() {
            let shards = self.shards.borrow().clone();
            for shard in shards {
                let leaving = self.leaving();
                let leave = move |shard: Rc<Shard>| async move {
                    shard.set_draining(&leaving);
                    shard.detach_drive(drive).await
                };
                // One that is closed, or fails, counts on nothing any more.
                let _ = shard.call(leave).await;
            }
        }
        if let Some(place) = self.drives.borrow_mut().get_mut(drive.index()) {
            *place = None;
        }
        self.state.borrow_mut().propagating.retain(|propagating| *propagating != drive);
        self.loss_done.wake_all();
    }

    /// Waits until everybody knows that a drive is lost.
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

    /// Introduces a shard before it writes anything, and tells it what has been lost since its drives were opened.
    ///
    /// # Errors
    /// When the pool has failed.
    pub(crate) async fn add_shard(&self, shard: Home<Shard>) -> Result<()> {
        self.shards.borrow_mut().push(shard.clone());
        let drives = self.state.borrow().superblock.drives.clone();
        for (index, _) in drives.iter().enumerate().filter(|(_, drive)| !drive.state.is_in_use()) {
            let drive = DriveIndex::new(u16::try_from(index).unwrap_or(u16::MAX));
            shard.call(move |shard| async move { shard.detach_drive(drive).await }).await??;
        }
        let leaving = self.leaving();
        shard.call(move |shard| async move { shard.set_draining(&leaving) }).await?;
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
