//! `gabion volume`.

use anyhow::Result;
use api::Size;
use api::VolumeName;
use api::types::{CreateVolume, PoolState, QosLimits, ResizeVolume, Volume};

use super::{Setting, confirm, image, snapshot};
use crate::cli::{Limit, QosArgs, VolumeCommand};
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
        VolumeCommand::Set { name, qos } => set(setting, &name, qos).await,
        VolumeCommand::Snapshot { name } => snapshot::create(setting, &name).await,
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

async fn create(setting: &Setting, name: &VolumeName, wanted: &CreateVolume) -> Result<Outcome> {
    let created = setting.client.create_volume(&name.pool, wanted).await?;
    setting.done(&created, |volume| {
        format!(
            "volume {name} created with {}; 'gabion export create {name} --nbd' exports it",
            Size(volume.size)
        )
    })?;
    Ok(Outcome::Done)
}

async fn list(setting: &Setting, pool: Option<String>, snapshots: bool) -> Result<Outcome> {
    let pools = match pool {
        Some(pool) => vec![pool],
        None => {
            let pools = setting.client.list_pools().await?;
            let open = pools.into_iter().filter(|pool| pool.state == PoolState::Open);
            open.map(|pool| pool.name).collect()
        }
    };
    let mut volumes: Vec<Volume> = Vec::new();
    for pool in pools {
        let found = setting.client.list_volumes(&pool).await?;
        volumes.extend(found.into_iter().filter(|volume| snapshots || !volume.snapshot));
    }
    setting.list(&volumes, |volume| format!("{}/{}", volume.pool, volume.name), output::volumes)?;
    Ok(Outcome::Done)
}

async fn show(setting: &Setting, name: &VolumeName) -> Result<Outcome> {
    let volume = setting.client.get_volume(name).await?;
    setting.print(&volume, output::volume)?;
    Ok(Outcome::Done)
}

async fn resize(setting: &Setting, name: &VolumeName, size: Size, shrink: bool) -> Result<Outcome> {
    let request = ResizeVolume { size: size.bytes(), shrink };
    let resized = setting.client.resize_volume(name, &request).await?;
    setting.done(&resized, |volume| {
        let again = if volume.exported { "; NBD clients see the new size when they reconnect" } else { "" };
        format!("volume {name} resized to {}{again}", Size(volume.size))
    })?;
    Ok(Outcome::Done)
}

async fn set(setting: &Setting, name: &VolumeName, wanted: QosArgs) -> Result<Outcome> {
    let before = setting.client.get_volume(name).await?.qos;
    let qos = QosLimits {
        iops: wanted.iops.map_or(before.iops, |Limit(iops)| iops),
        bandwidth: wanted
            .bandwidth
            .map_or(before.bandwidth, |Limit(bandwidth)| bandwidth.map(|size| size.bytes())),
        burst_ms: wanted.burst.map_or(before.burst_ms, |seconds| seconds * 1000),
        weight: wanted.weight.unwrap_or(before.weight),
        thick: wanted.thick || before.thick && !wanted.thin,
    };
    let set = setting.client.set_volume_qos(name, &qos).await?;
    setting.done(&set, |volume| format!("volume {name}: limits {}", output::qos(&volume.qos)))?;
    Ok(Outcome::Done)
}

async fn delete(setting: &Setting, name: &VolumeName, yes: bool) -> Result<Outcome> {
    if !yes {
        let volume = setting.client.get_volume(name).await?;
        let warning = if volume.snapshot {
            format!("Snapshot {name} and its exclusive data will be lost.")
        } else {
            format!("Volume {name} with {} of data will be lost.", Size(volume.stored))
        };
        confirm(false, &warning)?;
    }
    let started = setting.client.delete_volume(name).await?;
    let ended = follow(&setting.client, started, setting.quiet).await?;
    let noun = if name.volume.contains('@') { "snapshot" } else { "volume" };
    setting.done(&ended, |_| format!("{noun} {name} deleted"))?;
    Ok(Outcome::Done)
}
