//! Volumes by name, of pools and of clusters. A pool is found before a cluster of the same name.

use std::sync::Arc;

use crate::clusters::Clusters;
use crate::error::{Error, ErrorKind, Result};
use crate::operations::Progress;
use crate::pools::Pools;
use api::types::{CreateVolume, QosLimits, ResizeVolume, Volume, VolumeDiff, VolumeUsage};

/// The volumes of pools and clusters.
pub(crate) struct Volumes {
    pools: Arc<Pools>,
    clusters: Arc<Clusters>,
}

impl Volumes {
    pub(crate) fn new(pools: Arc<Pools>, clusters: Arc<Clusters>) -> Arc<Self> {
        Arc::new(Self { pools, clusters })
    }

    /// Returns the clusters if the name is that of a cluster.
    pub(crate) fn cluster(&self, name: &str) -> Option<&Arc<Clusters>> {
        let is_pool = self.pools.names().iter().any(|pool| pool == name);
        (!is_pool && self.clusters.contains(name)).then_some(&self.clusters)
    }

    /// Closes the images of clusters. Their exports have ended.
    pub(crate) async fn shut_down(&self) {
        self.clusters.shut_down().await;
    }

    /// Returns the pools.
    pub(crate) fn pools(&self) -> &Arc<Pools> {
        &self.pools
    }

    /// Refuses an operation that exists for volumes of pools only.
    ///
    /// # Errors
    /// `Invalid` with the hint, if the name is that of a cluster.
    pub(crate) fn check_pool(&self, name: &str, what: &str, hint: &str) -> Result<()> {
        if self.cluster(name).is_none() {
            return Ok(());
        }
        let message = format!("'{name}' is a cluster, and {what} exist for volumes of pools only");
        Err(Error::new(ErrorKind::Invalid, message).hint(hint))
    }

    /// Returns the volumes and snapshots, by name.
    ///
    /// # Errors
    /// When the pool is not open, or the cluster does not answer.
    pub(crate) async fn list(&self, pool: &str) -> Result<Vec<Volume>> {
        match self.cluster(pool) {
            Some(clusters) => clusters.volumes(pool).await,
            None => self.pools.volumes(pool).await,
        }
    }

    /// Returns a volume or snapshot.
    ///
    /// # Errors
    /// As [`Volumes::list`]; `NotFound`.
    pub(crate) async fn get(&self, pool: &str, name: &str) -> Result<Volume> {
        match self.cluster(pool) {
            Some(clusters) => clusters.volume(pool, name).await,
            None => self.pools.volume(pool, name).await,
        }
    }

    /// Creates a volume.
    ///
    /// # Errors
    /// For an invalid name or size, or a name in use.
    pub(crate) async fn create(&self, pool: &str, request: CreateVolume) -> Result<Volume> {
        match self.cluster(pool) {
            Some(clusters) => clusters.create_volume(pool, request).await,
            None => self.pools.create_volume(pool, request).await,
        }
    }

    /// Changes a volume's size.
    ///
    /// # Errors
    /// For an invalid size, or a smaller size without `shrink`.
    pub(crate) async fn resize(&self, pool: &str, name: &str, request: ResizeVolume) -> Result<Volume> {
        match self.cluster(pool) {
            Some(clusters) => clusters.resize_volume(pool, name, request).await,
            None => self.pools.resize_volume(pool, name, request).await,
        }
    }

    /// Sets the quality of service of a volume of a pool.
    ///
    /// # Errors
    /// For limits out of range; `Invalid` for a cluster.
    pub(crate) async fn set_qos(&self, pool: &str, name: &str, qos: QosLimits) -> Result<Volume> {
        let hint = format!("Ceph limits an image: 'rbd config image set rbd/{name} rbd_qos_iops_limit N'");
        self.check_pool(pool, "limits and weights", &hint)?;
        self.pools.set_qos(pool, name, qos).await
    }

    /// Deletes a volume or snapshot.
    ///
    /// # Errors
    /// `NotFound`, `Busy`.
    pub(crate) async fn delete(&self, pool: &str, name: &str, progress: &Progress) -> Result<()> {
        match self.cluster(pool) {
            // A cluster that does not answer must not delay the shutdown.
            Some(clusters) => progress.unless_cancelled(clusters.delete_volume(pool, name)).await,
            None => self.pools.delete_volume(pool, name, progress).await,
        }
    }

    /// Creates the snapshot `volume@snapshot`.
    ///
    /// # Errors
    /// `NotFound`, `Exists`, `Invalid`.
    pub(crate) async fn create_snapshot(&self, pool: &str, name: &str) -> Result<Volume> {
        match self.cluster(pool) {
            Some(clusters) => clusters.create_snapshot(pool, name).await,
            None => self.pools.create_snapshot(pool, name).await,
        }
    }

    /// Creates snapshots of several volumes, `volume@snapshot`, at one point in time.
    ///
    /// # Errors
    /// `NotFound`, `Exists`, `Invalid`, also for a cluster.
    pub(crate) async fn create_snapshots(&self, pool: &str, names: &[String]) -> Result<Vec<Volume>> {
        let hint = "take one snapshot at a time; freeze the file systems of the volumes meanwhile";
        self.check_pool(pool, "snapshots of several volumes", hint)?;
        self.pools.create_snapshots(pool, names).await
    }

    /// Creates a volume from a snapshot.
    ///
    /// # Errors
    /// `NotFound`, `Exists`, `Invalid`.
    pub(crate) async fn clone_snapshot(&self, pool: &str, snapshot: &str, name: &str) -> Result<Volume> {
        match self.cluster(pool) {
            Some(clusters) => clusters.clone_snapshot(pool, snapshot, name).await,
            None => self.pools.clone_snapshot(pool, snapshot, name).await,
        }
    }

    /// Rolls a volume back to a snapshot of it.
    ///
    /// # Errors
    /// `NotFound`, `NoSpace`.
    pub(crate) async fn roll_back(&self, pool: &str, snapshot: &str) -> Result<Volume> {
        match self.cluster(pool) {
            Some(clusters) => clusters.roll_back(pool, snapshot).await,
            None => self.pools.roll_back(pool, snapshot).await,
        }
    }

    /// Counts the data of a volume or snapshot.
    ///
    /// # Errors
    /// `NotFound`.
    pub(crate) async fn usage(&self, pool: &str, name: &str) -> Result<VolumeUsage> {
        match self.cluster(pool) {
            Some(clusters) => clusters.usage(pool, name).await,
            None => self.pools.usage(pool, name).await,
        }
    }

    /// Returns the ranges in which `name` differs from `base`, or holds data if there is no base,
    /// from `offset` on.
    ///
    /// # Errors
    /// `NotFound`; `Invalid` without a common origin.
    pub(crate) async fn diff(
        &self,
        pool: &str,
        base: Option<&str>,
        name: &str,
        offset: u64,
    ) -> Result<VolumeDiff> {
        match (self.cluster(pool), base) {
            (Some(clusters), base) => clusters.diff(pool, base, name, offset).await,
            (None, Some(base)) => self.pools.diff(pool, base, name, offset).await,
            (None, None) => self.pools.allocated(pool, name, offset).await,
        }
    }
}
