//! Steady-state detection.
//!
//! The criterion is that of SNIA's Solid State Storage Performance Test Specification (2.0.2,
//! steady state): over the window, the highest and the lowest value differ by no more than 20 % of
//! the mean, and a fitted line changes by no more than 10 % of the mean.

use serde::{Deserialize, Serialize};

use crate::load::Second;

/// Number of parts of a measurement, like the five rounds of the specification.
const ROUNDS: usize = 5;
const RANGE_MAX: f64 = 0.2;
const SLOPE_MAX: f64 = 0.1;

/// The steadiness of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Steady {
    /// True if it reached a steady state.
    pub steady: bool,
    /// Range of the parts as a share of the mean.
    pub range: f64,
    /// Slope of the fitted line over the window, as a share of the mean.
    pub slope: f64,
}

/// Returns the steadiness of a measurement; `None` if it has too few seconds.
#[allow(clippy::cast_precision_loss)]
pub fn steadiness(seconds: &[Second]) -> Option<Steady> {
    let values: Vec<f64> = seconds.iter().map(|second| second.read + second.write).collect();
    let length = values.len() / ROUNDS;
    if length == 0 {
        return None;
    }
    // Drops the oldest seconds that do not fill the parts evenly.
    let values = values.get(values.len() - length * ROUNDS..)?;
    let rounds: Vec<f64> =
        values.chunks(length).map(|chunk| chunk.iter().sum::<f64>() / length as f64).collect();
    let mean = rounds.iter().sum::<f64>() / ROUNDS as f64;
    if mean <= 0.0 {
        return None;
    }
    let highest = rounds.iter().copied().fold(f64::MIN, f64::max);
    let lowest = rounds.iter().copied().fold(f64::MAX, f64::min);
    // Least squares over 0, 1, 2, 3, 4.
    let middle = (ROUNDS - 1) as f64 / 2.0;
    let (mut above, mut below) = (0.0, 0.0);
    for (index, round) in rounds.iter().enumerate() {
        let distance = index as f64 - middle;
        above += distance * (round - mean);
        below += distance * distance;
    }
    let slope = above / below * (ROUNDS - 1) as f64 / mean;
    let range = (highest - lowest) / mean;
    Some(Steady { steady: range <= RANGE_MAX && slope.abs() <= SLOPE_MAX, range, slope })
}
