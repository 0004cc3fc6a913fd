//! Mergeable latency histograms. Percentiles are computed from merged counts, never averaged.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Number of operations per latency.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Histogram {
    /// Latency in nanoseconds, and the number of operations with that latency.
    counts: BTreeMap<u64, u64>,
}

impl FromIterator<(u64, u64)> for Histogram {
    fn from_iter<T: IntoIterator<Item = (u64, u64)>>(pairs: T) -> Self {
        let mut histogram = Self::default();
        for (nanos, count) in pairs {
            histogram.add(nanos, count);
        }
        histogram
    }
}

impl Histogram {
    /// Adds `count` operations of `nanos` nanoseconds.
    pub fn add(&mut self, nanos: u64, count: u64) {
        *self.counts.entry(nanos).or_insert(0) += count;
    }

    /// Adds the counts of another histogram.
    pub fn merge(&mut self, other: &Self) {
        for (&nanos, &count) in &other.counts {
            self.add(nanos, count);
        }
    }

    /// Returns the number of operations.
    pub fn count(&self) -> u64 {
        self.counts.values().sum()
    }

    /// Returns the smallest latency, in nanoseconds, within which this share of the operations
    /// completed; `None` without operations.
    ///
    /// # Panics
    /// If `share` is not between 0 and 1.
    #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    pub fn quantile(&self, share: f64) -> Option<u64> {
        assert!((0.0..=1.0).contains(&share), "a share of {share}");
        let wanted = ((self.count() as f64 * share).ceil() as u64).max(1);
        let mut seen = 0;
        self.counts.iter().find_map(|(&nanos, &count)| {
            seen += count;
            (seen >= wanted).then_some(nanos)
        })
    }

    /// Returns latencies and counts, in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64)> {
        self.counts.iter().map(|(&nanos, &count)| (nanos, count))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn averaged_percentiles_would_be_wrong() {
        let fast: Histogram = [(10, 999)].into_iter().collect();
        let slow: Histogram = [(1000, 1)].into_iter().collect();
        let mut all = fast.clone();
        all.merge(&slow);
        assert_eq!((fast.quantile(0.99), slow.quantile(0.99)), (Some(10), Some(1000)));
        assert_eq!(
            (all.quantile(0.99), all.quantile(0.999), all.quantile(0.9995)),
            (Some(10), Some(10), Some(1000))
        );
        assert_eq!(Histogram::default().quantile(0.5), None);
    }

    proptest! {
        #[test]
        fn merging_equals_counting_together(
            left in proptest::collection::vec(1u64..50, 0..200),
            right in proptest::collection::vec(1u64..50, 1..200),
            share in 0.0f64..=1.0,
        ) {
            let count = |values: &[u64]| values.iter().map(|value| (*value, 1)).collect::<Histogram>();
            let mut merged = count(&left);
            merged.merge(&count(&right));
            let mut all = [left, right].concat();
            all.sort_unstable();
            #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
            let rank = ((all.len() as f64 * share).ceil() as usize).max(1);
            prop_assert_eq!(merged.count(), all.len() as u64);
            prop_assert_eq!(merged.quantile(share), Some(all[rank - 1]));
        }
    }
}
