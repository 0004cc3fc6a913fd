//! The object gateways of clusters: their users, access keys and buckets.
//!
//! Owns the runs of `radosgw-admin` and the requests to gateways. Always true: a secret is in no
//! log and on no command line; `radosgw-admin` runs only for a cluster with gateways, because it
//! would create their pools on any other.
//!
//! Must not know: S3 on pools, HTTP, how a cluster is deployed.

mod address;
mod admin;
mod buckets;
mod records;
#[cfg(test)]
mod tests;
mod users;

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;

use crate::clusters::Clusters;
use crate::config::Config;
use crate::error::{Error, ErrorKind, Result};
use crate::request::shown;

/// The program, of the package `ceph-common`.
const PROGRAM: &str = "radosgw-admin";
/// Number of runs at the same time, each of which needs about 100 MiB of memory.
const RUNS_MAX: usize = 4;
/// Limit of a run, and of the wait for one.
const LIMIT: Duration = Duration::from_secs(60);
/// The user of the gateways that has access to all buckets. The daemon creates it.
const ADMINISTRATOR: &str = "gabion";
/// Longest name of a user or bucket in bytes.
const NAME_MAX: usize = 255;

/// The object gateways of the clusters of this host.
pub(crate) struct Gateways {
    clusters: Arc<Clusters>,
    /// Directory of all clusters.
    directory: PathBuf,
    program: OsString,
    runs: Arc<Semaphore>,
    limit: Duration,
    /// Held while the administrator is created.
    creating: tokio::sync::Mutex<()>,
}

impl Gateways {
    /// Returns the gateways of the clusters.
    pub(crate) fn new(config: &Config, clusters: Arc<Clusters>) -> Arc<Self> {
        Arc::new(Self {
            clusters,
            directory: config.clusters_directory.clone(),
            program: PROGRAM.into(),
            runs: Arc::new(Semaphore::new(RUNS_MAX)),
            limit: LIMIT,
            creating: tokio::sync::Mutex::default(),
        })
    }

    /// Returns the directory of a cluster.
    ///
    /// # Errors
    /// `NotFound`.
    fn directory_of(&self, cluster: &str) -> Result<PathBuf> {
        if self.clusters.contains(cluster) {
            return Ok(self.directory.join(cluster));
        }
        Err(Error::new(ErrorKind::NotFound, format!("there is no cluster '{}'", shown(cluster)))
            .hint("'gabion cluster list' on the daemon's host lists its clusters"))
    }
}

/// Checks a name that becomes an argument of a program.
fn check_argument(kind: &str, name: &str) -> Result<()> {
    if (1..=NAME_MAX).contains(&name.len()) && !name.chars().any(char::is_control) {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Invalid, format!("'{}' is not the name of a {kind}", shown(name)))
        .hint(format!("use 1 to {NAME_MAX} printable characters")))
}

/// Returns the error of an option that exists for pools only.
fn unsupported(cluster: &str, what: &str, option: &str) -> Error {
    Error::new(ErrorKind::Invalid, format!("'{cluster}' is a cluster, whose gateways have no {what}"))
        .hint(format!("omit {option}"))
}
