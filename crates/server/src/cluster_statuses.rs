//! The status of clusters for all clients together.
//!
//! Always true: one query of a cluster runs at a time, because a cluster without an answer occupies
//! its thread for the time limit of the query, and clients repeat their requests.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use api::types::{Cluster, ClusterStatus};

use crate::blocking::blocking;
use crate::error::{Error, ErrorKind, Result};
use crate::host_objects::HostObjects;
use crate::request::shown;

/// Time for which a status is current.
const CURRENT: Duration = Duration::from_secs(2);

/// The last status of a cluster, locked during a query.
type LastStatus = Arc<tokio::sync::Mutex<Option<(Instant, api::Result<ClusterStatus>)>>>;

/// The status of each cluster.
pub(crate) struct ClusterStatuses {
    host: Arc<dyn HostObjects>,
    last: Mutex<BTreeMap<String, LastStatus>>,
}

impl ClusterStatuses {
    pub(crate) fn new(host: Arc<dyn HostObjects>) -> Self {
        Self { host, last: Mutex::default() }
    }

    /// Returns the clusters by name.
    ///
    /// # Errors
    /// When they cannot be read.
    pub(crate) async fn list(&self) -> Result<Vec<Cluster>> {
        let host = self.host.clone();
        Ok(blocking(move || host.clusters()).await??)
    }

    /// Returns the status of a cluster, which is at most as old as [`CURRENT`].
    ///
    /// # Errors
    /// `NotFound`; `Io`.
    pub(crate) async fn get(&self, name: &str) -> Result<ClusterStatus> {
        let known = self.list().await?;
        self.locked().retain(|name, _| known.iter().any(|cluster| cluster.name == *name));
        if !known.iter().any(|cluster| cluster.name == name) {
            let message = format!("there is no cluster '{}'", shown(name));
            let hint = "'gabion cluster list' on the daemon's host lists its clusters";
            return Err(Error::new(ErrorKind::NotFound, message).hint(hint));
        }
        let last = self.locked().entry(name.to_owned()).or_default().clone();
        let mut guard = last.lock_owned().await;
        if let Some((at, status)) = &*guard
            && at.elapsed() < CURRENT
        {
            return Ok(status.clone()?);
        }
        let (host, name) = (self.host.clone(), name.to_owned());
        // The query keeps the lock also when its client is gone.
        let query = move || {
            let status = host.cluster(&name);
            *guard = Some((Instant::now(), status.clone()));
            status
        };
        Ok(blocking(query).await??)
    }

    fn locked(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, LastStatus>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
