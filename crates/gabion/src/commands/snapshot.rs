//! `gabion volume snapshot`, `clone`, `rollback`, `usage` and `diff`.

use std::io::Write;

use anyhow::Result;
use api::types::{CloneSnapshot, CreateSnapshot, DiffQuery, RollbackVolume, Volume, VolumeUsage};
use api::{Error, ErrorKind};

use super::{Setting, confirm};
use crate::failure::Outcome;
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

pub(super) async fn create(setting: &Setting, name: &VolumeName) -> Result<Outcome> {
    let (volume, own) = split(name)?;
    let created = setting.client.create_snapshot(&volume, &CreateSnapshot { name: own }).await?;
    setting.done(&created, |_| {
        format!("snapshot {name} created; 'gabion volume rollback {name}' rolls the volume back to it")
    })?;
    Ok(Outcome::Done)
}

pub(super) async fn clone(setting: &Setting, snapshot: &VolumeName, name: String) -> Result<Outcome> {
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
    let cloned = setting.client.clone_snapshot(snapshot, &CloneSnapshot { name }).await?;
    setting.done(&cloned, |volume| {
        format!("volume {}/{} cloned from snapshot {snapshot}", volume.pool, volume.name)
    })?;
    Ok(Outcome::Done)
}

pub(super) async fn roll_back(
    setting: &Setting,
    snapshot: &VolumeName,
    force: bool,
    yes: bool,
) -> Result<Outcome> {
    let (volume, _) = split(snapshot)?;
    let warning = format!("Data written to {volume} since snapshot {snapshot} will be lost.");
    confirm(yes, &warning)?;
    let rolled_back = setting.client.rollback_volume(snapshot, &RollbackVolume { force }).await?;
    setting.done(&rolled_back, |_| format!("volume {volume} rolled back to {snapshot}"))?;
    Ok(Outcome::Done)
}

pub(super) async fn usage(setting: &Setting, name: &VolumeName) -> Result<Outcome> {
    let volume = name.base();
    let all = setting.client.list_volumes(&name.pool).await?;
    let mine = |other: &&Volume| {
        let of = other.name.split_once('@').is_some_and(|(of, _)| of == volume);
        !other.deleting && (other.name == name.volume || name.volume == volume && of)
    };
    let mut usages: Vec<VolumeUsage> = Vec::new();
    for found in all.iter().filter(mine) {
        let of = VolumeName { pool: found.pool.clone(), volume: found.name.clone() };
        usages.push(setting.client.get_volume_usage(&of).await?);
    }
    if usages.is_empty() {
        // Returns the error for a missing volume.
        setting.client.get_volume(name).await?;
    }
    setting.list(&usages, |usage| format!("{}/{}", usage.pool, usage.name), output::usages)?;
    Ok(Outcome::Done)
}

pub(super) async fn diff(setting: &Setting, from: &VolumeName, to: &VolumeName) -> Result<Outcome> {
    if from.pool != to.pool {
        return Err(Error::new(ErrorKind::Invalid, format!("{from} and {to} are in different pools")).into());
    }
    let mut next = Some(0);
    let mut out = std::io::stdout().lock();
    while let Some(offset) = next {
        let query = DiffQuery { from: from.volume.clone(), offset };
        let diff = setting.client.get_volume_diff(to, &query).await?;
        for range in &diff.ranges {
            if setting.json {
                writeln!(out, "{}", serde_json::to_string(range)?)?;
            } else {
                let content = if range.data { "data" } else { "zeros" };
                writeln!(out, "{} {} {content}", range.offset, range.length)?;
            }
        }
        next = diff.next;
    }
    Ok(Outcome::Done)
}
