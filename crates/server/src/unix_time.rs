//! The time of the system clock as a number.

use std::time::SystemTime;

/// Returns the time in seconds since 1970.
pub(crate) fn unix_time() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
