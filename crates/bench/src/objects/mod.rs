//! Loads of S3 requests, and the five mixes of KIOXIA's document on object storage.
//!
//! Each client has objects of its own, so that it knows the contents of every object that it reads,
//! and compares all bytes. Latencies of all clients are merged in one histogram per operation.

mod client;
mod content;
mod load;
mod plan;
mod result;
#[cfg(test)]
mod tests;

pub use load::run;
pub use plan::ObjectLoad;
pub use result::{ObjectBound, ObjectResult, OperationFigures, SERVER};

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
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mix {
    /// Name on the command line.
    pub name: &'static str,
    /// Shares in percent, in the order of [`ObjectOperation::ALL`].
    pub shares: [u8; 4],
    /// The published figures.
    pub published: PublishedMix,
}

/// Figures of the document: 4 servers of 8 drives, 10 MiB objects, 200 clients.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct PublishedMix {
    /// GET in MB/s.
    pub get_mb_s: f64,
    /// PUT in MB/s.
    pub put_mb_s: f64,
    /// Processors in use in percent.
    pub cpu_percent: f64,
    /// Mean latency of reads of the drives in milliseconds.
    pub read_ms: f64,
    /// Mean latency of writes of the drives in milliseconds.
    pub write_ms: f64,
    /// Utilisation of the drives in percent.
    pub drive_percent: f64,
}

/// Describes a mix: shares in the order of [`ObjectOperation::ALL`], figures in that of
/// [`PublishedMix`].
const fn mix(name: &'static str, shares: [u8; 4], figures: [f64; 6]) -> Mix {
    let [get_mb_s, put_mb_s, cpu_percent, read_ms, write_ms, drive_percent] = figures;
    let published = PublishedMix { get_mb_s, put_mb_s, cpu_percent, read_ms, write_ms, drive_percent };
    Mix { name, shares, published }
}

/// The mixes of KIOXIA's document on object storage.
pub const MIXES: [Mix; 5] = [
    mix("ai", [90, 0, 10, 0], [22_953.17, 1786.65, 47.29, 0.34, 0.55, 57.60]),
    mix("web", [70, 0, 30, 0], [18_249.55, 7820.72, 83.32, 0.86, 1.19, 86.86]),
    mix("cloud", [40, 10, 40, 10], [11_384.78, 11_384.28, 62.37, 1.07, 1.70, 89.63]),
    mix("restore", [100, 0, 0, 0], [23_594.08, 0.0, 20.11, 0.20, 0.04, 40.14]),
    mix("backup", [0, 0, 100, 0], [0.0, 13_291.60, 86.75, 0.01, 5.90, 60.65]),
];

impl Mix {
    /// Returns the mix of this name.
    pub fn find(name: &str) -> Option<Self> {
        MIXES.into_iter().find(|mix| mix.name == name)
    }

    /// Returns the share of an operation in percent.
    pub fn share(&self, operation: ObjectOperation) -> u8 {
        let [get, stat, put, delete] = self.shares;
        match operation {
            ObjectOperation::Get => get,
            ObjectOperation::Stat => stat,
            ObjectOperation::Put => put,
            ObjectOperation::Delete => delete,
        }
    }

    /// Returns the operation for a number below 100.
    fn pick(&self, number: u8) -> ObjectOperation {
        let mut end = 0;
        let within = |operation: &ObjectOperation| {
            end += self.share(*operation);
            number < end
        };
        ObjectOperation::ALL.into_iter().find(within).unwrap_or(ObjectOperation::Get)
    }

    fn needs_objects(&self) -> bool {
        self.share(ObjectOperation::Put) < 100
    }
}
