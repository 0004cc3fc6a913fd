//! What a volume may take: operations and bytes a second, on all cores together.
//!
//! The generic cell rate algorithm (ITU-T I.371): of each kind one number is kept, when everything that was admitted so far is paid for. What comes
//! before that waits for it; a volume that was quiet has a burst to its credit.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const SECOND: u128 = 1_000_000_000;

/// Limits of a volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Limits {
    /// Operations a second; 0 for no limit.
    pub(crate) operations: u64,
    /// Bytes a second; 0 for no limit.
    pub(crate) bytes: u64,
    /// For how long a volume that was quiet may go on as fast as it can, measured in what it saves up.
    pub(crate) burst: Duration,
}

/// See the module. Usable from any core; costs one load while there are no limits.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    limited: std::sync::atomic::AtomicBool,
    operations: Bucket,
    bytes: Bucket,
    burst: AtomicU64,
}

#[derive(Debug, Default)]
struct Bucket {
    /// Units a second; 0 for no limit.
    rate: AtomicU64,
    /// When what was admitted is paid for, in nanoseconds of the reactors' clock.
    paid: AtomicU64,
}

impl Meter {
    pub(crate) fn new(limits: Limits) -> Self {
        let meter = Self::default();
        meter.set(limits);
        meter
    }

    /// Changes the limits. What waits already waits as long as it was told.
    pub(crate) fn set(&self, limits: Limits) {
        self.operations.rate.store(limits.operations, Ordering::Relaxed);
        self.bytes.rate.store(limits.bytes, Ordering::Relaxed);
        let burst = u64::try_from(limits.burst.as_nanos()).unwrap_or(u64::MAX);
        self.burst.store(burst, Ordering::Relaxed);
        self.limited.store(limits.operations > 0 || limits.bytes > 0, Ordering::Relaxed);
    }

    pub(crate) fn is_limited(&self) -> bool {
        self.limited.load(Ordering::Relaxed)
    }

    /// How long an operation of `bytes` bytes that comes at `now`, in nanoseconds, has to wait.
    pub(crate) fn wait(&self, bytes: u64, now: u64) -> Duration {
        let burst = self.burst.load(Ordering::Relaxed);
        let operations = self.operations.take(1, now, burst);
        Duration::from_nanos(operations.max(self.bytes.take(bytes, now, burst)))
    }
}

impl Bucket {
    /// Pays for `units`; gives the nanoseconds after which that is allowed.
    fn take(&self, units: u64, now: u64, burst: u64) -> u64 {
        let rate = self.rate.load(Ordering::Relaxed);
        if rate == 0 {
            return 0;
        }
        let price = u64::try_from(u128::from(units) * SECOND / u128::from(rate)).unwrap_or(u64::MAX);
        let earliest = now.saturating_sub(burst);
        let pay = |paid: u64| Some(paid.max(earliest).saturating_add(price));
        // Relaxed: nothing else depends on it.
        let before = match self.paid.fetch_update(Ordering::Relaxed, Ordering::Relaxed, pay) {
            Ok(before) | Err(before) => before,
        };
        before.saturating_sub(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Operations that are let through within `length` nanoseconds if the next is asked for as soon as the last was let through.
    fn admitted(meter: &Meter, from: u64, length: u64, bytes: u64) -> u64 {
        let (mut now, mut count) = (from, 0);
        loop {
            now += u64::try_from(meter.wait(bytes, now).as_nanos()).unwrap();
            if now >= from + length {
                return count;
            }
            count += 1;
        }
    }

    #[test]
    fn without_limits_nothing_waits() {
        let meter = Meter::new(Limits::default());
        assert!(!meter.is_limited());
        assert_eq!(meter.wait(1 << 40, 5), Duration::ZERO);
    }

    #[test]
    fn a_volume_gets_its_rate_and_its_burst() {
        const SECOND: u64 = 1_000_000_000;
        let limits = Limits { operations: 1000, bytes: 0, burst: Duration::from_millis(500) };
        let meter = Meter::new(limits);
        // It was quiet: half a second's worth on top.
        assert_eq!(admitted(&meter, 10 * SECOND, SECOND, 4096), 1500);
        let next = admitted(&meter, 11 * SECOND, SECOND, 4096);
        assert!((990..=1010).contains(&next), "{next}");
        // What is saved up has an end.
        assert_eq!(admitted(&meter, 100 * SECOND, SECOND, 4096), 1500);
    }

    #[test]
    fn the_tighter_of_the_limits_counts() {
        const SECOND: u64 = 1_000_000_000;
        let meter = Meter::new(Limits { operations: 1000, bytes: 1 << 20, burst: Duration::ZERO });
        let small = admitted(&meter, 10 * SECOND, 10 * SECOND, 512);
        assert!((9_990..=10_001).contains(&small), "{small}");
        let large = admitted(&meter, 100 * SECOND, 10 * SECOND, 1 << 18);
        assert!((39..=41).contains(&large), "{large}");
        meter.set(Limits::default());
        assert!(!meter.is_limited());
    }
}
