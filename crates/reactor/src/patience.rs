//! How long it pays to look for more work before sleeping.
//!
//! The last pause tells: what came soon after the last work will come as soon again, and is waited for awake; what took
//! longer than one may wait is slept for at once, so that a load of few requests costs what these take and not what waiting
//! for them does. (The way in which KVM polls before it halts a processor.) Decides, does nothing.

use std::time::Duration;

/// See the module.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    most: Duration,
    now: Duration,
}

impl Patience {
    /// At most this long; so long at first.
    pub fn new(most: Duration) -> Self {
        Self { most, now: most }
    }

    /// True if it never pays.
    pub fn is_off(&self) -> bool {
        self.most.is_zero()
    }

    /// How long to look before sleeping, now.
    pub fn length(&self) -> Duration {
        self.now
    }

    /// A pause is over that was slept through, at least at its end: from the last work to the next it was this long.
    pub fn slept_through(&mut self, pause: Duration) {
        self.now = if pause < self.most { self.most } else { Duration::ZERO };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_are_waited_for_if_the_last_was_short() {
        let micros = Duration::from_micros;
        let mut patience = Patience::new(micros(50));
        assert_eq!(patience.length(), micros(50));
        patience.slept_through(micros(51));
        assert_eq!(patience.length(), Duration::ZERO);
        patience.slept_through(micros(100));
        assert_eq!(patience.length(), Duration::ZERO);
        patience.slept_through(micros(10));
        assert_eq!(patience.length(), micros(50));
        let mut none = Patience::new(Duration::ZERO);
        none.slept_through(Duration::ZERO);
        assert_eq!(none.length(), Duration::ZERO);
    }
}
