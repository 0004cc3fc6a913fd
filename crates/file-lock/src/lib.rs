//! Exclusive locks of files between processes.
//!
//! Always true: a lock ends when its [`FileLock`] is dropped. A child process that another thread
//! forks meanwhile inherits the open file until its `execve`, so that closing the file is not
//! enough.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Result};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// The exclusive lock of a file.
#[derive(Debug)]
pub struct FileLock(File);

impl FileLock {
    /// Locks a file. Creates it with the permissions `mode` if it does not exist. Returns `None`
    /// if the file is locked, by this process or another one.
    ///
    /// # Errors
    /// If the file cannot be opened or locked.
    pub fn acquire(path: &Path, mode: u32) -> Result<Option<Self>> {
        let file = OpenOptions::new().create(true).truncate(false).write(true).mode(mode).open(path)?;
        loop {
            if lock(file.try_lock())? {
                return Ok(Some(Self(file)));
            }
            // A shared lock is that of `is_held`, and ends at once.
            if !lock(file.try_lock_shared())? {
                return Ok(None);
            }
            file.unlock()?;
            std::thread::yield_now();
        }
    }

    /// Returns true if a file exists and is locked.
    ///
    /// # Errors
    /// If the file cannot be opened or locked.
    pub fn is_held(path: &Path) -> Result<bool> {
        let file = match File::open(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
            file => file?,
        };
        let is_free = lock(file.try_lock_shared())?;
        // Unlocks the file.
        drop(Self(file));
        Ok(!is_free)
    }
}

impl Drop for FileLock {
    fn drop(&mut self) {
        let _ = self.0.unlock();
    }
}

/// Returns false if another lock prevents this one.
fn lock(attempt: std::result::Result<(), TryLockError>) -> Result<bool> {
    match attempt {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_excludes_others_until_it_is_dropped() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lock");
        assert!(!FileLock::is_held(&path).unwrap(), "no file");
        let first = FileLock::acquire(&path, 0o600).unwrap().unwrap();
        assert!(FileLock::is_held(&path).unwrap());
        assert!(FileLock::acquire(&path, 0o600).unwrap().is_none());
        drop(first);
        assert!(!FileLock::is_held(&path).unwrap());
        assert!(FileLock::acquire(&path, 0o600).unwrap().is_some());
        assert!(FileLock::acquire(directory.path(), 0o600).is_err());
    }

    #[test]
    fn a_question_whether_a_file_is_locked_prevents_no_lock() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lock");
        let is_done = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_done.load(std::sync::atomic::Ordering::Relaxed) {
                    FileLock::is_held(&path).unwrap();
                }
            });
            let all = (0..20_000).all(|_| FileLock::acquire(&path, 0o600).unwrap().is_some());
            is_done.store(true, std::sync::atomic::Ordering::Relaxed);
            assert!(all);
        });
    }

    /// A duplicate of the descriptor stands for that of a forked child.
    #[test]
    fn an_inherited_descriptor_does_not_keep_the_lock() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lock");
        let lock = FileLock::acquire(&path, 0o600).unwrap().unwrap();
        let inherited = lock.0.try_clone().unwrap();
        drop(lock);
        assert!(FileLock::acquire(&path, 0o600).unwrap().is_some());
        drop(inherited);
    }
}
