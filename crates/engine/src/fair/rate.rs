//! Rate limits of a volume: operations and bytes a second, over all cores together.
//!
//! Implements the generic cell rate algorithm (ITU-T I.371). For each kind of limit one number is
//! kept: the time at which all admitted operations are paid for. An operation that arrives earlier
//! waits until then; an idle volume accumulates credit for a burst.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::invariant::clamped;

const SECOND: u128 = 1_000_000_000;

/// The rate limits of a volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RateLimits {
    /// Operations a second; 0 for no limit.
    pub(crate) operations: u64,
    /// Bytes a second; 0 for no limit.
    pub(crate) bytes: u64,
    /// The longest idle time for which a volume accumulates credit.
    pub(crate) burst: Duration,
}

/// Limits the rate of a volume's operations. Usable from any core; costs one load without limits.
#[derive(Debug, Default)]
pub(crate) struct RateLimiter {
    limited: std::sync::atomic::AtomicBool,
    operations: Bucket,
    bytes: Bucket,
    burst: AtomicU64,
}

#[derive(Debug, Default)]
struct Bucket {
    /// Units a second; 0 for no limit.
    rate: AtomicU64,
    /// Time at which all admitted operations are paid for, in nanoseconds of the reactors' clock.
    paid: AtomicU64,
}

impl RateLimiter {
    pub(crate) fn new(limits: RateLimits) -> Self {
        let limiter = Self::default();
        limiter.set(limits);
        limiter
    }

    /// Changes the limits. Operations that wait already keep their waiting time.
    pub(crate) fn set(&self, limits: RateLimits) {
        self.operations.rate.store(limits.operations, Ordering::Relaxed);
        self.bytes.rate.store(limits.bytes, Ordering::Relaxed);
        let burst = clamped(limits.burst.as_nanos());
        self.burst.store(burst, Ordering::Relaxed);
        self.limited.store(limits.operations > 0 || limits.bytes > 0, Ordering::Relaxed);
    }

    pub(crate) fn is_limited(&self) -> bool {
        self.limited.load(Ordering::Relaxed)
    }

    /// Returns the delay of an operation of `bytes` bytes that arrives at `now`, in nanoseconds.
    pub(crate) fn delay(&self, bytes: u64, now: u64) -> Duration {
        let burst = self.burst.load(Ordering::Relaxed);
        let operations = self.operations.take(1, now, burst);
        Duration::from_nanos(operations.max(self.bytes.take(bytes, now, burst)))
    }
}

impl Bucket {
    /// Pays for `units`. Returns the nanoseconds after which they are admitted.
    fn take(&self, units: u64, now: u64, burst: u64) -> u64 {
        let rate = self.rate.load(Ordering::Relaxed);
        if rate == 0 {
            return 0;
        }
        let price = clamped(u128::from(units) * SECOND / u128::from(rate));
        let earliest = now.saturating_sub(burst);
        let pay = |paid: u64| Some(paid.max(earliest).saturating_add(price));
        // Relaxed: no other data depends on it.
        let before = match self.paid.fetch_update(Ordering::Relaxed, Ordering::Relaxed, pay) {
            Ok(before) | Err(before) => before,
        };
        before.saturating_sub(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts the operations admitted within `length` nanoseconds if each arrives when the one
    /// before is admitted.
    fn admitted(limiter: &RateLimiter, from: u64, length: u64, bytes: u64) -> u64 {
        let (mut now, mut count) = (from, 0);
        loop {
            now += u64::try_from(limiter.delay(bytes, now).as_nanos()).unwrap();
            if now >= from + length {
                return count;
            }
            count += 1;
        }
    }

    #[test]
    fn without_limits_nothing_waits() {
        let limiter = RateLimiter::new(RateLimits::default());
        assert!(!limiter.is_limited());
        assert_eq!(limiter.delay(1 << 40, 5), Duration::ZERO);
    }

    #[test]
    fn a_volume_gets_its_rate_and_its_burst() {
        const SECOND: u64 = 1_000_000_000;
        let limits = RateLimits { operations: 1000, bytes: 0, burst: Duration::from_millis(500) };
        let limiter = RateLimiter::new(limits);
        // The volume was idle: half a second of credit on top.
        assert_eq!(admitted(&limiter, 10 * SECOND, SECOND, 4096), 1500);
        let next = admitted(&limiter, 11 * SECOND, SECOND, 4096);
        assert!((990..=1010).contains(&next), "{next}");
        // The credit is bounded.
        assert_eq!(admitted(&limiter, 100 * SECOND, SECOND, 4096), 1500);
    }

    #[test]
    fn the_tighter_of_the_limits_counts() {
        const SECOND: u64 = 1_000_000_000;
        let limiter =
            RateLimiter::new(RateLimits { operations: 1000, bytes: 1 << 20, burst: Duration::ZERO });
        let small = admitted(&limiter, 10 * SECOND, 10 * SECOND, 512);
        assert!((9_990..=10_001).contains(&small), "{small}");
        let large = admitted(&limiter, 100 * SECOND, 10 * SECOND, 1 << 18);
        assert!((39..=41).contains(&large), "{large}");
        limiter.set(RateLimits::default());
        assert!(!limiter.is_limited());
    }
}
