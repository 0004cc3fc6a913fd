//! Clusters whose images the daemon serves as volumes `CLUSTER/VOLUME`.
//!
//! Owns the connections to clusters and the open images. Always true: an image is opened for
//! writing at most once in this process, because its exclusive lock belongs to one handle; the
//! addresses of a connection are stored before it opens an image, so that the next process
//! recognises the locks of a killed one.
//!
//! Must not know: exports, HTTP, how a cluster is deployed.

mod connection;
mod snapshots;
#[cfg(test)]
mod tests;
mod volumes;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ceph::{RbdImage, RbdPool, VOLUMES_USER};
use tokio::sync::Semaphore;

use crate::blocking::blocking;
use crate::config::Config;
use crate::error::{Error, ErrorKind, Result};
use crate::private_file;
use crate::request::shown;
use connection::Connection;

/// The pool of a cluster whose images are volumes.
const POOL: &str = "rbd";
/// Sector size of volumes in bytes.
pub(crate) const SECTOR: u32 = 512;
/// Longest name of a volume or snapshot.
const NAME_MAX: usize = 63;
/// Number of threads that calls to a cluster may occupy.
const THREADS: usize = 16;
/// Limit of a call, longer than the 30 s after which the lock of a dead client expires.
const CALL_LIMIT: Duration = Duration::from_secs(60);
/// Limit of waiting for images that are being closed.
const CLOSE_WAIT: Duration = Duration::from_secs(10);
/// Number of stored addresses of earlier connections.
const ADDRESSES_MAX: usize = 64;

/// The clusters of this host.
pub(crate) struct Clusters {
    /// Directory of all clusters, as `gabion cluster` uses it.
    directory: PathBuf,
    state_dir: PathBuf,
    /// The clusters that were called. A cluster that does not answer delays no other one.
    called: Mutex<BTreeMap<String, Arc<CalledCluster>>>,
    /// Limit of a call.
    limit: Duration,
}

/// The resources of calls to a cluster.
struct CalledCluster {
    connection: Mutex<Option<Arc<Connection>>>,
    /// Held while the connection is made: one at a time.
    connecting: Mutex<()>,
    /// The threads that calls may occupy.
    threads: Arc<Semaphore>,
}

impl Clusters {
    /// Returns the clusters, none of them connected.
    pub(crate) fn new(config: &Config) -> Arc<Self> {
        Arc::new(Self {
            directory: config.clusters_directory.clone(),
            state_dir: config.state_dir.clone(),
            called: Mutex::default(),
            limit: CALL_LIMIT,
        })
    }

    /// Returns true if there is a cluster of this name.
    pub(crate) fn contains(&self, name: &str) -> bool {
        is_name(name) && self.directory.join(name).join(ceph::CONF_FILE).is_file()
    }

    /// Returns the resources of calls to a cluster.
    fn called(&self, name: &str) -> Arc<CalledCluster> {
        let mut called = self.called.lock().unwrap_or_else(PoisonError::into_inner);
        let new = || {
            Arc::new(CalledCluster {
                connection: Mutex::default(),
                connecting: Mutex::default(),
                threads: Arc::new(Semaphore::new(THREADS)),
            })
        };
        called.entry(name.to_owned()).or_insert_with(new).clone()
    }

    /// Returns the connection to a cluster. Blocks its thread while it connects.
    fn connection(&self, name: &str) -> Result<Arc<Connection>> {
        let called = self.called(name);
        let _connecting = called.connecting.lock().unwrap_or_else(PoisonError::into_inner);
        let options = ceph::options_of(name, &self.directory.join(name), VOLUMES_USER).map_err(convert)?;
        let identity = format!("{} {}", options.monitors, options.secret);
        let known = called.connection.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(known) = known.filter(|known| known.identity == identity) {
            return Ok(known);
        }
        let pool = RbdPool::connect(&options, POOL).map_err(convert)?;
        let former = self.record_addresses(name, &pool.addresses())?;
        tracing::info!(cluster = name, addresses = pool.addresses(), "connected to a cluster");
        let connection = Arc::new(Connection::new(pool, identity, former));
        *called.connection.lock().unwrap_or_else(PoisonError::into_inner) = Some(connection.clone());
        Ok(connection)
    }

    /// Stores the addresses of a new connection. Returns those of earlier processes: no other
    /// process uses this state directory now, so that their locks are stale.
    fn record_addresses(&self, name: &str, addresses: &str) -> Result<Vec<String>> {
        let path = self.state_dir.join(format!("cluster-{name}.addresses"));
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(Error::new(ErrorKind::Io, format!("{}: {error}", path.display()))),
        };
        let former: Vec<String> = text.lines().map(str::to_owned).collect();
        let kept = former.iter().skip((former.len() + 1).saturating_sub(ADDRESSES_MAX));
        let new: String =
            kept.map(String::as_str).chain([addresses]).map(|line| format!("{line}\n")).collect();
        private_file::replace(&path, new.as_bytes())?;
        Ok(former)
    }

    /// Runs work with the connection to a cluster, on a thread of its own.
    ///
    /// # Errors
    /// The errors of the work; `Unreachable` if the cluster does not answer in time. The work then
    /// continues, and its result is lost.
    async fn call<T: Send + 'static>(
        self: &Arc<Self>,
        cluster: &str,
        work: impl FnOnce(&Arc<Connection>) -> ceph::Result<T> + Send + 'static,
    ) -> Result<T> {
        let called = self.call_unlimited(cluster, work);
        tokio::time::timeout(self.limit, called).await.unwrap_or_else(|_| Err(unanswered(cluster)))
    }

    /// As [`Clusters::call`], for work that takes as long as there is data.
    ///
    /// # Errors
    /// As [`Clusters::call`], and `Unreachable` if other calls occupy all threads.
    async fn call_unlimited<T: Send + 'static>(
        self: &Arc<Self>,
        cluster: &str,
        work: impl FnOnce(&Arc<Connection>) -> ceph::Result<T> + Send + 'static,
    ) -> Result<T> {
        let (clusters, name) = (self.clone(), cluster.to_owned());
        let connected = move || work(&clusters.connection(&name)?).map_err(convert);
        self.on_thread(cluster, connected).await
    }

    /// Runs work on one of the threads of a cluster: calls to a cluster that does not answer do not
    /// end, and must not occupy the threads that other work of the daemon needs.
    async fn on_thread<T: Send + 'static>(
        &self,
        cluster: &str,
        work: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let permit =
            tokio::time::timeout(self.limit, self.called(cluster).threads.clone().acquire_owned()).await;
        let Ok(Ok(permit)) = permit else { return Err(unanswered(cluster)) };
        let run = move || {
            let _permit = permit;
            work()
        };
        blocking(run).await?
    }

    /// Waits a limited time until the images are closed, so that their locks are free.
    pub(crate) async fn shut_down(self: &Arc<Self>) {
        let called = std::mem::take(&mut *self.called.lock().unwrap_or_else(PoisonError::into_inner));
        for cluster in called.into_values() {
            let connection = cluster.connection.lock().unwrap_or_else(PoisonError::into_inner).take();
            let Some(connection) = connection else { continue };
            // The end of the connection ends the threads of the library before the process exits.
            let idle = blocking(move || connection.pool.wait_idle(CLOSE_WAIT)).await;
            if !idle.is_ok_and(|idle| idle) {
                tracing::warn!("images of a cluster are not closed yet; the next start breaks their locks");
            }
        }
    }

    /// Opens a volume or snapshot. A volume that is opened for writing is locked against other
    /// clients of the cluster.
    ///
    /// # Errors
    /// `NotFound`; `Busy` if another client writes it; `Unreachable`.
    pub(crate) async fn open(
        self: &Arc<Self>,
        cluster: &str,
        name: &str,
        read_only: bool,
    ) -> Result<Arc<RbdImage>> {
        let wanted = name.to_owned();
        let opened = self.call(cluster, move |connection| connection.open(&wanted, read_only)).await;
        opened.map_err(|error| explain(error, cluster, name))
    }
}

/// Returns the error of a cluster that does not answer in time.
pub(crate) fn unanswered(cluster: &str) -> Error {
    Error::new(ErrorKind::Unreachable, format!("cluster '{cluster}' does not answer in time"))
        .hint(format!("'gabion cluster status {cluster}' shows its problems"))
}

/// Returns true for a name of a cluster, volume or snapshot.
fn is_name(name: &str) -> bool {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || ".-_".contains(c);
    (1..=NAME_MAX).contains(&name.len()) && name.chars().all(is_allowed) && !name.starts_with(['.', '-'])
}

/// Checks a new name.
fn check_name(name: &str) -> Result<()> {
    if is_name(name) {
        return Ok(());
    }
    let message =
        format!("'{}' is not a name: up to {NAME_MAX} letters, digits, '.', '_' and '-'", shown(name));
    Err(Error::new(ErrorKind::Invalid, message))
}

/// Adds a hint to an error about a volume or snapshot.
fn explain(error: Error, cluster: &str, name: &str) -> Error {
    if error.kind() == ErrorKind::NotFound && error.hint_text().is_none() {
        let noun = if name.contains('@') { "snapshot" } else { "volume" };
        return Error::new(
            ErrorKind::NotFound,
            format!("cluster '{cluster}' has no {noun} '{}'", shown(name)),
        )
        .hint(format!("'gabion volume list {cluster} --snapshots' lists its volumes and snapshots"));
    }
    error
}

/// An error of the client library as the API shows it.
pub(crate) fn convert(error: ceph::Error) -> Error {
    use ceph::ErrorKind as Ceph;
    let kind = match error.kind() {
        Ceph::Invalid | Ceph::ReadOnly => ErrorKind::Invalid,
        Ceph::NotFound => ErrorKind::NotFound,
        Ceph::Exists => ErrorKind::Exists,
        Ceph::Busy | Ceph::Unsafe => ErrorKind::Busy,
        Ceph::NoSpace => ErrorKind::NoSpace,
        Ceph::Unreachable => ErrorKind::Unreachable,
        Ceph::Io => ErrorKind::Io,
    };
    let converted = Error::new(kind, error.to_string());
    match error.hint_text() {
        Some(hint) => converted.hint(hint),
        None => converted,
    }
}
