//! Loads of S3 requests: of suites, and of `gabion bench objects`.
//!
//! Each client has objects of its own, so that it knows the contents of every object that it reads,
//! and compares all bytes. Latencies of all clients are merged in one histogram per operation.

mod client;
mod columns;
mod content;
mod counters;
mod listing;
mod load;
mod load_error;
mod plan;
mod result;
mod suite_load;
#[cfg(test)]
mod tests;
mod warp;

pub use columns::{ObjectColumns, object_columns};
pub use listing::{ListingPlan, ListingResult, measure_listing};
pub use load::run;
pub use load_error::ObjectLoadError;
pub use plan::{ObjectLoad, ObjectSizes, RequestShares};
pub use result::{ObjectBound, ObjectResult, OperationFigures, SERVER};
pub(crate) use suite_load::run_load;
pub use warp::warp_version;

/// An operation of a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectOperation {
    /// Reads an object and compares all of it.
    Get,
    /// Reads the headers of an object.
    Stat,
    /// Writes an object: a new one if the client has deleted some, else over another one.
    Put,
    /// Deletes an object.
    Delete,
}

impl ObjectOperation {
    /// All operations, in the order of figures.
    pub const ALL: [Self; 4] = [Self::Get, Self::Stat, Self::Put, Self::Delete];

    /// Returns the name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Stat => "STAT",
            Self::Put => "PUT",
            Self::Delete => "DELETE",
        }
    }
}

/// A mix of operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mix {
    /// Name on the command line.
    pub name: &'static str,
    /// The shares of the operations.
    pub shares: RequestShares,
}

/// The mixes of KIOXIA's document on object storage, whose figures are in the suite `object-five`.
pub const MIXES: [Mix; 5] = [
    Mix { name: "ai", shares: RequestShares([90, 0, 10, 0]) },
    Mix { name: "web", shares: RequestShares([70, 0, 30, 0]) },
    Mix { name: "cloud", shares: RequestShares([40, 10, 40, 10]) },
    Mix { name: "restore", shares: RequestShares([100, 0, 0, 0]) },
    Mix { name: "backup", shares: RequestShares([0, 0, 100, 0]) },
];

impl Mix {
    /// Returns the mix of this name.
    pub fn find(name: &str) -> Option<Self> {
        MIXES.into_iter().find(|mix| mix.name == name)
    }
}
