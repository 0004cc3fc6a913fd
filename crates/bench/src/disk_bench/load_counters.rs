//! The counters of a load on a queue, and the time in which they count.

use std::time::{Duration, Instant};

use crate::sample::Recorder;

/// The time limit of a load that ends with its last request.
const NO_TIME_LIMIT: Duration = Duration::from_secs(7 * 86_400);
/// Maximum time to wait for a completion, in nanoseconds.
const COMPLETION_TIMEOUT_NS: u64 = 60_000_000_000;

/// The length of a measurement.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RunLength {
    /// A time after a ramp-up.
    Time { warm_up: Duration, length: Duration },
    /// Requests per queue.
    Requests(u64),
}

impl RunLength {
    /// Returns the maximum number of requests per queue.
    pub(crate) fn limit(self) -> u64 {
        match self {
            Self::Time { .. } => u64::MAX,
            Self::Requests(count) => count,
        }
    }
}

/// The measured time window after the ramp-up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    pub(crate) start: Instant,
    pub(crate) warm_up: Duration,
    pub(crate) length: Duration,
}

impl Window {
    /// Returns a window whose ramp-up begins now.
    pub(crate) fn begin(length: RunLength) -> Self {
        let (warm_up, length) = match length {
            RunLength::Time { warm_up, length } => (warm_up, length),
            RunLength::Requests(_) => (Duration::ZERO, NO_TIME_LIMIT),
        };
        Self { start: Instant::now(), warm_up, length }
    }

    /// Returns the nanoseconds since the beginning of the ramp-up.
    pub(crate) fn now(&self) -> u64 {
        nanos(self.start.elapsed())
    }

    /// Returns the times of the beginning and the end, as of [`Window::now`].
    fn bounds(&self) -> (u64, u64) {
        let begin = nanos(self.warm_up);
        (begin, begin.saturating_add(nanos(self.length)))
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// The counters of a load.
pub(crate) struct LoadCounters {
    /// Reads and writes.
    pub(crate) sides: [Recorder; 2],
    /// The same per second.
    pub(crate) seconds: Vec<[u64; 2]>,
    /// Requests that the device failed.
    pub(crate) failed: u64,
    /// Length of the measurement in nanoseconds.
    pub(crate) nanos: u64,
    /// True if a request timed out.
    pub(crate) stuck: bool,
}

impl LoadCounters {
    pub(crate) fn new() -> Self {
        Self {
            sides: [Recorder::new(), Recorder::new()],
            seconds: Vec::new(),
            failed: 0,
            nanos: 0,
            stuck: false,
        }
    }

    fn any(&self) -> bool {
        self.sides.iter().any(|side| side.count() > 0)
    }

    /// Counts a request that began at `started` and completes `now`, if that is within the window.
    pub(crate) fn count(&mut self, window: &Window, read: bool, started: u64, now: u64) {
        let (begin, end) = window.bounds();
        // On an overloaded machine the first completion may come after the end.
        if now < begin || now >= end && self.any() {
            return;
        }
        let side = usize::from(!read);
        if let Some(side) = self.sides.get_mut(side) {
            side.record(now.saturating_sub(started));
        }
        let second = usize::try_from((now - begin) / 1_000_000_000).unwrap_or(usize::MAX);
        // Operations after a day are not counted per second.
        if second >= self.seconds.len() && second < 86_400 {
            self.seconds.resize(second + 1, [0; 2]);
        }
        if let Some(count) = self.seconds.get_mut(second).and_then(|both| both.get_mut(side)) {
            *count += 1;
        }
    }

    /// Counts blocks with wrong contents.
    pub(crate) fn count_wrong(&mut self, blocks: u64) {
        let [reads, _] = &mut self.sides;
        reads.wrong += blocks;
    }

    /// True if the window has ended, with a request that counted. The length of the measurement is
    /// set then.
    pub(crate) fn is_over(&mut self, window: &Window, now: u64) -> bool {
        let is_over = now >= window.bounds().1 && self.any();
        if is_over {
            self.finish(window, now);
        }
        is_over
    }

    /// Sets the length of the measurement, unless it is set.
    pub(crate) fn finish(&mut self, window: &Window, now: u64) {
        if self.nanos == 0 {
            self.nanos = now.saturating_sub(window.bounds().0);
        }
    }

    /// True if no completion was seen for too long, the last one at `heard`, while requests wait.
    pub(crate) fn check_stuck(&mut self, heard: u64, now: u64) -> bool {
        self.stuck |= now.saturating_sub(heard) > COMPLETION_TIMEOUT_NS;
        self.stuck
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn window() -> Window {
        let second = Duration::from_secs(1);
        Window { start: Instant::now(), warm_up: second, length: 2 * second }
    }

    #[test]
    fn requests_count_within_the_window_only() {
        let mut counters = LoadCounters::new();
        counters.count(&window(), true, 0, SECOND - 1);
        assert!(!counters.any());
        assert!(!counters.is_over(&window(), 5 * SECOND), "nothing counted");
        counters.count(&window(), true, SECOND - 1, SECOND);
        counters.count(&window(), false, 0, 3 * SECOND - 1);
        counters.count(&window(), false, 0, 3 * SECOND);
        assert_eq!(counters.sides.each_ref().map(Recorder::count), [1, 1]);
        assert_eq!(counters.seconds, [[1, 0], [0, 1]]);
        assert!(!counters.is_over(&window(), 3 * SECOND - 1));
        assert!(counters.is_over(&window(), 3 * SECOND + 5));
        counters.finish(&window(), 9 * SECOND);
        assert_eq!(counters.nanos, 2 * SECOND + 5);
    }

    #[test]
    fn the_first_completion_counts_after_the_end_too() {
        let mut counters = LoadCounters::new();
        counters.count(&window(), true, 0, 4 * SECOND);
        counters.count(&window(), true, 0, 4 * SECOND);
        assert_eq!(counters.sides[0].count(), 1);
    }

    #[test]
    fn a_device_that_completes_nothing_for_a_minute_is_stuck() {
        let mut counters = LoadCounters::new();
        assert!(!counters.check_stuck(SECOND, 61 * SECOND));
        assert!(counters.check_stuck(SECOND, 61 * SECOND + 1));
        assert!(counters.stuck);
    }
}
