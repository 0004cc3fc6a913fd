//! Volumes of open pools.

use std::sync::Arc;
use std::time::Duration;

use engine::{NewVolume, VolumeInfo};

use super::{OpenPool, Pools};
use crate::error::{Error, ErrorKind, Result};
use crate::operations::Progress;
use crate::request::shown;
use crate::unix_time::unix_time;
use api::Size;
use api::types::{CreateVolume, QosLimits, ResizeVolume, Volume};

/// Default sector size in bytes: every system can boot from it.
const SECTOR: u32 = 512;
/// The hidden volume of a pool's objects.
pub(crate) const OBJECTS_VOLUME: &str = "_objects";
/// Smallest IOPS limit: with a lower one, clients run into timeouts.
const IOPS_MIN: u64 = 10;
/// Smallest bandwidth limit in bytes per second.
const BANDWIDTH_MIN: u64 = 64 << 10;
/// Largest weight.
const WEIGHT_MAX: u16 = 10_000;
/// First and longest pause between two polls of the progress of a deletion.
const POLL_INTERVAL_MIN: Duration = Duration::from_millis(5);
const POLL_INTERVAL_MAX: Duration = Duration::from_millis(500);

impl Pools {
    /// Returns the volumes of a pool, by name, without the hidden volume of its objects.
    ///
    /// # Errors
    /// When the pool is not open.
    pub(crate) async fn volumes(&self, pool: &str) -> Result<Vec<Volume>> {
        let volumes = self.get(pool)?.call(|pool| async move { pool.volumes().await }).await?;
        let shown = volumes.into_iter().filter(|info| info.name != OBJECTS_VOLUME);
        Ok(shown.map(|info| to_wire(pool, info)).collect())
    }

    /// Returns a volume.
    ///
    /// # Errors
    /// When the pool is not open, or has no such volume.
    pub(crate) async fn volume(&self, pool: &str, name: &str) -> Result<Volume> {
        let info = info(&self.get(pool)?, name).await?.ok_or_else(|| no_volume(pool, name))?;
        Ok(to_wire(pool, info))
    }

    /// Creates a volume.
    ///
    /// # Errors
    /// For an invalid name or size, or a name in use.
    pub(crate) async fn create_volume(&self, pool: &str, request: CreateVolume) -> Result<Volume> {
        let open = self.get(pool)?;
        let now = unix_time();
        let CreateVolume { name, size, sector, thick, shards, data_pool } = request;
        if data_pool.is_some() {
            let message = format!("'{pool}' is a pool: it has no pools of data; only clusters do");
            return Err(Error::new(ErrorKind::Invalid, message).hint("omit --data-pool"));
        }
        let sector = sector.unwrap_or(SECTOR);
        let wanted = name.clone();
        let create = move |pool: engine::Pool| async move {
            pool.create_volume_with(&wanted, NewVolume { size, sector, thick, shards, now }).await
        };
        let created = open.call(create).await;
        created.map_err(|error| explain(error, pool, &name))?;
        tracing::info!(pool, volume = name, size = %Size(size), sector, thick, ?shards, "volume created");
        self.volume(pool, &name).await
    }

    /// Changes a volume's size.
    ///
    /// # Errors
    /// For an invalid size, or a smaller size without `shrink`.
    pub(crate) async fn resize_volume(
        &self,
        pool: &str,
        name: &str,
        request: ResizeVolume,
    ) -> Result<Volume> {
        let open = self.get(pool)?;
        let before = self.volume(pool, name).await?;
        if request.size < before.size && !request.shrink {
            let message = format!(
                "volume '{pool}/{name}' has {}: a resize to {} would discard the data beyond the new size",
                Size(before.size),
                Size(request.size)
            );
            return Err(Error::new(ErrorKind::Invalid, message).hint(
                "shrink the file system in the volume first, then run this command again with --shrink",
            ));
        }
        let wanted = name.to_owned();
        let ResizeVolume { size, shrink } = request;
        let resized =
            open.call(move |pool| async move { pool.resize_volume(&wanted, size, shrink).await }).await;
        resized.map_err(|error| explain(error, pool, name))?;
        tracing::info!(pool, volume = name, from = %Size(before.size), to = %Size(size), "volume resized");
        self.volume(pool, name).await
    }

    /// Sets the QoS limits of a volume.
    ///
    /// # Errors
    /// For limits out of range, and when there is no such volume.
    pub(crate) async fn set_qos(&self, pool: &str, name: &str, qos: QosLimits) -> Result<Volume> {
        let open = self.get(pool)?;
        self.volume(pool, name).await?;
        check_qos(&qos)?;
        let QosLimits { iops, bandwidth, burst_ms, weight, thick } = qos;
        let service = engine::QosLimits {
            weight,
            burst_ms,
            operations: iops.unwrap_or(0),
            bytes: bandwidth.unwrap_or(0),
        };
        let wanted = name.to_owned();
        let set = move |pool: engine::Pool| async move {
            // First, because the pool may not have the space for it.
            pool.set_volume_thick(&wanted, thick).await?;
            pool.set_qos_limits(&wanted, service).await
        };
        let set = open.call(set).await;
        set.map_err(|error| explain(error, pool, name))?;
        tracing::info!(pool, volume = name, ?service, thick, "QoS limits changed");
        self.volume(pool, name).await
    }

    /// Deletes a volume and waits until its space is free.
    ///
    /// # Errors
    /// When there is no such volume, or it is in use.
    pub(crate) async fn delete_volume(&self, pool: &str, name: &str, progress: &Progress) -> Result<()> {
        let open = self.get(pool)?;
        let before = info(&open, name).await?.ok_or_else(|| no_volume(pool, name))?;
        if !before.deleting {
            let wanted = name.to_owned();
            let deleted = open.call(move |pool| async move { pool.delete_volume(&wanted).await }).await;
            deleted.map_err(|error| explain(error, pool, name))?;
            tracing::info!(pool, volume = name, "volume deleted");
        }
        progress.step(format!("freeing {}, in bytes", Size(before.stored)));
        let mut pause = POLL_INTERVAL_MIN;
        loop {
            let id = before.id;
            let left = open.call(move |pool| async move { pool.volume_info_by_id(id).await }).await?;
            // A new volume may have reused the number. Blocks shared with clones stay allocated
            // until the clones are deleted.
            let is_left = |info: &VolumeInfo| info.name == name && info.deleting && info.retained_by == 0;
            let Some(left) = left.filter(is_left) else { return Ok(()) };
            if left.stuck {
                let message =
                    format!("volume '{pool}/{name}' is deleted, but not all of its space could be freed");
                return Err(Error::new(ErrorKind::Io, message).hint(format!(
                    "see the daemon's log for the cause; to retry, reopen the pool: 'gabion pool close {pool}', 'gabion pool open {pool}'"
                )));
            }
            progress.done(before.stored.saturating_sub(left.stored), before.stored);
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(POLL_INTERVAL_MAX);
        }
    }

    /// Opens a volume. The volume cannot be deleted while the handle exists.
    ///
    /// # Errors
    /// When the pool is not open, or has no such volume.
    pub(crate) async fn open_volume(&self, pool: &str, name: &str) -> Result<engine::Volume> {
        let open = self.get(pool)?;
        let wanted = name.to_owned();
        let opened = open.call(move |pool| async move { pool.open_volume(&wanted).await }).await;
        opened.map_err(|error| explain(error, pool, name))
    }
}

/// Refuses limits too low for a usable volume, and weights out of range.
fn check_qos(qos: &QosLimits) -> Result<()> {
    let invalid = |message: String| Err(Error::new(ErrorKind::Invalid, message));
    if let Some(iops) = qos.iops.filter(|iops| *iops < IOPS_MIN) {
        return invalid(format!("an IOPS limit of {iops} is too low: the minimum is {IOPS_MIN}"));
    }
    if let Some(bandwidth) = qos.bandwidth.filter(|bandwidth| *bandwidth < BANDWIDTH_MIN) {
        return invalid(format!(
            "a bandwidth limit of {} per second is too low: the minimum is {}",
            Size(bandwidth),
            Size(BANDWIDTH_MIN)
        ));
    }
    if !(1..=WEIGHT_MAX).contains(&qos.weight) {
        return invalid(format!(
            "a weight of {} is out of range: 1 to {WEIGHT_MAX}, default 100",
            qos.weight
        ));
    }
    Ok(())
}

async fn info(pool: &Arc<OpenPool>, name: &str) -> Result<Option<VolumeInfo>> {
    let name = name.to_owned();
    pool.call(|pool| async move { pool.volume_info(&name).await }).await
}

fn to_wire(pool: &str, info: VolumeInfo) -> Volume {
    Volume {
        id: info.uid.to_string(),
        pool: pool.to_owned(),
        name: info.name,
        snapshot: info.snapshot,
        origin: info.origin,
        size: info.size,
        stored: info.stored,
        sector: info.sector,
        created: info.created,
        deleting: info.deleting,
        retained_by: info.retained_by,
        qos: QosLimits {
            iops: Some(info.qos.operations).filter(|limit| *limit > 0),
            bandwidth: Some(info.qos.bytes).filter(|limit| *limit > 0),
            burst_ms: info.qos.burst_ms,
            weight: if info.qos.weight == 0 { QosLimits::default().weight } else { info.qos.weight },
            thick: info.thick,
        },
        shards: info.spread.shards,
        first_shard: info.spread.first,
        exported: false,
    }
}

fn no_volume(pool: &str, name: &str) -> Error {
    let (noun, flag) = if name.contains('@') { ("snapshot", " --snapshots") } else { ("volume", "") };
    Error::new(ErrorKind::NotFound, format!("pool '{pool}' has no {noun} '{}'", shown(name)))
        .hint(format!("'gabion volume list {pool}{flag}' lists its {noun}s"))
}

/// Adds the pool and a hint to an error of the engine about a volume or snapshot.
pub(super) fn explain(error: Error, pool: &str, name: &str) -> Error {
    match error.kind() {
        ErrorKind::NotFound => no_volume(pool, name),
        ErrorKind::Exists => {
            let noun = if name.contains('@') { "snapshot" } else { "volume" };
            Error::new(ErrorKind::Exists, format!("pool '{pool}' already has a {noun} '{}'", shown(name)))
                .hint("choose another name")
        }
        ErrorKind::NoSpace => error.hint(format!(
            "trim, delete volumes or snapshots, or add a drive with 'gabion drive add {pool}'; 'gabion pool status {pool}' shows the space usage"
        )),
        ErrorKind::Busy if error.to_string().contains("snapshots") => {
            error.hint(format!("'gabion volume list {pool} --snapshots' lists them"))
        }
        ErrorKind::Busy => error.hint(format!(
            "'gabion export list' shows its exports; 'gabion volume list {pool}' shows whether it is being deleted"
        )),
        _ => error,
    }
}
