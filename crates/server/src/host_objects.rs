//! Objects of this host that the console shows and the daemon does not own: virtual machines,
//! benchmark runs and the status of clusters.
//!
//! Must not know: how machines run, how runs are stored, how clusters work. The program
//! implements the trait with the crates of its other commands.

use std::path::PathBuf;

use api::types::{BenchmarkRun, Cluster, ClusterStatus, HostMachine};

/// The objects of this host. Calls block.
pub trait HostObjects: Send + Sync {
    /// Returns the machines by name.
    ///
    /// # Errors
    /// When they cannot be read.
    fn machines(&self) -> api::Result<Vec<HostMachine>>;

    /// Returns the Unix socket of the serial console of a machine.
    ///
    /// # Errors
    /// `NotFound`; `Busy` if the machine does not run.
    fn console(&self, machine: &str) -> api::Result<PathBuf>;

    /// Returns the clusters by name.
    ///
    /// # Errors
    /// When they cannot be read.
    fn clusters(&self) -> api::Result<Vec<Cluster>>;

    /// Returns the status of a cluster.
    ///
    /// # Errors
    /// `NotFound`; `Io`.
    fn cluster(&self, cluster: &str) -> api::Result<ClusterStatus>;

    /// Returns the stored benchmark runs, the newest last.
    ///
    /// # Errors
    /// When they cannot be read.
    fn runs(&self) -> api::Result<Vec<BenchmarkRun>>;

    /// Returns the report of a run as an HTML page.
    ///
    /// # Errors
    /// `NotFound`; when the run has no results.
    fn report(&self, run: &str) -> api::Result<String>;
}
