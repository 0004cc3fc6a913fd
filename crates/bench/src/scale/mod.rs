//! Benchmarks of large pools: `bench map`, a volume with a map many times larger than its memory
//! limit, and `bench recovery`, the time to open a pool after a crash.

mod load;
mod map;
mod recovery;

pub use map::{MapCost, MapOptions, measure_map};
pub use recovery::{Recovery, RecoveryOptions, measure_recovery};

#[cfg(test)]
mod tests;
