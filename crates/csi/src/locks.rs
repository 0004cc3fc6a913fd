//! Locks by volume: two calls for one volume never run at the same time.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use tonic::Status;

/// The volumes with a call in progress.
#[derive(Clone, Debug, Default)]
pub(crate) struct VolumeLocks(Arc<Mutex<HashSet<String>>>);

/// A lock of one volume, until it is dropped.
#[derive(Debug)]
pub(crate) struct VolumeLock {
    locks: VolumeLocks,
    key: String,
}

impl VolumeLocks {
    /// Locks a volume.
    ///
    /// # Errors
    /// `ABORTED` while another call has the lock, as the specification prescribes; the cluster
    /// repeats the call.
    pub(crate) fn lock(&self, key: &str) -> Result<VolumeLock, Status> {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !held.insert(key.to_owned()) {
            return Err(Status::aborted(format!("another call for '{key}' is in progress")));
        }
        Ok(VolumeLock { locks: self.clone(), key: key.to_owned() })
    }
}

impl Drop for VolumeLock {
    fn drop(&mut self) {
        self.locks.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_call_for_a_volume_is_aborted_until_the_first_ends() {
        let locks = VolumeLocks::default();
        let first = locks.lock("fast/a").unwrap();
        assert_eq!(locks.lock("fast/a").unwrap_err().code(), tonic::Code::Aborted);
        drop(locks.lock("fast/b").unwrap());
        drop(first);
        drop(locks.lock("fast/a").unwrap());
    }
}
