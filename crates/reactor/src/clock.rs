//! Time in nanoseconds since a fixed moment, read from a clock that the caller supplies.
//!
//! The engine never reads the operating system's clock directly, so that the simulator can control
//! time.

use std::ops::{Add, Sub};
use std::sync::OnceLock;
use std::time::Duration;

/// A moment, in nanoseconds since the clock's own start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(u64);

impl Instant {
    /// Returns the moment `nanos` nanoseconds after the clock's start.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Returns the nanoseconds since the clock's start.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Returns the time from `earlier` to this moment; zero if `earlier` is later.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Instant {
    type Output = Self;
    fn add(self, length: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(length.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl Sub for Instant {
    type Output = Duration;
    fn sub(self, earlier: Self) -> Duration {
        self.since(earlier)
    }
}

/// A source of time.
pub trait Clock {
    /// Returns the current moment. Monotonic.
    fn now(&self) -> Instant;
}

/// The operating system's monotonic clock. All instances in a process count from the same moment,
/// so that moments of different reactors are comparable.
#[derive(Debug)]
pub struct SystemClock {
    start: std::time::Instant,
}

impl SystemClock {
    /// Returns the clock.
    pub fn new() -> Self {
        static START: OnceLock<std::time::Instant> = OnceLock::new();
        // Starts one second before now, so that slightly earlier moments can be expressed.
        let start = || std::time::Instant::now().checked_sub(Duration::from_secs(1));
        Self { start: *START.get_or_init(|| start().unwrap_or_else(std::time::Instant::now)) }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Instant {
        Instant(u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }
}
