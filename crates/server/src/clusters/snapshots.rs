//! Snapshots and clones of volumes on clusters.

use std::sync::Arc;

use ceph::{OpenImage, RbdImage};

use super::connection::{Connection, split};
use super::volumes::taken;
use super::{Clusters, check_name, explain};
use crate::error::{Error, ErrorKind, Result};
use api::types::{DiffRange, Volume, VolumeDiff, VolumeUsage};

/// Bytes of a volume that are compared for one response.
const DIFF_STEP: u64 = 16 << 30;

impl Clusters {
    /// Creates the snapshot `volume@snapshot`.
    ///
    /// # Errors
    /// `NotFound`, `Exists`, `Invalid`, `Unreachable`.
    pub(crate) async fn create_snapshot(self: &Arc<Self>, cluster: &str, name: &str) -> Result<Volume> {
        let (image, snapshot) = parts(name)?;
        check_name(&snapshot)?;
        let create =
            move |connection: &Arc<Connection>| connection.administer(&image)?.create_snapshot(&snapshot);
        let created = self.call(cluster, create).await;
        created.map_err(|error| explain(taken(error, cluster, name), cluster, split(name).0))?;
        tracing::info!(cluster, snapshot = name, "snapshot created");
        self.volume(cluster, name).await
    }

    /// Creates a volume from a snapshot.
    ///
    /// # Errors
    /// `NotFound`, `Exists`, `Invalid`, `Unreachable`.
    pub(crate) async fn clone_snapshot(
        self: &Arc<Self>,
        cluster: &str,
        from: &str,
        name: &str,
    ) -> Result<Volume> {
        check_name(name)?;
        let ((image, snapshot), child) = (parts(from)?, name.to_owned());
        let clone =
            move |connection: &Arc<Connection>| connection.pool.clone_image(&image, &snapshot, &child);
        let cloned = self.call(cluster, clone).await;
        cloned.map_err(|error| explain(taken(error, cluster, name), cluster, from))?;
        tracing::info!(cluster, snapshot = from, volume = name, "snapshot cloned");
        self.volume(cluster, name).await
    }

    /// Rolls a volume back to a snapshot of it.
    ///
    /// # Errors
    /// `NotFound`, `Unreachable`, `Io`.
    pub(crate) async fn roll_back(self: &Arc<Self>, cluster: &str, name: &str) -> Result<Volume> {
        let (image, snapshot) = parts(name)?;
        let roll_back =
            move |connection: &Arc<Connection>| connection.administer(&image)?.roll_back(&snapshot);
        self.call_unlimited(cluster, roll_back).await.map_err(|error| explain(error, cluster, name))?;
        tracing::info!(cluster, snapshot = name, "volume rolled back");
        self.volume(cluster, split(name).0).await
    }

    /// Counts the data of a volume or snapshot, in whole objects.
    ///
    /// # Errors
    /// `NotFound`, `Unreachable`, `Io`.
    pub(crate) async fn usage(self: &Arc<Self>, cluster: &str, name: &str) -> Result<VolumeUsage> {
        let exclusive = self.volume(cluster, name).await?.stored;
        let wanted = name.to_owned();
        let count = move |connection: &Arc<Connection>| {
            let ranges = open(connection, &wanted)?.diff(None, 0, u64::MAX, true)?;
            Ok(ranges.iter().filter(|range| range.data).map(|range| range.length).sum::<u64>())
        };
        let referenced = self.call(cluster, count).await.map_err(|error| explain(error, cluster, name))?;
        let exclusive = exclusive.min(referenced);
        let (pool, name) = (cluster.to_owned(), name.to_owned());
        Ok(VolumeUsage { pool, name, referenced, exclusive, shared: referenced - exclusive })
    }

    /// Returns the ranges in which a volume or snapshot differs from an older snapshot of it, or
    /// holds data if there is no base, from `offset` on.
    ///
    /// # Errors
    /// `Invalid` if the base is no snapshot of the volume; `NotFound`, `Unreachable`.
    pub(crate) async fn diff(
        self: &Arc<Self>,
        cluster: &str,
        base: Option<&str>,
        name: &str,
        offset: u64,
    ) -> Result<VolumeDiff> {
        let (image, from) = match base.map(parts).transpose()? {
            Some((image, from)) => (Some(image), Some(from)),
            None => (None, None),
        };
        if let (Some(base), Some(image)) = (base, image)
            && image != split(name).0
        {
            let message = format!("'{base}' is no snapshot of '{}'", split(name).0);
            return Err(Error::new(ErrorKind::Invalid, message)
                .hint("on a cluster, a volume is compared with its own older snapshots"));
        }
        let wanted = name.to_owned();
        let compare = move |connection: &Arc<Connection>| {
            let open = open(connection, &wanted)?;
            Ok((open.diff(from.as_deref(), offset, DIFF_STEP, false)?, open.size()))
        };
        let (ranges, size) = self
            .call(cluster, compare)
            .await
            .map_err(|error| explain(error, cluster, base.unwrap_or(name)))?;
        let to_wire = |range: ceph::ImageDiff| {
            let ceph::ImageDiff { offset, length, data } = range;
            DiffRange { offset, length, data }
        };
        let next = offset.saturating_add(DIFF_STEP);
        let ranges = ranges.into_iter().map(to_wire).collect();
        Ok(VolumeDiff { ranges, next: (next < size).then_some(next) })
    }
}

/// Opens a volume or snapshot to read its map.
fn open(connection: &Connection, name: &str) -> ceph::Result<Arc<RbdImage>> {
    let (image, snapshot) = split(name);
    RbdImage::open(&connection.pool, &OpenImage { snapshot, read_only: true, ..OpenImage::new(image) })
}

/// Splits the name of a snapshot.
fn parts(name: &str) -> Result<(String, String)> {
    match split(name) {
        (image, Some(snapshot)) => Ok((image.to_owned(), snapshot)),
        (_, None) => {
            let message = format!("'{}' is not a snapshot, VOLUME@SNAPSHOT", crate::request::shown(name));
            Err(Error::new(ErrorKind::Invalid, message))
        }
    }
}
