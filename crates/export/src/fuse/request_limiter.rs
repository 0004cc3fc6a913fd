//! The limit on requests in flight: the thread that receives requests waits while it is reached.
//!
//! Always true: each permit is released exactly once, when its [`RequestPermit`] is dropped, on any
//! thread. Must not know the content of requests.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::limits::{BYTES_MAX, REQUESTS_MAX};

/// Requests and payload in flight.
#[derive(Default)]
pub(super) struct RequestLimiter {
    used: Mutex<Used>,
    changed: Condvar,
}

#[derive(Default)]
struct Used {
    requests: usize,
    bytes: usize,
}

/// A request in flight, until this is dropped.
pub(super) struct RequestPermit {
    credit: Arc<RequestLimiter>,
    bytes: usize,
}

impl RequestLimiter {
    fn lock(&self) -> MutexGuard<'_, Used> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until a request of this many bytes fits. A request of any size fits when no other is
    /// in flight.
    pub(super) fn take(self: &Arc<Self>, bytes: usize) -> RequestPermit {
        let full = |used: &mut Used| {
            used.requests >= REQUESTS_MAX || used.requests > 0 && used.bytes.saturating_add(bytes) > BYTES_MAX
        };
        let mut used = self.changed.wait_while(self.lock(), full).unwrap_or_else(PoisonError::into_inner);
        used.requests += 1;
        used.bytes += bytes;
        RequestPermit { credit: self.clone(), bytes }
    }

    /// Waits up to `patience` until no request is in flight. Returns false if one still is.
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

impl Drop for RequestPermit {
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
    fn requests_beyond_the_limit_wait() {
        let credit = Arc::new(RequestLimiter::default());
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
