//! Whether requests that come too seldom to keep a thread busy are waited for awake, or left to gather.
//!
//! Looking for each request at once takes a whole processor, whatever the load. Resting a little after the work is done, and then
//! doing what has come in the meantime, takes about what the work takes, and delays a request by the rest at most. But who waits
//! for one answer before he asks again loses by each rest. So it is tried: if less is asked for while resting than
//! while polling, resting was wrong, and polling goes on; each time in a row it is tried less often. Decides, does nothing.

use std::time::Duration;

use crate::Instant;

/// Resting begins where less than this share of the time was useful, in percent.
const BUSY_PERCENT_MAX: u64 = 60;
/// Requests by which a rate is told. Of as many that come independently of each other, the count varies by 1.6 %.
const SAMPLE_MIN: u64 = 4096;
/// As many as were to be expected tell that there are less than half as many.
const SAMPLE_MIN_HALVED: u64 = 128;
/// Resting is wrong if the rate falls below this part of what it was, in percent.
const RATE_PERCENT_MIN: u64 = 90;
/// The rate without rests is looked at again this often.
const REVIEW_INTERVAL: Duration = Duration::from_secs(1);
/// How long nothing is tried after resting was wrong, at first and at most.
const BACK_OFF: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(4));

/// See the module.
#[derive(Clone, Debug)]
pub struct Coalescer {
    length: Duration,
    mode: Mode,
    back_off: Duration,
    measurement: Measurement,
}

#[derive(Clone, Copy, Debug)]
enum Mode {
    /// Polling, at least until then.
    Polling { until: Instant },
    /// Resting since then, where polling had this rate.
    Coalescing { since: Instant, polled: Rate },
}

/// What was counted since some moment.
#[derive(Clone, Copy, Debug)]
struct Measurement {
    start: Instant,
    taken: u64,
    idle: Duration,
}

/// Requests in a time.
#[derive(Clone, Copy, Debug)]
struct Rate {
    requests: u64,
    time: Duration,
}

impl Rate {
    /// How many requests to expect in `time`.
    fn expected(self, time: Duration) -> u64 {
        let expected = u128::from(self.requests) * time.as_nanos() / self.time.as_nanos().max(1);
        u64::try_from(expected).unwrap_or(u64::MAX)
    }
}

impl Coalescer {
    /// Rests are this long; with none there is no resting.
    pub fn new(length: Duration, now: Instant) -> Self {
        Self {
            length,
            mode: Mode::Polling { until: now },
            back_off: BACK_OFF.0,
            measurement: Measurement { start: now, taken: 0, idle: Duration::ZERO },
        }
    }

    /// There was nothing to do for so long, whether resting, polling or asleep.
    pub fn record_idle(&mut self, length: Duration) {
        self.measurement.idle += length;
    }

    /// There is nothing to do at `now`, when `taken` requests have been taken in all. How long to rest, if that is better than
    /// to look again at once.
    pub fn delay(&mut self, now: Instant, taken: u64) -> Option<Duration> {
        if self.length.is_zero() {
            return None;
        }
        let seen = Rate { requests: taken - self.measurement.taken, time: now.since(self.measurement.start) };
        match self.mode {
            Mode::Polling { until } => {
                if seen.requests >= SAMPLE_MIN {
                    if now >= until && self.is_worthwhile(seen) {
                        self.mode = Mode::Coalescing { since: now, polled: seen };
                    }
                    self.restart_measurement(now, taken);
                }
            }
            Mode::Coalescing { since, polled } => {
                let expected = polled.expected(seen.time);
                let wrong = (expected >= SAMPLE_MIN_HALVED && seen.requests < expected / 2)
                    || (expected >= SAMPLE_MIN && seen.requests < expected * RATE_PERCENT_MIN / 100);
                if wrong {
                    self.mode = Mode::Polling { until: now + self.back_off };
                    self.back_off = (self.back_off * 2).min(BACK_OFF.1);
                    self.restart_measurement(now, taken);
                } else if expected >= SAMPLE_MIN && seen.requests >= SAMPLE_MIN {
                    self.back_off = BACK_OFF.0;
                    if !self.is_worthwhile(seen) || now.since(since) >= REVIEW_INTERVAL {
                        self.mode = Mode::Polling { until: now };
                    }
                    self.restart_measurement(now, taken);
                }
            }
        }
        matches!(self.mode, Mode::Coalescing { .. }).then_some(self.length)
    }

    fn restart_measurement(&mut self, now: Instant, taken: u64) {
        self.measurement = Measurement { start: now, taken, idle: Duration::ZERO };
    }

    /// True if much of the measurement was idle, and something is to be expected in a rest.
    fn is_worthwhile(&self, seen: Rate) -> bool {
        let useful = seen.time.saturating_sub(self.measurement.idle);
        let seldom = useful.as_nanos() * 100 < seen.time.as_nanos() * u128::from(BUSY_PERCENT_MAX);
        seldom && seen.expected(self.length) > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REST: Duration = Duration::from_micros(50);
    const REQUEST: Duration = Duration::from_nanos(800);

    /// A queue in a made-up time.
    struct SimulatedQueue {
        now: Instant,
        taken: u64,
        coalescer: Coalescer,
        rested: Duration,
        rests: u64,
    }

    impl SimulatedQueue {
        fn new(length: Duration) -> Self {
            let now = Instant::from_nanos(1);
            Self { now, taken: 0, coalescer: Coalescer::new(length, now), rested: Duration::ZERO, rests: 0 }
        }

        /// Looks as often as it takes until `arrived(now)` exceeds what was taken, and does what there is.
        fn serve(&mut self, arrived: &dyn Fn(Instant) -> u64) {
            let since = self.now;
            while arrived(self.now) <= self.taken {
                let length = self.coalescer.delay(self.now, self.taken);
                self.rested += length.unwrap_or_default();
                self.rests += u64::from(length.is_some());
                self.now = self.now + length.unwrap_or(Duration::from_nanos(100));
            }
            self.coalescer.record_idle(self.now.since(since));
            let there = arrived(self.now);
            self.now = self.now + REQUEST * u32::try_from(there - self.taken).unwrap();
            self.taken = there;
        }

        /// Requests that come whatever becomes of them, one in `gap`, for so long.
        fn open(&mut self, gap: Duration, length: Duration) {
            let (start, taken) = (self.now, self.taken);
            let arrived = |now: Instant| taken + (now.since(start).as_nanos() / gap.as_nanos()) as u64;
            while self.now.since(start) < length {
                self.serve(&arrived);
            }
        }

        /// `depth` requests at a time, each anew `pause` after the last were answered, for so long.
        fn closed(&mut self, depth: u64, pause: Duration, length: Duration) {
            let start = self.now;
            while self.now.since(start) < length {
                let (answered, taken) = (self.now, self.taken);
                self.serve(&|now| taken + if now.since(answered) >= pause { depth } else { 0 });
            }
        }
    }

    fn share(part: Duration, whole: Duration) -> f64 {
        part.as_secs_f64() / whole.as_secs_f64()
    }

    const LONG: Duration = Duration::from_secs(8);

    #[test]
    fn requests_that_come_anyway_are_left_to_gather() {
        for (gap, least) in [(8000, 0.8), (1600, 0.4)] {
            let mut queue = SimulatedQueue::new(REST);
            queue.open(Duration::from_nanos(gap), LONG);
            assert!(share(queue.rested, LONG) > least, "a gap of {gap} ns: rested {:?}", queue.rested);
        }
    }

    #[test]
    fn who_waits_for_answers_is_not_kept_waiting() {
        for (depth, pause) in [(1, 1000), (1, 10_000), (4, 5000), (32, 40_000)] {
            let pause = Duration::from_nanos(pause);
            let (mut queue, mut plain) = (SimulatedQueue::new(REST), SimulatedQueue::new(Duration::ZERO));
            queue.closed(depth, pause, LONG);
            plain.closed(depth, pause, LONG);
            let kept = queue.taken as f64 / plain.taken as f64;
            assert!(kept > 0.98, "{depth} at a time, {pause:?} apart: {kept}");
            assert!(plain.rests == 0 && queue.rests > 0, "and it was tried");
        }
    }

    #[test]
    fn a_load_that_changes_is_followed() {
        let mut queue = SimulatedQueue::new(REST);
        let second = Duration::from_secs(1);
        queue.open(Duration::from_nanos(8000), second);
        assert!(queue.rests > 0);
        let (rested, taken) = (queue.rested, queue.taken);
        queue.closed(1, Duration::from_nanos(500), second);
        assert!(share(queue.rested - rested, second) < 0.02, "who waits for answers does so no more");
        assert!(queue.taken - taken > 700_000);
        queue.open(Duration::from_nanos(8000), LONG);
        let rested = queue.rested;
        queue.open(Duration::from_nanos(8000), second);
        assert!(share(queue.rested - rested, second) > 0.8, "and the other load is rested from again");
    }

    #[test]
    fn a_thread_with_much_to_do_does_not_rest() {
        let mut queue = SimulatedQueue::new(REST);
        queue.open(Duration::from_nanos(1100), Duration::from_secs(1));
        assert_eq!(queue.rests, 0, "73 % are useful");
    }

    #[test]
    fn nobody_rests_where_nothing_would_come_meanwhile() {
        let mut queue = SimulatedQueue::new(REST);
        queue.open(Duration::from_micros(100), LONG);
        assert!(queue.taken > 10_000);
        assert_eq!(queue.rests, 0);
    }
}
