//! Drives that come and go while the pool is in service.

use std::rc::Rc;
use std::sync::Arc;

use format::DriveId;

use super::{DriveSource, Pool};
use crate::control::Control;
use crate::error::Result;

impl Pool {
    /// Takes a new drive, of any size, into the pool, whatever it holds: whether it may be used is the caller's to find out. Its
    /// space is there at once; what misses columns is completed on it. Gives its number. `id` is random.
    ///
    /// # Errors
    /// `Invalid` if it is too small, `Exists` if it belongs to the pool already, `Io` or `NoSpace` if it cannot be written;
    /// nothing has changed then.
    pub async fn add_drive(&self, source: Arc<dyn DriveSource>, id: [u8; 16]) -> Result<u16> {
        let add = move |control: Rc<Control>| async move { control.add_drive(source, DriveId(id)).await };
        self.inner.control.call(add).await?.map(format::DriveIndex::get)
    }

    /// Takes a drive that was lost back into use, if it is what it was; what it missed is completed. Gives its number.
    ///
    /// # Errors
    /// `NotFound` if it is no drive of the pool, `Exists` if it is in use, `Invalid` if it went on apart from the others or became
    /// smaller; nothing has changed then.
    pub async fn return_drive(&self, source: Arc<dyn DriveSource>) -> Result<u16> {
        let back = move |control: Rc<Control>| async move { control.return_drive(source).await };
        self.inner.control.call(back).await?.map(format::DriveIndex::get)
    }

    /// Has everything that a drive holds written to others; it is no part of the pool any more when that is done. New data goes to the
    /// others at once. Should too few of them be left meanwhile, the drive stays.
    ///
    /// # Errors
    /// `NotFound` if it is not in use; `Invalid` if segments would not find enough other drives; `Busy` while it is being completed
    /// after it came back.
    pub async fn evacuate_drive(&self, index: u16) -> Result<()> {
        self.change_leaving(index, true).await
    }

    /// Keeps a drive that was to be emptied. What has been moved stays where it is.
    ///
    /// # Errors
    /// `NotFound` if it is not in use.
    pub async fn keep_drive(&self, index: u16) -> Result<()> {
        self.change_leaving(index, false).await
    }

    async fn change_leaving(&self, index: u16, leaves: bool) -> Result<()> {
        let drive = format::DriveIndex::new(index);
        let change = move |control: Rc<Control>| async move { control.evacuate_drive(drive, leaves).await };
        self.inner.control.call(change).await?
    }
}
