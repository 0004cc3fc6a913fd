//! Random selection of the next block to overwrite.

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution as _, Zipf};
use serde::Serialize;

/// Exponent of the Zipf distribution, as in YCSB (Cooper and others, 2010).
const THETA: f64 = 0.99;

/// Distribution of overwrites over the blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Distribution {
    /// All blocks are equally likely.
    Uniform,
    /// Zipf with exponent 0.99; hot blocks are spread over the volume.
    Zipf,
}

/// A random source of block numbers below `blocks`.
pub(crate) struct Draw {
    random: SmallRng,
    blocks: u64,
    /// Distance between consecutive ranks, so that hot blocks are not adjacent.
    step: u64,
    zipf: Option<Zipf<f64>>,
}

impl Draw {
    #[allow(clippy::cast_precision_loss)]
    pub(crate) fn new(distribution: Distribution, blocks: u64, seed: u64) -> Self {
        let zipf = match distribution {
            Distribution::Uniform => None,
            Distribution::Zipf => Zipf::new(blocks as f64, THETA).ok(),
        };
        Self { random: SmallRng::seed_from_u64(seed), blocks, step: step(blocks), zipf }
    }

    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    pub(crate) fn next(&mut self) -> u64 {
        match &self.zipf {
            None => self.random.random_range(0..self.blocks),
            Some(zipf) => {
                let rank = zipf.sample(&mut self.random) as u64 - 1;
                u64::try_from(u128::from(rank) * u128::from(self.step) % u128::from(self.blocks)).unwrap_or(0)
            }
        }
    }
}

/// Returns a step that visits all blocks because it is coprime to their number. The golden ratio
/// spreads them evenly.
fn step(blocks: u64) -> u64 {
    let golden = u64::try_from((u128::from(blocks) * 0x9E37_79B9_7F4A_7C15) >> 64).unwrap_or(0);
    (golden.max(1)..).find(|step| gcd(*step, blocks) == 1).unwrap_or(1)
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}
