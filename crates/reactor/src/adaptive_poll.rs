//! How long it pays to look for more work before sleeping.
//!
//! The last pause tells: what came soon after the last work will come as soon again, and is waited for awake; what took
//! longer than one may wait is slept for at once, so that a load of few requests costs what these take and not what waiting
//! for them does. (The way in which KVM polls before it halts a processor.) Decides, does nothing.

use std::time::Duration;

/// See the module.
#[derive(Clone, Copy, Debug)]
pub struct AdaptivePoll {
    max: Duration,
    current: Duration,
}

impl AdaptivePoll {
    /// At max this long; so long at first.
    pub fn new(max: Duration) -> Self {
        Self { max, current: max }
    }

    /// True if it never pays.
    pub fn is_disabled(&self) -> bool {
        self.max.is_zero()
    }

    /// How long to look before sleeping, now.
    pub fn poll_time(&self) -> Duration {
        self.current
    }

    /// A pause is over that was slept through, at least at its end: from the last work to the next it was this long.
    pub fn record_pause(&mut self, pause: Duration) {
        self.current = if pause < self.max { self.max } else { Duration::ZERO };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_are_waited_for_if_the_last_was_short() {
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
