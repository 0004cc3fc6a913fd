//! Device-specific commands (`IORING_OP_URING_CMD`): short ones on the reactor's ring, long ones on
//! a ring that serves a single command.
//!
//! Invariant: the memory of a short command is kept until the device has completed it, or for ever
//! if it never does. Knows no particular device.
#![allow(unsafe_code)]

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;

use io_uring::types::Fd;
use io_uring::{IoUring, cqueue, opcode, squeue};
use rustix::io::Errno;

use crate::operation::{Command, Operation};
use crate::target::Target;
use crate::{Io, IoError, IoErrorKind, IoResult, Platform, Span};

/// Size of a long command in bytes.
pub const LONG_COMMAND_BYTES: usize = 80;

impl Platform {
    /// Starts a device-specific command of 16 bytes. The result is the device's return value. Fails
    /// with [`IoErrorKind::Unsupported`] without a ring. If the device never completes the command,
    /// `memory` is leaked, even when the platform is dropped.
    ///
    /// # Safety
    /// For this command the device accesses no memory other than `memory`.
    pub unsafe fn command(
        &self,
        device: &Arc<OwnedFd>,
        number: u32,
        words: [u8; 16],
        memory: Option<Span>,
    ) -> Io {
        let command = Command { number, words, _memory: memory };
        self.submit(Target::Descriptor(device.clone()), Operation::Command(command))
    }
}

/// Sends a long command to a device and blocks this thread until it completes.
///
/// # Errors
/// The error that the device returns, or the error of setting up the ring.
///
/// # Safety
/// For this command the device accesses only memory that the caller has borrowed mutably for it.
pub unsafe fn run_long_command(device: impl AsFd, number: u32, words: [u8; LONG_COMMAND_BYTES]) -> IoResult {
    let mut ring: IoUring<squeue::Entry128, cqueue::Entry> =
        IoUring::builder().dontfork().build(1).map_err(from_io_error)?;
    let entry = opcode::UringCmd80::new(Fd(device.as_fd().as_raw_fd()), number).cmd(words).build();
    // SAFETY: the descriptor and, by the caller's promise, the memory stay valid until this
    // returns, which it does only when the command has completed.
    if unsafe { ring.submission().push(&entry) }.is_err() {
        return Err(IoError::new(IoErrorKind::Other));
    }
    loop {
        let waited = ring.submit_and_wait(1);
        if let Some(completion) = ring.completion().next() {
            let result = completion.result();
            return usize::try_from(result).map_err(|_| IoError::from_errno(-result));
        }
        // Once submitted, the command must complete before this returns: retry after an
        // interruption.
        if let Err(error) = waited
            && !ring.submission().is_empty()
            && error.raw_os_error() != Some(Errno::INTR.raw_os_error())
        {
            return Err(from_io_error(error));
        }
    }
}

fn from_io_error(error: std::io::Error) -> IoError {
    error.raw_os_error().map_or(IoError::new(IoErrorKind::Other), IoError::from_errno)
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use super::*;
    use crate::{Backend, Buffer, Clock, Reactor, SystemClock};

    #[test]
    fn a_file_rejects_device_commands() {
        let file: OwnedFd = tempfile::tempfile().unwrap().into();
        // SAFETY: a file touches no memory.
        let refused = unsafe { run_long_command(&file, 1, [0; LONG_COMMAND_BYTES]) };
        assert_eq!(refused.unwrap_err().kind(), IoErrorKind::Unsupported);
        let file = Arc::new(file);
        for backend in [Backend::Auto, Backend::Threads] {
            let clock: Rc<dyn Clock> = Rc::new(SystemClock::new());
            let platform = Platform::new(backend, clock.clone()).unwrap();
            let reactor = Reactor::new(platform.clone(), clock);
            let memory = Buffer::new(4096);
            // SAFETY: a file touches no memory.
            let io = unsafe { platform.command(&file, 1, [0; 16], Some(memory.span())) };
            assert_eq!(reactor.run(io).unwrap_err().kind(), IoErrorKind::Unsupported);
        }
    }
}
