//! An eventfd with which another thread ends a reactor's sleep in the kernel.
//!
//! Invariant: a signal raised before the sleep ends that sleep at once.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::event::EventfdFlags;
use rustix::io::Errno;

use crate::WakeHandle;

/// A signal that a reactor waits for together with its I/O.
pub(crate) struct Event(OwnedFd);

impl Event {
    pub(crate) fn new() -> Result<Arc<Self>, Errno> {
        let fd = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Arc::new(Self(fd)))
    }

    /// Clears all signals raised so far.
    pub(crate) fn clear(&self) {
        // Fails only if no signal was raised.
        let _ = rustix::io::read(&self.0, &mut [0; 8]);
    }
}

impl AsFd for Event {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl WakeHandle for Event {
    fn wake(&self) {
        #[allow(clippy::host_endian_bytes, reason = "the kernel reads a number of this machine")]
        let one = 1u64.to_ne_bytes();
        // Fails only when 2^64 - 1 signals are pending.
        let _ = rustix::io::write(&self.0, &one);
    }
}
