//! Losing drives: out of use everywhere, and the superblocks say so, before anybody counts on it (C3).

use format::{DriveIndex, DriveState};
use reactor::{IoError, IoErrorKind};

use super::Control;
use crate::error::{Error, ErrorKind, Result};

impl Control {
    /// Takes a drive out of use everywhere and makes the superblocks say so (C3).
    ///
    /// # Errors
    /// When that is more than the scheme bears: the pool has failed then.
    pub(super) async fn drive_failed(
        &self,
        drive: DriveIndex,
        doing: &'static str,
        error: IoError,
    ) -> Result<()> {
        self.lose(drive, doing, error).await;
        self.publish(|_| ()).await
    }

    /// Takes a drive out of use on request.
    ///
    /// # Errors
    /// `NotFound` if it is not in use, `PoolFailed` if the pool could not bear that; nothing has changed then.
    pub(crate) async fn fail_drive(&self, drive: DriveIndex) -> Result<()> {
        {
            let state = self.state.borrow();
            if state.superblock.drive(drive).is_none_or(|record| record.state != DriveState::Online) {
                return Err(Error::new(ErrorKind::NotFound, format!("drive {drive} is not in use")));
            }
            if state.lost() >= usize::from(self.geometry.scheme.parity()) {
                let message =
                    format!("the pool cannot bear the loss of drive {drive}: {} lost already", state.lost());
                return Err(Error::new(ErrorKind::PoolFailed, message));
            }
        }
        self.lose(drive, "taken out of use on request", IoError::new(IoErrorKind::Gone)).await;
        self.publish(|_| ()).await
    }

    /// Takes a drive out of use, in memory and at the shards.
    pub(super) async fn lose(&self, drive: DriveIndex, doing: &'static str, error: IoError) {
        let first = {
            let mut state = self.state.borrow_mut();
            let online =
                state.superblock.drive(drive).is_some_and(|record| record.state == DriveState::Online);
            if !online {
                false
            } else if state.lost() >= usize::from(self.geometry.scheme.parity()) {
                let why = Error::new(
                    ErrorKind::PoolFailed,
                    format!("{doing} on drive {drive} ({error}), and the pool cannot bear another loss"),
                );
                tracing::error!(%drive, %error, doing, "too many drives are lost: the pool takes no more writes");
                state.failure.get_or_insert(why);
                false
            } else {
                state.mark_failed(drive);
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
            self.tell_shards(drive).await;
        }
    }

    /// Fails every shard: the pool is read-only from now on.
    fn fail_shards(&self, failure: &Error) {
        self.published.wake_all();
        for shard in self.shards.borrow().iter() {
            let (home, failure) = (shard.clone(), failure.clone());
            let _ = shard.remote().post(move || {
                home.local().into_iter().for_each(|shard| shard.fail(&failure));
            });
        }
    }

    /// Tells every shard that a drive is lost, and takes over what that changes in their segments.
    async fn tell_shards(&self, drive: DriveIndex) {
        let shards = self.shards.borrow().clone();
        for (index, shard) in shards.into_iter().enumerate() {
            let told = shard.call(move |shard| async move { shard.drive_lost(drive) }).await;
            if let (Ok(record), Some(place)) =
                (told, self.state.borrow_mut().superblock.shards.get_mut(index))
            {
                *place = record;
            }
        }
    }
}
