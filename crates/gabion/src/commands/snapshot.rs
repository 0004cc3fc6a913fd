//! `gabion volume snapshot`, `clone`, `rollback`, `usage` and `diff`.

use std::io::Write;

use anyhow::Result;
use api::types::{
    CloneSnapshot, CreateSnapshot, CreateSnapshots, DiffQuery, RollbackVolume, Volume, VolumeUsage,
};
use api::{Error, ErrorKind};

use super::{CommandContext, confirm};
use crate::failure::ExitReason;
use crate::output;
use api::VolumeName;

/// Returns the volume and the snapshot's own name.
fn split(name: &VolumeName) -> Result<(VolumeName, String)> {
    let split = name.snapshot().ok_or_else(|| {
        Error::new(ErrorKind::Invalid, format!("'{name}' is not the name of a snapshot"))
            .hint("write POOL/VOLUME@SNAPSHOT, for example fast/vm01@monday")
    })?;
    Ok((split.0, split.1.to_owned()))
}

pub(super) async fn create(ctx: &CommandContext, names: &[VolumeName]) -> Result<ExitReason> {
    let name = match names {
        [name] => name,
        names => return create_together(ctx, names).await,
    };
    let (volume, own) = split(name)?;
    let created = ctx.client.create_snapshot(&volume, &CreateSnapshot { name: own }).await?;
    ctx.done(&created, |_| {
        format!("snapshot {name} created; 'gabion volume rollback {name}' rolls the volume back to it")
    })?;
    Ok(ExitReason::Success)
}

async fn create_together(ctx: &CommandContext, names: &[VolumeName]) -> Result<ExitReason> {
    for name in names {
        split(name)?;
    }
    let pool = names.first().map_or("", |name| name.pool.as_str());
    if let Some(other) = names.iter().find(|name| name.pool != pool) {
        let message = format!("{other} is not in pool '{pool}'");
        return Err(Error::new(ErrorKind::Invalid, message)
            .hint("snapshots taken together must be of volumes of one pool")
            .into());
    }
    let snapshots = names.iter().map(|name| name.volume.clone()).collect();
    let created = ctx.client.create_snapshots(pool, &CreateSnapshots { snapshots }).await?;
    let list = names.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    ctx.done(&created, |_| format!("snapshots {list} created at one point in time"))?;
    Ok(ExitReason::Success)
}

pub(super) async fn clone(ctx: &CommandContext, snapshot: &VolumeName, name: String) -> Result<ExitReason> {
    split(snapshot)?;
    // The new name may include the pool.
    let name = match name.split_once('/') {
        Some((pool, volume)) if pool == snapshot.pool => volume.to_owned(),
        Some(_) => {
            let message = format!("a clone must be in the pool of its snapshot, '{}'", snapshot.pool);
            return Err(Error::new(ErrorKind::Invalid, message).into());
        }
        None => name,
    };
    let cloned = ctx.client.clone_snapshot(snapshot, &CloneSnapshot { name }).await?;
    ctx.done(&cloned, |volume| {
        format!("volume {}/{} cloned from snapshot {snapshot}", volume.pool, volume.name)
    })?;
    Ok(ExitReason::Success)
}

pub(super) async fn roll_back(
    ctx: &CommandContext,
    snapshot: &VolumeName,
    force: bool,
    yes: bool,
) -> Result<ExitReason> {
    let (volume, _) = split(snapshot)?;
    let effect = format!("discards all data written to {volume} since snapshot {snapshot}");
    confirm(yes || force, &effect)?;
    let rolled_back = ctx.client.rollback_volume(snapshot, &RollbackVolume { force }).await?;
    ctx.done(&rolled_back, |_| format!("volume {volume} rolled back to {snapshot}"))?;
    Ok(ExitReason::Success)
}

pub(super) async fn usage(ctx: &CommandContext, name: &VolumeName) -> Result<ExitReason> {
    let volume = name.base();
    let all = ctx.client.list_volumes(&name.pool).await?;
    let mine = |other: &&Volume| {
        let of = other.name.split_once('@').is_some_and(|(of, _)| of == volume);
        !other.deleting && (other.name == name.volume || name.volume == volume && of)
    };
    let mut usages: Vec<VolumeUsage> = Vec::new();
    for found in all.iter().filter(mine) {
        let of = VolumeName { pool: found.pool.clone(), volume: found.name.clone() };
        usages.push(ctx.client.get_volume_usage(&of).await?);
    }
    if usages.is_empty() {
        // Returns the error for a missing volume.
        ctx.client.get_volume(name).await?;
    }
    ctx.list(&usages, |usage| format!("{}/{}", usage.pool, usage.name), output::usages)?;
    Ok(ExitReason::Success)
}

pub(super) async fn diff(ctx: &CommandContext, from: &VolumeName, to: &VolumeName) -> Result<ExitReason> {
    if from.pool != to.pool {
        return Err(Error::new(ErrorKind::Invalid, format!("{from} and {to} are in different pools")).into());
    }
    let mut next = Some(0);
    let mut out = std::io::stdout().lock();
    while let Some(offset) = next {
        let query = DiffQuery { from: Some(from.volume.clone()), offset };
        let diff = ctx.client.get_volume_diff(to, &query).await?;
        for range in &diff.ranges {
            if ctx.json {
                writeln!(out, "{}", serde_json::to_string(range)?)?;
            } else {
                let content = if range.data { "data" } else { "zeros" };
                writeln!(out, "{} {} {content}", range.offset, range.length)?;
            }
        }
        next = diff.next;
    }
    Ok(ExitReason::Success)
}
