//! `gabion volume`.

use anyhow::Result;
use api::Size;
use api::VolumeName;
use api::types::{CreateVolume, PoolState, QosLimits, ResizeVolume, Volume};

use super::{CommandContext, confirm, image, snapshot};
use crate::cli::{Limit, QosArgs, VolumeCommand};
use crate::failure::ExitReason;
use crate::output;
use crate::progress::follow;

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
    let pools = match pool {
        Some(pool) => vec![pool],
        None => {
            let pools = ctx.client.list_pools().await?;
            let open = pools.into_iter().filter(|pool| pool.state == PoolState::Open);
            open.map(|pool| pool.name).collect()
        }
    };
    let mut volumes: Vec<Volume> = Vec::new();
    for pool in pools {
        let found = ctx.client.list_volumes(&pool).await?;
        volumes.extend(found.into_iter().filter(|volume| snapshots || !volume.snapshot));
    }
    ctx.list(&volumes, |volume| format!("{}/{}", volume.pool, volume.name), output::volumes)?;
    Ok(ExitReason::Success)
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
