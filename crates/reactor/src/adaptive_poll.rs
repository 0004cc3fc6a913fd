//! Adaptive polling: how long to poll for more work before sleeping.
//!
//! The last pauses predict the next one. After two short pauses the reactor polls; after a pause
//! longer than the limit it sleeps at once, so that a light load does not pay for polling. KVM uses
//! such a scheme before it halts a processor. A single short pause predicts nothing: each completed
//! operation of a slow device is followed by a short pause until its client sends the next request,
//! and that by a long pause until the device completes one. Makes the decision only; the caller
//! polls and sleeps.

use std::time::Duration;

/// An adaptive polling policy; see the module documentation.
#[derive(Clone, Copy, Debug)]
pub struct AdaptivePoll {
    max: Duration,
    current: Duration,
    /// True if the last recorded pause was short.
    was_short: bool,
}

impl AdaptivePoll {
    /// Returns a policy that polls for at most `max`, and for `max` at first.
    pub fn new(max: Duration) -> Self {
        Self { max, current: max, was_short: true }
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
        let is_short = pause < self.max;
        self.current = if is_short && self.was_short { self.max } else { Duration::ZERO };
        self.was_short = is_short;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn polling_follows_two_short_pauses() {
        let micros = Duration::from_micros;
        let mut poll = AdaptivePoll::new(micros(50));
        assert_eq!(poll.poll_time(), micros(50));
        poll.record_pause(micros(51));
        assert_eq!(poll.poll_time(), Duration::ZERO);
        poll.record_pause(micros(100));
        assert_eq!(poll.poll_time(), Duration::ZERO);
        for _ in 0..3 {
            poll.record_pause(micros(10));
            assert_eq!(poll.poll_time(), Duration::ZERO, "a long pause may follow");
            poll.record_pause(micros(300));
        }
        poll.record_pause(micros(10));
        poll.record_pause(micros(10));
        assert_eq!(poll.poll_time(), micros(50));
        let mut none = AdaptivePoll::new(Duration::ZERO);
        none.record_pause(Duration::ZERO);
        assert_eq!(none.poll_time(), Duration::ZERO);
    }
}
