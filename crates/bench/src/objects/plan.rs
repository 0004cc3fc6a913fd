//! The description of a load.

use std::time::Duration;

use super::ObjectOperation;

/// The shares of requests in percent, in the order of [`ObjectOperation::ALL`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestShares(pub [u8; 4]);

impl RequestShares {
    /// Returns the share of an operation in percent.
    pub fn share(self, operation: ObjectOperation) -> u8 {
        let [get, stat, put, delete] = self.0;
        match operation {
            ObjectOperation::Get => get,
            ObjectOperation::Stat => stat,
            ObjectOperation::Put => put,
            ObjectOperation::Delete => delete,
        }
    }

    /// Returns the operation for a number below 100.
    pub(super) fn pick(self, number: u8) -> ObjectOperation {
        let mut end = 0;
        let within = |operation: &ObjectOperation| {
            end += self.share(*operation);
            number < end
        };
        ObjectOperation::ALL.into_iter().find(within).unwrap_or(ObjectOperation::Get)
    }

    /// True if the objects must exist before the load.
    pub(super) fn needs_objects(self) -> bool {
        self.share(ObjectOperation::Put) < 100
    }
}

/// The sizes of objects: the smallest one, and its doubles up to the largest one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectSizes {
    min: u64,
    /// Number of sizes.
    count: u32,
}

impl ObjectSizes {
    /// Returns the sizes from `min` to `max` bytes.
    pub fn new(min: u64, max: u64) -> Self {
        let count = (max / min.max(1)).max(1).ilog2() + 1;
        Self { min, count }
    }

    /// True if all objects have the same size.
    pub fn is_single(self) -> bool {
        self.count == 1
    }

    /// Returns the mean in bytes.
    pub fn mean(self) -> u64 {
        let sum: u64 = (0..self.count).map(|doubled| self.min << doubled).sum();
        sum / u64::from(self.count)
    }

    /// Returns the size in bytes of a version of an object.
    pub(super) fn of(self, key: u64, version: u64) -> u64 {
        let mixed = (key ^ version.rotate_left(17)).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        self.min << (mixed % u64::from(self.count))
    }
}

/// A load.
#[derive(Clone, Debug)]
pub struct ObjectLoad {
    /// The bucket.
    pub bucket: String,
    /// The operations.
    pub shares: RequestShares,
    /// Bytes of the objects.
    pub sizes: ObjectSizes,
    /// Bytes of the ranges that a GET reads at the same time; `None` for the whole object at once.
    pub range_bytes: Option<u64>,
    /// True if a DELETE deletes the oldest object of the client.
    pub oldest_first: bool,
    /// The number of objects, at least one per client.
    pub objects: u64,
    /// Clients, each with one request at a time.
    pub clients: u32,
    /// The time before the measurement.
    pub warm_up: Duration,
    /// The measured time.
    pub run: Duration,
}
