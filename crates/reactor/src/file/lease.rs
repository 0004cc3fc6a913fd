//! Asks the kernel whether a process has a file open for writing, by a lease that it grants only if none has.
//!
//! Always true: the lease is given back before this returns. Owns the only calls of fcntl(2) that rustix does not have.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, RawFd};

/// The command that chooses the signal, on all of Linux's architectures; libc lacks it.
const F_SETSIG: libc::c_int = 10;

/// True if any process has the file open for writing, or has it mapped in that way; this process counts. `None` where the
/// kernel does not answer: on file systems without leases, on files of other users, on anything that is no regular file.
/// `file` itself must be open for reading only.
pub fn is_open_for_writing(file: &File) -> Option<bool> {
    let descriptor = file.as_raw_fd();
    // A process that opens the file while we have the lease makes the kernel send us a signal. By default that is SIGIO,
    // which ends a process; this one is ignored.
    control(descriptor, F_SETSIG, libc::SIGURG).ok()?;
    match control(descriptor, libc::F_SETLEASE, libc::F_RDLCK) {
        Ok(()) => {
            let returned = control(descriptor, libc::F_SETLEASE, libc::F_UNLCK);
            assert!(returned.is_ok(), "a lease could not be given back: {returned:?}");
            Some(false)
        }
        Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => Some(true),
        Err(_) => None,
    }
}

fn control(descriptor: RawFd, command: libc::c_int, argument: libc::c_int) -> io::Result<()> {
    // SAFETY: the descriptor is open for the duration of the call; these commands take a number and touch no memory.
    if unsafe { libc::fcntl(descriptor, command, argument) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_open_for_writing_is_told_from_one_that_is_read() {
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
        // The lease is gone: this would wait for it to be given back otherwise.
        let _writer = File::options().append(true).open(&path).unwrap();
        assert_eq!(is_open_for_writing(&file), Some(true));
        assert_eq!(is_open_for_writing(&File::open(directory.path()).unwrap()), None);
    }
}
