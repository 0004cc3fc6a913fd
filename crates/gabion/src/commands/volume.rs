//! `gabion volume`.

use anyhow::Result;
use api::Size;
use api::types::{CreateVolume, Operation, Pool, PoolState, ResizeVolume, Service, Volume};

use super::{Setting, confirm, image, snapshot};
use crate::cli::{Limit, ServiceArgs, VolumeCommand, VolumeName};
use crate::client::segment;
use crate::failure::Outcome;
use crate::output;
use crate::progress::follow;

/// Runs a command about volumes.
///
/// # Errors
/// Why it failed.
pub(crate) async fn run(setting: &Setting, command: VolumeCommand) -> Result<Outcome> {
    match command {
        VolumeCommand::Create { name, size, sector, thick, shards } => {
            let sector = Some(sector);
            let wanted =
                CreateVolume { sector, thick, shards, ..CreateVolume::new(&name.volume, size.bytes()) };
            create(setting, &name, &wanted).await
        }
        VolumeCommand::List { pool, snapshots } => list(setting, pool, snapshots).await,
        VolumeCommand::Show { name } => show(setting, &name).await,
        VolumeCommand::Resize { name, size, shrink } => resize(setting, &name, size, shrink).await,
        VolumeCommand::Set { name, service } => set(setting, &name, service).await,
        VolumeCommand::Snapshot { name } => snapshot::take(setting, &name).await,
        VolumeCommand::Clone { snapshot, name } => snapshot::clone(setting, &snapshot, name).await,
        VolumeCommand::Rollback { snapshot, force, yes } => {
            snapshot::roll_back(setting, &snapshot, force, yes).await
        }
        VolumeCommand::Usage { name } => snapshot::usage(setting, &name).await,
        VolumeCommand::Diff { from, to } => snapshot::diff(setting, &from, &to).await,
        VolumeCommand::ExportImage(arguments) => image::export(setting, arguments).await,
        VolumeCommand::Import(arguments) => image::import(setting, arguments).await,
        VolumeCommand::Delete { name, yes } => delete(setting, &name, yes).await,
    }
}

pub(super) fn path_of(name: &VolumeName) -> String {
    format!("/v1/pools/{}/volumes/{}", segment(&name.pool), segment(&name.volume))
}

async fn create(setting: &Setting, name: &VolumeName, wanted: &CreateVolume) -> Result<Outcome> {
    let created = setting.create_volume(&name.pool, wanted).await?;
    setting.done(&created, |volume| {
        format!(
            "volume {name} of {} created; 'gabion export create {name} --nbd' serves it",
            Size(volume.size)
        )
    })?;
    Ok(Outcome::Done)
}

async fn list(setting: &Setting, pool: Option<String>, snapshots: bool) -> Result<Outcome> {
    let pools = match pool {
        Some(pool) => vec![pool],
        None => {
            let pools: Vec<Pool> = setting.client.get("/v1/pools").await?;
            let open = pools.into_iter().filter(|pool| pool.state == PoolState::Open);
            open.map(|pool| pool.name).collect()
        }
    };
    let mut volumes: Vec<Volume> = Vec::new();
    for pool in pools {
        let found: Vec<Volume> = setting.client.get(&format!("/v1/pools/{}/volumes", segment(&pool))).await?;
        volumes.extend(found.into_iter().filter(|volume| snapshots || !volume.snapshot));
    }
    setting.list(&volumes, |volume| format!("{}/{}", volume.pool, volume.name), output::volumes)?;
    Ok(Outcome::Done)
}

async fn show(setting: &Setting, name: &VolumeName) -> Result<Outcome> {
    let volume: Volume = setting.client.get(&path_of(name)).await?;
    setting.print(&volume, output::volume)?;
    Ok(Outcome::Done)
}

async fn resize(setting: &Setting, name: &VolumeName, size: Size, shrink: bool) -> Result<Outcome> {
    let request = ResizeVolume { size: size.bytes(), shrink };
    let resized: Volume = setting.client.patch(&path_of(name), &request).await?;
    setting.done(&resized, |volume| {
        let again = if volume.exported { "; NBD clients see it when they connect again" } else { "" };
        format!("volume {name} has {} now{again}", Size(volume.size))
    })?;
    Ok(Outcome::Done)
}

async fn set(setting: &Setting, name: &VolumeName, wanted: ServiceArgs) -> Result<Outcome> {
    let before: Volume = setting.client.get(&path_of(name)).await?;
    let service = Service {
        iops: wanted.iops.map_or(before.service.iops, |Limit(iops)| iops),
        bandwidth: wanted
            .bandwidth
            .map_or(before.service.bandwidth, |Limit(bandwidth)| bandwidth.map(|size| size.bytes())),
        burst_ms: wanted.burst.map_or(before.service.burst_ms, |seconds| seconds * 1000),
        weight: wanted.weight.unwrap_or(before.service.weight),
        thick: wanted.thick || before.service.thick && !wanted.thin,
    };
    let set: Volume = setting.client.put(&format!("{}/service", path_of(name)), &service).await?;
    setting.done(&set, |volume| format!("volume {name}: limits {}", output::service(&volume.service)))?;
    Ok(Outcome::Done)
}

async fn delete(setting: &Setting, name: &VolumeName, yes: bool) -> Result<Outcome> {
    if !yes {
        let volume: Volume = setting.client.get(&path_of(name)).await?;
        let warning = if volume.snapshot {
            format!("Snapshot {name} will be gone, and what only it holds.")
        } else {
            format!("Volume {name} stores {}: that will be lost.", Size(volume.stored))
        };
        confirm(false, &warning)?;
    }
    let started: Operation = setting.client.delete(&path_of(name)).await?;
    let ended = follow(&setting.client, started, setting.quiet).await?;
    let what = if name.volume.contains('@') { "snapshot" } else { "volume" };
    setting.done(&ended, |_| format!("{what} {name} deleted"))?;
    Ok(Outcome::Done)
}
