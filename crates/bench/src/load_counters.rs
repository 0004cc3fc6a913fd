//! The counters of a load on a queue, and the time in which they count.

use std::time::{Duration, Instant};

use crate::sample::Recorder;

/// The measured time window after the ramp-up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    pub(crate) start: Instant,
    pub(crate) warm_up: Duration,
    pub(crate) length: Duration,
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

    pub(crate) fn any(&self) -> bool {
        self.sides.iter().any(|side| side.count() > 0)
    }

    pub(crate) fn count(&mut self, read: bool, at: u64, took: u64) {
        let side = usize::from(!read);
        if let Some(side) = self.sides.get_mut(side) {
            side.record(took);
        }
        let second = usize::try_from(at / 1_000_000_000).unwrap_or(usize::MAX);
        // Operations after a day are not counted per second.
        if second >= self.seconds.len() && second < 86_400 {
            self.seconds.resize(second + 1, [0; 2]);
        }
        if let Some(count) = self.seconds.get_mut(second).and_then(|both| both.get_mut(side)) {
            *count += 1;
        }
    }
}
