//! Simulated drives with faults, the crash sweep and the seeded swarm.
//!
//! Owns time, randomness and drives, and runs the engine on them: one thread, one executor, every run a function of its
//! seed. A simulated drive forgets at a power cut what was not flushed, keeps it, tears it or garbles it; it can lose or
//! misdirect writes, fail them, rot, fail reads, stall, die and come back stale. What the engine answers is checked against a plain
//! model; what it leaves on the drives is checked by its own verifier.
//!
//! Where a run wants it, calls between the parts of a pool take time, as if each were on a reactor of its own.
//!
//! Always true: the same seed gives the same run, byte for byte; faults never exceed what the pool's scheme bears, unless
//! a clean error is what is expected. Never linked into the product.

pub mod disk;
pub mod model;
pub mod random;
pub mod run;
mod stretch;
pub mod swarm;
pub mod sweep;
pub mod world;

#[cfg(test)]
mod errors_tests;
#[cfg(test)]
mod lost_tests;
#[cfg(test)]
mod members_tests;
#[cfg(test)]
mod repair_tests;
#[cfg(test)]
mod returns_tests;
#[cfg(test)]
mod safety_tests;
#[cfg(test)]
mod salvage_tests;
#[cfg(test)]
mod schedule_tests;
#[cfg(test)]
mod scrub_tests;
#[cfg(test)]
mod snapshot_tests;
#[cfg(test)]
mod stale_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod users_tests;
#[cfg(test)]
mod wide_tests;
