//! The drives of a pool, as the caller supplies them.

use std::rc::Rc;

use reactor::Drive;

/// A drive that can be opened on any reactor. Opening is cheap and cannot fail, because the file or
/// device is already open.
pub trait DriveSource: Send + Sync {
    /// Returns the drive for the reactor of this thread.
    fn open(&self) -> Rc<dyn Drive>;

    /// Returns the path or name, for messages.
    fn path(&self) -> String;
}
