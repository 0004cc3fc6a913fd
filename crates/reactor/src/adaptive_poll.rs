//! Adaptive polling: how long to poll for more work before sleeping.
//!
//! The last pause predicts the next one. After a short pause the reactor polls; after a pause
//! longer than the limit it sleeps at once, so that a light load does not pay for polling. This is
//! the scheme that KVM uses before it halts a processor. Makes the decision only; the caller polls
//! and sleeps.

use std::time::Duration;

/// An adaptive polling policy; see the module documentation.
#[derive(Clone, Copy, Debug)]
pub struct AdaptivePoll {
    max: Duration,
    current: Duration,
}

impl AdaptivePoll {
    /// Returns a policy that polls for at most `max`, and for `max` at first.
    pub fn new(max: Duration) -> Self {
        Self { max, current: max }
    }

    /// True if the limit is zero, so that polling never happens.
    pub fn is_disabled(&self) -> bool {
        self.max.is_zero()
    }

    /// Returns the current time to poll before sleeping.
    pub fn poll_time(&self) -> Duration {
        self.current
    }

    /// Records the time from the last work to the next, of a pause that ended in a sleep.
    pub fn record_pause(&mut self, pause: Duration) {
        self.current = if pause < self.max { self.max } else { Duration::ZERO };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn polling_follows_only_a_short_pause() {
        let micros = Duration::from_micros;
        let mut poll = AdaptivePoll::new(micros(50));
        assert_eq!(poll.poll_time(), micros(50));
        poll.record_pause(micros(51));
        assert_eq!(poll.poll_time(), Duration::ZERO);
        poll.record_pause(micros(100));
        assert_eq!(poll.poll_time(), Duration::ZERO);
        poll.record_pause(micros(10));
        assert_eq!(poll.poll_time(), micros(50));
        let mut none = AdaptivePoll::new(Duration::ZERO);
        none.record_pause(Duration::ZERO);
        assert_eq!(none.poll_time(), Duration::ZERO);
    }
}
