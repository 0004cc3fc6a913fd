//! Whether a measurement had settled.
//!
//! The criterion is that of SNIA's Solid State Storage Performance Test Specification (2.0.2, steady state): over the window,
//! no value further than 10 % of the mean from it, and a fitted line that moves by no more than 10 % of the mean.

use serde::{Deserialize, Serialize};

use crate::load::Second;

/// Pieces that the measurement is cut into, as the specification's five rounds.
const ROUNDS: usize = 5;
const RANGE_MAX: f64 = 0.2;
const SLOPE_MAX: f64 = 0.1;

/// How far a measurement was from settled.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Steady {
    /// It had.
    pub steady: bool,
    /// Highest less lowest round, as a share of the mean.
    pub range: f64,
    /// What a fitted line rises over the window, as a share of the mean.
    pub slope: f64,
}

/// What the seconds of a measurement say; `None` if they are too few.
#[allow(clippy::cast_precision_loss)]
pub fn steadiness(seconds: &[Second]) -> Option<Steady> {
    let values: Vec<f64> = seconds.iter().map(|second| second.read + second.write).collect();
    let length = values.len() / ROUNDS;
    if length == 0 {
        return None;
    }
    // The oldest seconds are left out if they do not come out even.
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
