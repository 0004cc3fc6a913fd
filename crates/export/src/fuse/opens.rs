//! Who has a file open.
//!
//! Always true: once it is closed to newcomers nobody is counted any more that was not counted before.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// See the module.
pub(super) struct Opens {
    inner: Mutex<Inner>,
    changed: Condvar,
    /// The number, for others to look at.
    shown: Arc<AtomicU64>,
}

#[derive(Default)]
struct Inner {
    open: u64,
    closed: bool,
}

impl Opens {
    pub(super) fn new(shown: Arc<AtomicU64>) -> Self {
        Self { inner: Mutex::default(), changed: Condvar::new(), shown }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One more has it open. False if nobody may any more.
    pub(super) fn add(&self) -> bool {
        let mut inner = self.lock();
        if inner.closed {
            return false;
        }
        inner.open += 1;
        self.shown.store(inner.open, Ordering::Relaxed);
        true
    }

    /// One has closed it.
    pub(super) fn remove(&self) {
        let mut inner = self.lock();
        inner.open = inner.open.saturating_sub(1);
        self.shown.store(inner.open, Ordering::Relaxed);
        drop(inner);
        self.changed.notify_all();
    }

    /// Lets nobody in any more, if nobody is in, or all have left within so long: the kernel tells of a close some time after
    /// it. Else it stays open, and this is how many are in.
    pub(super) fn close(&self, patience: Duration) -> Result<(), u64> {
        let waited = self.changed.wait_timeout_while(self.lock(), patience, |inner| inner.open > 0);
        let (mut inner, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if inner.open > 0 {
            return Err(inner.open);
        }
        inner.closed = true;
        Ok(())
    }

    /// Lets nobody in any more, whoever is in: so many.
    pub(super) fn close_at_once(&self) -> u64 {
        let mut inner = self.lock();
        inner.closed = true;
        inner.open
    }

    /// Lets others in again.
    pub(super) fn reopen(&self) {
        self.lock().closed = false;
    }

    /// Nobody is in any more: all were cut off.
    pub(super) fn forget(&self) {
        self.lock().open = 0;
        self.shown.store(0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_in_keeps_it_open() {
        let shown = Arc::new(AtomicU64::new(0));
        let opens = Opens::new(shown.clone());
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
    fn all_are_cut_off_at_once() {
        let shown = Arc::new(AtomicU64::new(0));
        let opens = Opens::new(shown.clone());
        assert!(opens.add());
        assert_eq!(opens.close_at_once(), 1);
        assert!(!opens.add());
        opens.forget();
        assert_eq!(shown.load(Ordering::Relaxed), 0);
    }
}
