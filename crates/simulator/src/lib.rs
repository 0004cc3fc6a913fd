//! Simulated drives with faults, the crash sweep and the seeded swarm.
