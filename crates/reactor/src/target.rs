//! The target of an operation: a drive's file, or a socket.
//!
//! Invariant: the descriptor stays open until its last operation has ended, because the operation
//! holds its target.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;

use rustix::fs::FlockOperation;

use crate::fixed_slot::FixedSlot;

/// The file or descriptor of an operation.
#[derive(Clone)]
pub(crate) enum Target {
    File(Rc<BoundFile>),
    Descriptor(Arc<OwnedFd>),
}

/// A drive's file as used by one reactor.
pub(crate) struct BoundFile {
    pub(crate) file: Arc<LockedFile>,
    /// Its slot in the ring's table of registered files, if it has one.
    pub(crate) slot: Option<FixedSlot>,
    /// True for memory behind a block device, which executes requests on the submitting thread.
    pub(crate) is_synchronous: bool,
}

/// An open file that is unlocked when it is dropped.
pub(crate) struct LockedFile(OwnedFd);

impl LockedFile {
    pub(crate) fn new(fd: OwnedFd) -> Self {
        Self(fd)
    }
}

impl AsFd for LockedFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Drop for LockedFile {
    fn drop(&mut self) {
        // Closing would also unlock, but only after the kernel has released every use in a ring,
        // some time later.
        let _ = rustix::fs::flock(&self.0, FlockOperation::Unlock);
    }
}

impl Target {
    pub(crate) fn is_drive(&self) -> bool {
        matches!(self, Self::File(_))
    }
}

impl AsFd for Target {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::File(bound) => bound.file.as_fd(),
            Self::Descriptor(descriptor) => descriptor.as_fd(),
        }
    }
}
