//! The rate at which the blocks of a segment die: the faster, the more the cleaner saves by
//! waiting.
//!
//! Time is the number of references that the shard has dropped: the engine has no clock, and a pool
//! without writes needs no cleaning. Must not know: which segment is cleaned.

/// Share of a segment's payload that has to die between two marks. Fewer deaths are too few for an
/// estimate of their own, and are weighed against the previous one.
const DEATHS_PER_MARK: f32 = 1.0 / 32.0;

/// Estimates the deaths per live block and unit of time.
#[derive(Clone, Copy, Default)]
pub(super) struct DeathRate {
    /// The number and sum of the rates of the segments from which blocks were moved here.
    moved: u32,
    moved_rates: f32,
    mark: Option<Mark>,
    /// The last estimate.
    last: Option<f32>,
}

/// The state of a segment at the start of an observation.
#[derive(Clone, Copy)]
struct Mark {
    time: u64,
    live: u32,
    /// The estimate before it.
    rate: f32,
}

impl DeathRate {
    /// Accounts for a block that was moved here from a segment with this rate.
    pub(super) fn inherit(&mut self, rate: f32) {
        self.moved += 1;
        self.moved_rates += rate;
    }

    /// Returns the last estimate.
    pub(super) fn last(&self) -> Option<f32> {
        self.last
    }

    /// Updates and returns the estimate for a segment with `live` of `payload` blocks alive at
    /// `time`. `mean` is the rate of the whole shard, which is assumed for new data.
    pub(super) fn observe(&mut self, time: u64, live: u32, payload: u64, mean: f32) -> f32 {
        let rate = self.estimate(time, live, payload, mean);
        assert!(rate > 0.0 && rate.is_finite(), "the death rate {rate} of a segment is not positive");
        self.last = Some(rate);
        rate
    }

    #[allow(clippy::cast_precision_loss)]
    fn estimate(&mut self, time: u64, live: u32, payload: u64, mean: f32) -> f32 {
        let Some(mark) = self.mark else {
            let rate = if self.moved == 0 { mean } else { self.moved_rates / self.moved as f32 };
            self.mark = Some(Mark { time, live, rate });
            return rate;
        };
        let deaths = mark.live.saturating_sub(live) as f32;
        let exposure = (mark.live as f32 + live as f32) / 2.0 * time.saturating_sub(mark.time) as f32;
        // The mean of the posterior distribution of a Poisson rate, with `weight` deaths before.
        let weight = (payload as f32 * DEATHS_PER_MARK).max(1.0);
        let rate = (deaths + weight) / (exposure + weight / mark.rate);
        if deaths >= weight {
            self.mark = Some(Mark { time, live, rate });
        }
        rate
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAYLOAD: u64 = 1600;

    /// Observes a segment of which `share` of the live blocks die in each of `steps` steps of 1,000
    /// units, and returns the last estimate.
    #[allow(clippy::cast_possible_truncation, clippy::cast_precision_loss, clippy::cast_sign_loss)]
    fn observed(mut rate: DeathRate, share: f32, steps: u64) -> f32 {
        let mut live = PAYLOAD as f32;
        let mut last = rate.observe(0, live as u32, PAYLOAD, 1e-5);
        for step in 1..=steps {
            live *= 1.0 - share;
            last = rate.observe(step * 1000, live as u32, PAYLOAD, 1e-5);
        }
        last
    }

    #[test]
    fn the_estimate_approaches_the_rate_of_deaths() {
        for (share, rate) in [(0.1, 1e-4), (0.01, 1e-5)] {
            let found = observed(DeathRate::default(), share, 30);
            assert!((0.8..1.25).contains(&(found / rate)), "{found} instead of {rate}");
        }
    }

    #[test]
    fn a_segment_without_deaths_is_cold_after_a_while() {
        let (early, late) =
            (observed(DeathRate::default(), 0.0, 10), observed(DeathRate::default(), 0.0, 1000));
        assert!(early < 1e-5 && late < early / 10.0, "{early}, {late}");
    }

    #[test]
    fn moved_blocks_take_the_rate_of_their_sources_along() {
        let mut cold = DeathRate::default();
        cold.inherit(1e-8);
        cold.inherit(3e-8);
        assert!((1.9e-8..2.1e-8).contains(&cold.observe(5, 100, PAYLOAD, 1e-5)));
        assert_eq!(DeathRate::default().observe(5, 100, PAYLOAD, 1e-5), 1e-5, "new data");
    }
}
