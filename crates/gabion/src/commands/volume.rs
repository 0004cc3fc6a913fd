//! `gabion volume`.

use std::time::Duration;

use anyhow::Result;
use api::types::{CreateVolume, PoolState, QosLimits, ResizeVolume, Volume};
use api::{Error, ErrorKind, Size, VolumeName};

use super::{CommandContext, confirm, image, snapshot};
use crate::cli::{Limit, QosArgs, VolumeCommand};
use crate::failure::ExitReason;
use crate::output;
use crate::progress::follow;

/// Time that a list of all volumes waits for a cluster.
const CLUSTER_WAIT: Duration = Duration::from_secs(5);

/// Runs a `gabion volume` command.
///
/// # Errors
/// The error of the command.
pub(crate) async fn run(ctx: &CommandContext, command: VolumeCommand) -> Result<ExitReason> {
    match command {
        VolumeCommand::Create { name, size, sector, thick, shards, data_pool } => {
            let wanted = CreateVolume {
                name: name.volume.clone(),
                size: size.bytes(),
                sector: Some(sector),
                thick,
                shards,
                data_pool,
            };
            create(ctx, &name, &wanted).await
        }
        VolumeCommand::List { pool, snapshots } => list(ctx, pool, snapshots).await,
        VolumeCommand::Show { name } => show(ctx, &name).await,
        VolumeCommand::Resize { name, size, shrink } => resize(ctx, &name, size, shrink).await,
        VolumeCommand::Set { name, qos } => set(ctx, &name, qos).await,
        VolumeCommand::Snapshot { names } => snapshot::create(ctx, &names).await,
        VolumeCommand::Clone { snapshot, name } => snapshot::clone(ctx, &snapshot, name).await,
        VolumeCommand::Rollback { snapshot, force, yes } => {
            snapshot::roll_back(ctx, &snapshot, force, yes).await
        }
        VolumeCommand::Usage { name } => snapshot::usage(ctx, &name).await,
        VolumeCommand::Diff { from, to } => snapshot::diff(ctx, &from, &to).await,
        VolumeCommand::ExportImage(arguments) => image::export(ctx, arguments).await,
        VolumeCommand::Import(arguments) => image::import(ctx, arguments).await,
        VolumeCommand::Delete { name, yes } => delete(ctx, &name, yes).await,
    }
}

async fn create(ctx: &CommandContext, name: &VolumeName, wanted: &CreateVolume) -> Result<ExitReason> {
    let created = ctx.client.create_volume(&name.pool, wanted).await?;
    ctx.done(&created, |volume| {
        format!(
            "volume {name} created with {}; 'gabion export create {name} --nbd' exports it",
            Size(volume.size)
        )
    })?;
    Ok(ExitReason::Success)
}

async fn list(ctx: &CommandContext, pool: Option<String>, snapshots: bool) -> Result<ExitReason> {
    let (mut volumes, mut failed) = (Vec::new(), None);
    match pool {
        Some(pool) => volumes = ctx.client.list_volumes(&pool).await?,
        None => {
            let pools = ctx.client.list_pools().await?;
            for pool in pools.iter().filter(|pool| pool.state == PoolState::Open) {
                volumes.extend(ctx.client.list_volumes(&pool.name).await?);
            }
            let clusters = ctx.client.list_clusters().await?;
            for cluster in clusters.iter().filter(|cluster| cluster.volumes) {
                match cluster_volumes(ctx, &cluster.name).await {
                    Ok(found) => volumes.extend(found),
                    // The other volumes are listed before the error.
                    Err(error) => failed = failed.or(Some(error)),
                }
            }
        }
    }
    volumes.retain(|volume| snapshots || !volume.snapshot);
    if failed.is_none() || !volumes.is_empty() {
        ctx.list(&volumes, |volume| format!("{}/{}", volume.pool, volume.name), output::volumes)?;
    }
    failed.map_or(Ok(ExitReason::Success), |error| Err(error.into()))
}

/// Lists the volumes of a cluster, which has less time than if it is the only one that is asked.
async fn cluster_volumes(ctx: &CommandContext, name: &str) -> api::Result<Vec<Volume>> {
    let listed = tokio::time::timeout(CLUSTER_WAIT, ctx.client.list_volumes(name)).await;
    listed.unwrap_or_else(|_| {
        let message =
            format!("cluster '{name}' did not list its volumes within {} s", CLUSTER_WAIT.as_secs());
        let hint = format!("'gabion cluster status {name}' shows its problems");
        Err(Error::new(ErrorKind::Unreachable, message).hint(hint))
    })
}

async fn show(ctx: &CommandContext, name: &VolumeName) -> Result<ExitReason> {
    let volume = ctx.client.get_volume(name).await?;
    ctx.print(&volume, output::volume)?;
    Ok(ExitReason::Success)
}

async fn resize(ctx: &CommandContext, name: &VolumeName, size: Size, shrink: bool) -> Result<ExitReason> {
    let request = ResizeVolume { size: size.bytes(), shrink };
    let resized = ctx.client.resize_volume(name, &request).await?;
    ctx.done(&resized, |volume| {
        let again = if volume.exported { "; NBD clients see the new size when they reconnect" } else { "" };
        format!("volume {name} resized to {}{again}", Size(volume.size))
    })?;
    Ok(ExitReason::Success)
}

async fn set(ctx: &CommandContext, name: &VolumeName, wanted: QosArgs) -> Result<ExitReason> {
    let before = ctx.client.get_volume(name).await?.qos;
    let qos = QosLimits {
        iops: wanted.iops.map_or(before.iops, |Limit(iops)| iops),
        bandwidth: wanted
            .bandwidth
            .map_or(before.bandwidth, |Limit(bandwidth)| bandwidth.map(|size| size.bytes())),
        burst_ms: wanted.burst.map_or(before.burst_ms, |seconds| seconds * 1000),
        weight: wanted.weight.unwrap_or(before.weight),
        thick: wanted.thick || before.thick && !wanted.thin,
    };
    let set = ctx.client.set_volume_qos(name, &qos).await?;
    ctx.done(&set, |volume| format!("volume {name}: limits {}", output::qos(&volume.qos)))?;
    Ok(ExitReason::Success)
}

async fn delete(ctx: &CommandContext, name: &VolumeName, yes: bool) -> Result<ExitReason> {
    if !yes {
        let volume = ctx.client.get_volume(name).await?;
        let effect = if volume.snapshot {
            format!("deletes snapshot {name} and its exclusive data")
        } else {
            format!("deletes volume {name} with {} of data", Size(volume.stored))
        };
        confirm(false, &effect)?;
    }
    let started = ctx.client.delete_volume(name).await?;
    let ended = follow(&ctx.client, started, ctx.quiet).await?;
    let noun = if name.volume.contains('@') { "snapshot" } else { "volume" };
    ctx.done(&ended, |_| format!("{noun} {name} deleted"))?;
    Ok(ExitReason::Success)
}
