//! The number of open handles of a file.
//!
//! Always true: once closed, no further handle is counted until [`OpenCount::reopen`].

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The number of open handles, and whether more are permitted.
pub(super) struct OpenCount {
    inner: Mutex<OpenState>,
    changed: Condvar,
    /// The number, for status.
    shown: Arc<AtomicU64>,
}

#[derive(Default)]
struct OpenState {
    open: u64,
    closed: bool,
}

impl OpenCount {
    pub(super) fn new(shown: Arc<AtomicU64>) -> Self {
        Self { inner: Mutex::default(), changed: Condvar::new(), shown }
    }

    fn lock(&self) -> MutexGuard<'_, OpenState> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a new handle. Returns false if no handle is permitted.
    pub(super) fn add(&self) -> bool {
        let mut inner = self.lock();
        if inner.closed {
            return false;
        }
        inner.open += 1;
        self.shown.store(inner.open, Ordering::Relaxed);
        true
    }

    /// Counts a closed handle.
    pub(super) fn remove(&self) {
        let mut inner = self.lock();
        inner.open = inner.open.saturating_sub(1);
        self.shown.store(inner.open, Ordering::Relaxed);
        drop(inner);
        self.changed.notify_all();
    }

    /// Permits no further handles, if none is open or all are closed within `patience`: the kernel
    /// reports a close with a delay. Otherwise returns the number of open handles as the error, and
    /// stays open.
    pub(super) fn close(&self, patience: Duration) -> Result<(), u64> {
        let waited = self.changed.wait_timeout_while(self.lock(), patience, |inner| inner.open > 0);
        let (mut inner, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if inner.open > 0 {
            return Err(inner.open);
        }
        inner.closed = true;
        Ok(())
    }

    /// Permits no further handles. Returns the number of open ones.
    pub(super) fn close_now(&self) -> u64 {
        let mut inner = self.lock();
        inner.closed = true;
        inner.open
    }

    /// Permits handles again.
    pub(super) fn reopen(&self) {
        self.lock().closed = false;
    }

    /// Resets the count after all handles were cut off.
    pub(super) fn reset(&self) {
        self.lock().open = 0;
        self.shown.store(0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_handles_keep_a_file_open() {
        let shown = Arc::new(AtomicU64::new(0));
        let opens = OpenCount::new(shown.clone());
        assert!(opens.add() && opens.add());
        opens.remove();
        assert_eq!((shown.load(Ordering::Relaxed), opens.close(Duration::ZERO)), (1, Err(1)));
        assert!(opens.add(), "it was not closed");
        opens.remove();
        opens.remove();
        assert_eq!(opens.close(Duration::ZERO), Ok(()));
        assert!(!opens.add());
        opens.reopen();
        assert!(opens.add());
    }

    #[test]
    fn handles_are_cut_off() {
        let shown = Arc::new(AtomicU64::new(0));
        let opens = OpenCount::new(shown.clone());
        assert!(opens.add());
        assert_eq!(opens.close_now(), 1);
        assert!(!opens.add());
        opens.reset();
        assert_eq!(shown.load(Ordering::Relaxed), 0);
    }
}
