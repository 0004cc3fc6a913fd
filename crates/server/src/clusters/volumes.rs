//! Volumes of clusters: list, create, resize and delete.

use std::sync::Arc;

use ceph::{ImageDiff, ImageInfo, ImageSnapshot, OpenImage, RbdImage};

use super::connection::{Connection, split};
use super::{Clusters, SECTOR, check_name, explain};
use crate::error::{Error, ErrorKind, Result};
use api::Size;
use api::types::{CreateVolume, QosLimits, ResizeVolume, Volume};

impl Clusters {
    /// Returns the volumes of a cluster and their snapshots, by name.
    ///
    /// # Errors
    /// `Unreachable`; `Io`.
    pub(crate) async fn volumes(self: &Arc<Self>, cluster: &str) -> Result<Vec<Volume>> {
        let list = |connection: &Arc<Connection>| {
            let mut volumes = Vec::new();
            for image in connection.pool.images()? {
                match describe(connection, &image) {
                    Ok(described) => volumes.extend(described),
                    // Deleted in the meantime.
                    Err(error) if error.kind() == ceph::ErrorKind::NotFound => {}
                    Err(error) => return Err(error),
                }
            }
            Ok(volumes)
        };
        self.call(cluster, list).await
    }

    /// Returns a volume or snapshot.
    ///
    /// # Errors
    /// `NotFound`; `Unreachable`; `Io`.
    pub(crate) async fn volume(self: &Arc<Self>, cluster: &str, name: &str) -> Result<Volume> {
        let image = split(name).0.to_owned();
        let described = self.call(cluster, move |connection| describe(connection, &image)).await;
        let described = described.map_err(|error| explain(error, cluster, name))?;
        let missing = || explain(Error::new(ErrorKind::NotFound, ""), cluster, name);
        described.into_iter().find(|volume| volume.name == name).ok_or_else(missing)
    }

    /// Creates a volume.
    ///
    /// # Errors
    /// `Invalid`, `Exists`, `NoSpace`, `Unreachable`.
    pub(crate) async fn create_volume(
        self: &Arc<Self>,
        cluster: &str,
        request: CreateVolume,
    ) -> Result<Volume> {
        let CreateVolume { name, size, sector, thick, shards, data_pool } = request;
        check_name(&name)?;
        check_size(size)?;
        if thick || shards.is_some() || sector.is_some_and(|sector| sector != SECTOR) {
            let message =
                format!("'{cluster}' is a cluster: its volumes are thin, with sectors of 512 bytes");
            return Err(Error::new(ErrorKind::Invalid, message).hint("omit --thick, --shards and --sector"));
        }
        let image = name.clone();
        let create =
            move |connection: &Arc<Connection>| connection.pool.create(&image, size, data_pool.as_deref());
        let created = self.call(cluster, create).await;
        created.map_err(|error| taken(error, cluster, &name))?;
        tracing::info!(cluster, volume = name, size = %Size(size), "volume created");
        self.volume(cluster, &name).await
    }

    /// Changes the size of a volume.
    ///
    /// # Errors
    /// `Invalid` for a smaller size without `shrink`; `NotFound`; `Unreachable`.
    pub(crate) async fn resize_volume(
        self: &Arc<Self>,
        cluster: &str,
        name: &str,
        request: ResizeVolume,
    ) -> Result<Volume> {
        let ResizeVolume { size, shrink } = request;
        check_size(size)?;
        let before = self.volume(cluster, name).await?;
        if before.snapshot {
            return Err(Error::new(ErrorKind::Invalid, "a snapshot cannot be resized"));
        }
        if size < before.size && !shrink {
            let message = format!(
                "volume '{cluster}/{name}' has {}: a resize to {} would discard the data beyond the new size",
                Size(before.size),
                Size(size)
            );
            return Err(Error::new(ErrorKind::Invalid, message).hint(
                "shrink the file system in the volume first, then run this command again with --shrink",
            ));
        }
        let image = name.to_owned();
        let resize = move |connection: &Arc<Connection>| connection.administer(&image)?.resize(size, shrink);
        self.call_unlimited(cluster, resize).await.map_err(|error| explain(error, cluster, name))?;
        tracing::info!(cluster, volume = name, from = %Size(before.size), to = %Size(size), "volume resized");
        self.volume(cluster, name).await
    }

    /// Deletes a volume without snapshots, or a snapshot.
    ///
    /// # Errors
    /// `NotFound`; `Busy`; `Unreachable`.
    pub(crate) async fn delete_volume(self: &Arc<Self>, cluster: &str, name: &str) -> Result<()> {
        let wanted = name.to_owned();
        let delete = move |connection: &Arc<Connection>| match split(&wanted) {
            (image, Some(snapshot)) => connection.administer(image)?.remove_snapshot(&snapshot),
            (image, None) => connection.pool.remove(image),
        };
        self.call_unlimited(cluster, delete).await.map_err(|error| explain(error, cluster, name))?;
        tracing::info!(cluster, volume = name, "volume deleted");
        Ok(())
    }
}

/// Checks the size of a volume.
fn check_size(size: u64) -> Result<()> {
    if size > 0 && size.is_multiple_of(u64::from(SECTOR)) {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Invalid, format!("a size of {size} bytes is not a multiple of {SECTOR}")))
}

/// Names the volume in an error about a name in use.
pub(super) fn taken(error: Error, cluster: &str, name: &str) -> Error {
    if error.kind() != ErrorKind::Exists {
        return error;
    }
    let noun = if name.contains('@') { "snapshot" } else { "volume" };
    Error::new(ErrorKind::Exists, format!("cluster '{cluster}' already has a {noun} '{name}'"))
        .hint("choose another name")
}

/// Describes a volume and its snapshots.
fn describe(connection: &Connection, image: &str) -> ceph::Result<Vec<Volume>> {
    let options = OpenImage { read_only: true, ..OpenImage::new(image) };
    let open = RbdImage::open(&connection.pool, &options)?;
    let info = open.info()?;
    let mut volumes = Vec::new();
    let mut earlier: Option<&ImageSnapshot> = None;
    for snapshot in &info.snapshots {
        let of = OpenImage { snapshot: Some(snapshot.name.clone()), ..OpenImage::new(image) };
        let at = RbdImage::open(&connection.pool, &of)?;
        volumes.push(to_wire(&connection.pool, &info, Some(snapshot), stored(&at, earlier)?));
        earlier = Some(snapshot);
    }
    volumes.insert(0, to_wire(&connection.pool, &info, None, stored(&open, earlier)?));
    Ok(volumes)
}

/// Returns the bytes of the objects that changed since the earlier snapshot.
fn stored(image: &RbdImage, earlier: Option<&ImageSnapshot>) -> ceph::Result<u64> {
    let from = earlier.map(|snapshot| snapshot.name.as_str());
    let ranges = image.diff(from, 0, u64::MAX, true)?;
    Ok(ranges.iter().filter(|range| range.data).map(|ImageDiff { length, .. }| length).sum())
}

fn to_wire(pool: &ceph::RbdPool, info: &ImageInfo, snapshot: Option<&ImageSnapshot>, stored: u64) -> Volume {
    Volume {
        id: snapshot.map_or_else(|| info.id.clone(), |snapshot| format!("{}-{}", info.id, snapshot.id)),
        pool: pool.cluster().to_owned(),
        name: snapshot.map_or_else(|| info.name.clone(), |at| format!("{}@{}", info.name, at.name)),
        snapshot: snapshot.is_some(),
        origin: info.parent.clone().filter(|_| snapshot.is_none()),
        size: snapshot.map_or(info.size, |snapshot| snapshot.size),
        stored,
        sector: SECTOR,
        created: info.created,
        deleting: false,
        retained_by: 0,
        shards: 0,
        first_shard: 0,
        exported: false,
        qos: QosLimits::default(),
    }
}
