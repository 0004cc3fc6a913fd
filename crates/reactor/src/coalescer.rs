//! Decides whether a thread that is not fully busy polls for requests or lets them coalesce.
//!
//! Polling serves each request at once but takes a whole processor at any load. Waiting a little
//! after each batch takes about the processor time of the work, and delays a request by at most
//! that wait. A client that sends its next request only after the last reply loses throughput by
//! each such delay. So the policy tries coalescing and measures: if fewer requests arrive than
//! under polling, it returns to polling and retries with exponential back-off. Makes the decision
//! only.

use std::time::Duration;

use crate::Instant;

/// Coalescing starts below this share of busy time, in percent.
const BUSY_PERCENT_MAX: u64 = 60;
/// Requests in a sample that measures a rate. Over this many independent arrivals the count varies
/// by 1.6 %.
const SAMPLE_MIN: u64 = 4096;
/// Expected requests that suffice to detect a rate below half of the expected one.
const SAMPLE_MIN_HALVED: u64 = 128;
/// Coalescing ends if the request rate falls below this share of the polling rate, in percent.
const RATE_PERCENT_MIN: u64 = 90;
/// Interval at which the rate under polling is measured again.
const REVIEW_INTERVAL: Duration = Duration::from_secs(1);
/// Minimum and maximum time before coalescing is tried again after it lowered the rate.
const BACK_OFF: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(4));

/// A policy that alternates between polling and coalescing; see the module documentation.
#[derive(Clone, Debug)]
pub struct Coalescer {
    length: Duration,
    mode: Mode,
    back_off: Duration,
    measurement: Measurement,
}

#[derive(Clone, Copy, Debug)]
enum Mode {
    /// Polling, at least until `until`.
    Polling { until: Instant },
    /// Coalescing since `since`; `polled` is the rate under polling.
    Coalescing { since: Instant, polled: Rate },
}

/// A sample of requests and idle time since `start`.
#[derive(Clone, Copy, Debug)]
struct Measurement {
    start: Instant,
    taken: u64,
    idle: Duration,
}

/// A request rate.
#[derive(Clone, Copy, Debug)]
struct Rate {
    requests: u64,
    time: Duration,
}

impl Rate {
    /// Returns the number of requests to expect in `time`.
    fn expected(self, time: Duration) -> u64 {
        let expected = u128::from(self.requests) * time.as_nanos() / self.time.as_nanos().max(1);
        u64::try_from(expected).unwrap_or(u64::MAX)
    }
}

impl Coalescer {
    /// Returns a policy with coalescing delays of `length`; zero disables coalescing.
    pub fn new(length: Duration, now: Instant) -> Self {
        Self {
            length,
            mode: Mode::Polling { until: now },
            back_off: BACK_OFF.0,
            measurement: Measurement { start: now, taken: 0, idle: Duration::ZERO },
        }
    }

    /// Records time without work, whether spent coalescing, polling or asleep.
    pub fn record_idle(&mut self, length: Duration) {
        self.measurement.idle += length;
    }

    /// Returns the time to wait before looking for requests again, or `None` to poll. Called
    /// without pending work at `now`, after `taken` requests in total.
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

    /// True if much of the sample was idle and at least one request is expected during a delay.
    fn is_worthwhile(&self, seen: Rate) -> bool {
        let useful = seen.time.saturating_sub(self.measurement.idle);
        let seldom = useful.as_nanos() * 100 < seen.time.as_nanos() * u128::from(BUSY_PERCENT_MAX);
        seldom && seen.expected(self.length) > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DELAY: Duration = Duration::from_micros(50);
    const REQUEST: Duration = Duration::from_nanos(800);

    /// A queue in simulated time.
    struct SimulatedQueue {
        now: Instant,
        taken: u64,
        coalescer: Coalescer,
        delayed: Duration,
        delays: u64,
    }

    impl SimulatedQueue {
        fn new(length: Duration) -> Self {
            let now = Instant::from_nanos(1);
            Self { now, taken: 0, coalescer: Coalescer::new(length, now), delayed: Duration::ZERO, delays: 0 }
        }

        /// Polls or waits until `arrived(now)` exceeds `taken`, then serves all requests.
        fn serve(&mut self, arrived: &dyn Fn(Instant) -> u64) {
            let since = self.now;
            while arrived(self.now) <= self.taken {
                let length = self.coalescer.delay(self.now, self.taken);
                self.delayed += length.unwrap_or_default();
                self.delays += u64::from(length.is_some());
                self.now = self.now + length.unwrap_or(Duration::from_nanos(100));
            }
            self.coalescer.record_idle(self.now.since(since));
            let there = arrived(self.now);
            self.now = self.now + REQUEST * u32::try_from(there - self.taken).unwrap();
            self.taken = there;
        }

        /// Serves an open loop for `length`: a request arrives every `gap`, independent of the
        /// replies.
        fn open(&mut self, gap: Duration, length: Duration) {
            let (start, taken) = (self.now, self.taken);
            let arrived = |now: Instant| taken + (now.since(start).as_nanos() / gap.as_nanos()) as u64;
            while self.now.since(start) < length {
                self.serve(&arrived);
            }
        }

        /// Serves a closed loop for `length`: `depth` requests are sent `pause` after the last
        /// replies.
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
    fn open_loop_requests_are_coalesced() {
        for (gap, least) in [(8000, 0.8), (1600, 0.4)] {
            let mut queue = SimulatedQueue::new(DELAY);
            queue.open(Duration::from_nanos(gap), LONG);
            assert!(share(queue.delayed, LONG) > least, "a gap of {gap} ns: delayed {:?}", queue.delayed);
        }
    }

    #[test]
    fn closed_loop_clients_are_not_delayed() {
        for (depth, pause) in [(1, 1000), (1, 10_000), (4, 5000), (32, 40_000)] {
            let pause = Duration::from_nanos(pause);
            let (mut queue, mut plain) = (SimulatedQueue::new(DELAY), SimulatedQueue::new(Duration::ZERO));
            queue.closed(depth, pause, LONG);
            plain.closed(depth, pause, LONG);
            let ratio = queue.taken as f64 / plain.taken as f64;
            assert!(ratio > 0.98, "{depth} at a time, {pause:?} apart: {ratio}");
            assert!(plain.delays == 0 && queue.delays > 0, "coalescing was tried");
        }
    }

    #[test]
    fn the_mode_follows_a_changing_load() {
        let mut queue = SimulatedQueue::new(DELAY);
        let second = Duration::from_secs(1);
        queue.open(Duration::from_nanos(8000), second);
        assert!(queue.delays > 0);
        let (delayed, taken) = (queue.delayed, queue.taken);
        queue.closed(1, Duration::from_nanos(500), second);
        assert!(share(queue.delayed - delayed, second) < 0.02, "a closed loop is hardly delayed");
        assert!(queue.taken - taken > 700_000);
        queue.open(Duration::from_nanos(8000), LONG);
        let delayed = queue.delayed;
        queue.open(Duration::from_nanos(8000), second);
        assert!(share(queue.delayed - delayed, second) > 0.8, "the open loop is coalesced again");
    }

    #[test]
    fn a_busy_thread_does_not_coalesce() {
        let mut queue = SimulatedQueue::new(DELAY);
        queue.open(Duration::from_nanos(1100), Duration::from_secs(1));
        assert_eq!(queue.delays, 0, "73 % of the time is busy");
    }

    #[test]
    fn requests_rarer_than_the_delay_are_not_coalesced() {
        let mut queue = SimulatedQueue::new(DELAY);
        queue.open(Duration::from_micros(100), LONG);
        assert!(queue.taken > 10_000);
        assert_eq!(queue.delays, 0);
    }
}
