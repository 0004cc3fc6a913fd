//! Simulated drives with faults, the crash sweep and the seeded swarm.
//!
//! The crate owns time, randomness and drives, and runs the engine on them with one thread and one
//! executor. Every run is a function of its seed. At a power cut a simulated drive keeps, drops,
//! tears or garbles its unflushed writes. It can also lose, misdirect or fail writes, corrupt
//! stored bits, fail reads, stall, die and return with stale data. A plain model checks the
//! engine's replies; the engine's own verifier checks the drives.
//!
//! Optionally, calls between the parts of a pool take time, as if each part ran on its own reactor.
//!
//! Always true: the same seed gives the same run, byte for byte. Faults never exceed the losses
//! that the pool's scheme tolerates, except in runs that expect a clean error. The product never
//! links this crate.

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
