//! Commands that mean something to one kind of device only (`IORING_OP_URING_CMD`): short ones on a reactor's ring, long ones
//! on a ring that is there for one of them.
//!
//! Always true: a short command's memory is kept until the device has answered, or for ever. Must not know any device.
#![allow(unsafe_code)]

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;

use io_uring::types::Fd;
use io_uring::{IoUring, cqueue, opcode, squeue};
use rustix::io::Errno;

use crate::operation::{Command, Operation};
use crate::target::Target;
use crate::{Io, IoError, IoErrorKind, IoResult, Platform, Span};

/// Bytes of a long command.
pub const LONG_COMMAND_BYTES: usize = 80;

impl Platform {
    /// Starts a command of a device's own, of 16 bytes. The result is what the device answers. Fails as unsupported where
    /// there is no ring. A device that never answers keeps `memory` for ever, also when the platform is gone.
    ///
    /// # Safety
    /// The device touches no other memory for this command than what `memory` covers.
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

/// Gives a device a long command, and waits for its answer on this thread.
///
/// # Errors
/// What the device answers, or what the system says to a ring.
///
/// # Safety
/// The device touches no other memory for this command than what the caller has borrowed mutably for it.
pub unsafe fn run_long_command(device: impl AsFd, number: u32, words: [u8; LONG_COMMAND_BYTES]) -> IoResult {
    let mut ring: IoUring<squeue::Entry128, cqueue::Entry> =
        IoUring::builder().dontfork().build(1).map_err(of_system)?;
    let entry = opcode::UringCmd80::new(Fd(device.as_fd().as_raw_fd()), number).cmd(words).build();
    // SAFETY: the descriptor and, by the caller's promise, the memory are there until this returns, which it does only
    // when the command has completed.
    if unsafe { ring.submission().push(&entry) }.is_err() {
        return Err(IoError::new(IoErrorKind::Other));
    }
    loop {
        let waited = ring.submit_and_wait(1);
        if let Some(completion) = ring.completion().next() {
            let result = completion.result();
            return usize::try_from(result).map_err(|_| IoError::from_errno(-result));
        }
        // Once it is handed over its end is waited for, whatever interrupts that.
        if let Err(error) = waited
            && !ring.submission().is_empty()
            && error.raw_os_error() != Some(Errno::INTR.raw_os_error())
        {
            return Err(of_system(error));
        }
    }
}

fn of_system(error: std::io::Error) -> IoError {
    error.raw_os_error().map_or(IoError::new(IoErrorKind::Other), IoError::from_errno)
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use super::*;
    use crate::{Backend, Buffer, Clock, Reactor, SystemClock};

    #[test]
    fn what_knows_no_commands_says_so() {
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
