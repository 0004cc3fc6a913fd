//! Fairness between volumes: a limit per volume ([`RateLimiter`]) and the order among competing
//! volumes ([`FairScheduler`]).
//!
//! Must not know: the kinds of operations, shards.

mod flow;
mod limiter;
mod rate;
mod scheduler;

pub(crate) use rate::{RateLimiter, RateLimits};
pub(crate) use scheduler::{FairScheduler, Permit};
