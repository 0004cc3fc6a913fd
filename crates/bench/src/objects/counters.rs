//! The counters of a load.

use std::time::{Duration, Instant};

use super::client::OperationLatencies;
use crate::load::Second;

/// The measurements of a load.
pub(super) struct ObjectCounters {
    /// In the order of [`ObjectOperation::ALL`].
    pub(super) measured: [OperationLatencies; 4],
    /// Objects with other contents or another length than the written ones.
    pub(super) wrong: u64,
    pub(super) elapsed: Duration,
    pub(super) ended: Instant,
    pub(super) seconds: Vec<Second>,
}
