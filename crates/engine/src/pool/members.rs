//! Adding, returning and removing drives of an open pool.

use std::rc::Rc;
use std::sync::Arc;

use format::DriveId;
use futures_util::future::LocalBoxFuture;

use super::Pool;
use crate::control::Control;
use crate::drive_source::DriveSource;
use crate::error::Result;

impl Pool {
    /// Adds a new drive of any size to the pool and overwrites its contents; the caller checks that
    /// the drive may be used. Its space is available immediately, and segments with missing columns
    /// are rebuilt on it. Returns the drive's index. `id` is random.
    ///
    /// # Errors
    /// `Invalid` if the drive is too small, `Exists` if it already belongs to the pool, `Io` or
    /// `NoSpace` if it cannot be written. The pool is unchanged after an error.
    pub fn add_drive(&self, source: Arc<dyn DriveSource>, id: [u8; 16]) -> LocalBoxFuture<'_, Result<u16>> {
        Box::pin(async move {
            let add = move |control: Rc<Control>| async move { control.add_drive(source, DriveId(id)).await };
            self.inner.control.call(add).await?.map(format::DriveIndex::get)
        })
    }

    /// Re-adds a failed or missing drive with its data and resyncs the writes it missed. Returns
    /// the drive's index.
    ///
    /// # Errors
    /// `NotFound` if it is no drive of the pool, `Exists` if it is in use, `Invalid` if it has
    /// diverged from the other drives or become smaller. The pool is unchanged after an error.
    pub fn return_drive(&self, source: Arc<dyn DriveSource>) -> LocalBoxFuture<'_, Result<u16>> {
        Box::pin(async move {
            let rejoin = move |control: Rc<Control>| async move { control.return_drive(source).await };
            self.inner.control.call(rejoin).await?.map(format::DriveIndex::get)
        })
    }

    /// Drains a drive: migrates its data to the other drives and then removes it from the pool. New
    /// data goes to the other drives immediately. If too few drives remain in the meantime, the
    /// drive stays.
    ///
    /// # Errors
    /// `NotFound` if the drive is not in use; `Invalid` if too few other drives remain for the
    /// scheme; `Busy` while the drive is being resynced.
    pub fn remove_drive(&self, index: u16) -> LocalBoxFuture<'_, Result<()>> {
        Box::pin(async move { self.set_draining(index, true).await })
    }

    /// Cancels the removal of a drive, and clears its error count. Migrated data stays on the other
    /// drives.
    ///
    /// # Errors
    /// `NotFound` if the drive is not in use; `Invalid` if it is not being removed and has no
    /// errors.
    pub fn cancel_remove_drive(&self, index: u16) -> LocalBoxFuture<'_, Result<()>> {
        Box::pin(async move { self.set_draining(index, false).await })
    }

    async fn set_draining(&self, index: u16, draining: bool) -> Result<()> {
        let drive = format::DriveIndex::new(index);
        let change = move |control: Rc<Control>| async move { control.remove_drive(drive, draining).await };
        self.inner.control.call(change).await?
    }
}
