//! The description of a load.

use std::time::Duration;

use super::Mix;

/// A load.
#[derive(Clone, Debug)]
pub struct ObjectLoad {
    /// The bucket.
    pub bucket: String,
    /// The operations.
    pub mix: Mix,
    /// Bytes of each object.
    pub object_bytes: usize,
    /// The number of objects, at least one per client.
    pub objects: u64,
    /// Clients, each with one request at a time.
    pub clients: u32,
    /// The time before the measurement.
    pub warm_up: Duration,
    /// The measured time.
    pub run: Duration,
}
