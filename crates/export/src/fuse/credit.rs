//! How much of what the kernel asks for is under way: the thread that takes requests waits when it is too much.
//!
//! Always true: what was charged is given back exactly once, when the [`Charge`] is dropped, on whichever thread. Must not
//! know what requests are.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::limits::{BYTES_MAX, REQUESTS_MAX};

/// See the module.
#[derive(Default)]
pub(super) struct Credit {
    used: Mutex<Used>,
    changed: Condvar,
}

#[derive(Default)]
struct Used {
    requests: usize,
    bytes: usize,
}

/// A request that is under way, until it is dropped.
pub(super) struct Charge {
    credit: Arc<Credit>,
    bytes: usize,
}

impl Credit {
    fn lock(&self) -> MutexGuard<'_, Used> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until there is room for a request of so many bytes. One of any size gets in when there is no other.
    pub(super) fn take(self: &Arc<Self>, bytes: usize) -> Charge {
        let full = |used: &mut Used| {
            used.requests >= REQUESTS_MAX || used.requests > 0 && used.bytes.saturating_add(bytes) > BYTES_MAX
        };
        let mut used = self.changed.wait_while(self.lock(), full).unwrap_or_else(PoisonError::into_inner);
        used.requests += 1;
        used.bytes += bytes;
        Charge { credit: self.clone(), bytes }
    }

    /// Waits until nothing is under way, for so long at most. False if something still is.
    pub(super) fn wait_until_idle(&self, patience: Duration) -> bool {
        let end = Instant::now() + patience;
        let mut used = self.lock();
        while used.requests > 0 {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            used = self.changed.wait_timeout(used, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        let mut used = self.credit.lock();
        used.requests -= 1;
        used.bytes -= self.bytes;
        drop(used);
        self.credit.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{RecvTimeoutError, channel};

    use super::*;

    #[test]
    fn who_finds_no_room_waits_for_some() {
        let credit = Arc::new(Credit::default());
        let large = credit.take(10 * BYTES_MAX);
        let (sender, receiver) = channel();
        let there = credit.clone();
        let waiting = std::thread::spawn(move || sender.send(there.take(1)).unwrap());
        assert_eq!(receiver.recv_timeout(Duration::from_millis(20)).err(), Some(RecvTimeoutError::Timeout));
        assert!(!credit.wait_until_idle(Duration::ZERO));
        drop(large);
        let small = receiver.recv_timeout(Duration::from_secs(60)).unwrap();
        waiting.join().unwrap();
        drop(small);
        assert!(credit.wait_until_idle(Duration::ZERO));
    }
}
