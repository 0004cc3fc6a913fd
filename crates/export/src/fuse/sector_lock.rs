//! The lock for writes to a file: shared for writes of whole sectors, exclusive for
//! read-modify-write of a sector.
//!
//! Always true: a read-modify-write holds the lock exclusively from the read to the write; later
//! shared locks wait behind a waiting exclusive one. Must not know the data.

use std::cell::Cell;

use reactor::WaitList;

/// A read-write lock for writes.
#[derive(Default)]
pub(super) struct SectorLock {
    /// Holders of the shared lock.
    shared: Cell<usize>,
    /// The exclusive lock is held.
    exclusive: Cell<bool>,
    /// Tasks that wait for the exclusive lock.
    waiting: Cell<usize>,
    changed: WaitList,
}

/// The lock, until this is dropped.
pub(super) struct SectorGuard<'a> {
    sectors: &'a SectorLock,
    exclusive: bool,
}

impl SectorLock {
    /// Waits for the shared lock.
    pub(super) async fn shared(&self) -> SectorGuard<'_> {
        self.changed.until(|| (!self.exclusive.get() && self.waiting.get() == 0).then_some(())).await;
        self.shared.set(self.shared.get() + 1);
        SectorGuard { sectors: self, exclusive: false }
    }

    /// Waits for the exclusive lock.
    pub(super) async fn exclusive(&self) -> SectorGuard<'_> {
        let waiting = ExclusiveWait::new(self);
        self.changed.until(|| (!self.exclusive.get() && self.shared.get() == 0).then_some(())).await;
        self.exclusive.set(true);
        drop(waiting);
        SectorGuard { sectors: self, exclusive: true }
    }
}

impl Drop for SectorGuard<'_> {
    fn drop(&mut self) {
        if self.exclusive {
            self.sectors.exclusive.set(false);
        } else {
            self.sectors.shared.set(self.sectors.shared.get() - 1);
        }
        self.sectors.changed.wake_all();
    }
}

/// A task that waits for the exclusive lock; it may be cancelled.
struct ExclusiveWait<'a>(&'a SectorLock);

impl<'a> ExclusiveWait<'a> {
    fn new(sectors: &'a SectorLock) -> Self {
        sectors.waiting.set(sectors.waiting.get() + 1);
        Self(sectors)
    }
}

impl Drop for ExclusiveWait<'_> {
    fn drop(&mut self) {
        self.0.waiting.set(self.0.waiting.get() - 1);
        self.0.changed.wake_all();
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    fn now<T>(future: &mut std::pin::Pin<&mut impl Future<Output = T>>) -> Option<T> {
        match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(value) => Some(value),
            Poll::Pending => None,
        }
    }

    #[test]
    fn shared_locks_are_concurrent_and_an_exclusive_one_is_not() {
        let sectors = SectorLock::default();
        let (mut first, mut second) = (pin!(sectors.shared()), pin!(sectors.shared()));
        let (first, second) = (now(&mut first).unwrap(), now(&mut second).unwrap());
        let mut exclusive = pin!(sectors.exclusive());
        assert!(now(&mut exclusive).is_none());
        // Later shared locks wait behind the exclusive one.
        let mut later = pin!(sectors.shared());
        assert!(now(&mut later).is_none());
        drop(first);
        assert!(now(&mut exclusive).is_none());
        drop(second);
        let exclusive = now(&mut exclusive).unwrap();
        let mut other = pin!(sectors.exclusive());
        assert!(now(&mut later).is_none() && now(&mut other).is_none());
        drop(exclusive);
        let other = now(&mut other).unwrap();
        assert!(now(&mut later).is_none());
        drop(other);
        assert!(now(&mut later).is_some());
    }

    #[test]
    fn a_cancelled_wait_blocks_nothing() {
        let sectors = SectorLock::default();
        let first = now(&mut pin!(sectors.shared())).unwrap();
        {
            let mut exclusive = pin!(sectors.exclusive());
            assert!(now(&mut exclusive).is_none());
        }
        assert!(now(&mut pin!(sectors.shared())).is_some());
        drop(first);
        assert!(now(&mut pin!(sectors.exclusive())).is_some());
    }
}
