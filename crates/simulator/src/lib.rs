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
pub mod events;
pub mod model;
pub mod random;
pub mod run;
mod sparse_layout;
pub mod swarm;
pub mod sweep;

#[cfg(test)]
mod background_load_tests;
#[cfg(test)]
mod compaction_tests;
#[cfg(test)]
mod durability_tests;
#[cfg(test)]
mod lost_block_tests;
#[cfg(test)]
mod membership_tests;
#[cfg(test)]
mod read_error_tests;
#[cfg(test)]
mod repair_tests;
#[cfg(test)]
mod returning_drive_tests;
#[cfg(test)]
mod salvage_tests;
#[cfg(test)]
mod scrub_schedule_tests;
#[cfg(test)]
mod scrub_tests;
#[cfg(test)]
mod snapshot_tests;
#[cfg(test)]
mod space_tests;
#[cfg(test)]
mod stale_drive_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod wide_scheme_tests;
