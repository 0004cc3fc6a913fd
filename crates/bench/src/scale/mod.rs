//! What large pools cost: `bench map`, a volume whose map is many times larger than the memory for it, and `bench recovery`, how long an opening
//! takes after a crash.
//!
//! Must not know: how the engine keeps its map.

mod load;
mod map;
mod recovery;

pub use map::{MapCost, MapOptions, measure_map};
pub use recovery::{Recovery, RecoveryOptions, measure_recovery};

#[cfg(test)]
mod tests;
