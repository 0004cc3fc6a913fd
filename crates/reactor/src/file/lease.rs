//! Detects whether any process has a file open for writing, with a lease that the kernel grants
//! only if none has.
//!
//! Invariant: the lease is released before the function returns. Contains the only fcntl(2) calls
//! that rustix lacks.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, RawFd};

/// The command that selects the signal, the same on all of Linux's architectures; libc lacks it.
const F_SETSIG: libc::c_int = 10;

/// True if any process, including this one, has the file open or mapped for writing. `None` if the
/// kernel does not know: on file systems without leases, for files of other users, and for anything
/// but a regular file. `file` must be open for reading only.
pub fn is_open_for_writing(file: &File) -> Option<bool> {
    let descriptor = file.as_raw_fd();
    // A process that opens the file while the lease is held makes the kernel signal this process.
    // The default SIGIO would end the process; SIGURG is ignored.
    control(descriptor, F_SETSIG, libc::SIGURG).ok()?;
    match control(descriptor, libc::F_SETLEASE, libc::F_RDLCK) {
        Ok(()) => {
            let released = control(descriptor, libc::F_SETLEASE, libc::F_UNLCK);
            assert!(released.is_ok(), "cannot release a lease: {released:?}");
            Some(false)
        }
        Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => Some(true),
        Err(_) => None,
    }
}

fn control(descriptor: RawFd, command: libc::c_int, argument: libc::c_int) -> io::Result<()> {
    // SAFETY: the descriptor is open for the duration of the call; these commands take a number and
    // touch no memory.
    if unsafe { libc::fcntl(descriptor, command, argument) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writers_are_distinguished_from_readers() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        let writer = File::create(&path).unwrap();
        let file = File::open(&path).unwrap();
        let Some(open) = is_open_for_writing(&file) else {
            panic!("the file system of {} has no leases", directory.path().display());
        };
        assert!(open);
        drop(writer);
        let _reader = File::open(&path).unwrap();
        assert_eq!(is_open_for_writing(&file), Some(false));
        // The lease is released: otherwise this would block until it is.
        let _writer = File::options().append(true).open(&path).unwrap();
        assert_eq!(is_open_for_writing(&file), Some(true));
        assert_eq!(is_open_for_writing(&File::open(directory.path()).unwrap()), None);
    }
}
