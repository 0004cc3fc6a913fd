//! `gabion volume snapshot`, `clone`, `rollback`, `usage` and `diff`.

use std::io::Write;

use anyhow::Result;
use api::types::{Changes, CloneSnapshot, RollBack, TakeSnapshot, Usage, Volume};
use api::{Error, ErrorKind};

use super::volume::path_of;
use super::{Setting, confirm};
use api::VolumeName;
use crate::client::segment;
use crate::failure::Outcome;
use crate::output;

/// The volume and the snapshot's own name.
fn split(name: &VolumeName) -> Result<(VolumeName, String)> {
    match name.volume.split_once('@') {
        Some((volume, snapshot)) if !volume.is_empty() && !snapshot.is_empty() => {
            let volume = VolumeName { pool: name.pool.clone(), volume: volume.to_owned() };
            Ok((volume, snapshot.to_owned()))
        }
        _ => Err(Error::new(ErrorKind::Invalid, format!("'{name}' names no snapshot"))
            .hint("write POOL/VOLUME@SNAPSHOT, for example fast/vm01@monday")
            .into()),
    }
}

pub(super) async fn take(setting: &Setting, name: &VolumeName) -> Result<Outcome> {
    let (volume, own) = split(name)?;
    let path = format!("{}/snapshots", path_of(&volume));
    let taken: Volume = setting.client.post(&path, &TakeSnapshot { name: own }).await?;
    setting.done(&taken, |_| {
        format!("snapshot {name} taken; 'gabion volume rollback {name}' goes back to it")
    })?;
    Ok(Outcome::Done)
}

pub(super) async fn clone(setting: &Setting, snapshot: &VolumeName, name: String) -> Result<Outcome> {
    split(snapshot)?;
    // Given with its pool, as everywhere else, it means the same.
    let name = match name.split_once('/') {
        Some((pool, volume)) if pool == snapshot.pool => volume.to_owned(),
        Some(_) => {
            let message = format!("a clone is in the pool of its snapshot, '{}'", snapshot.pool);
            return Err(Error::new(ErrorKind::Invalid, message).into());
        }
        None => name,
    };
    let path = format!("{}/clone", path_of(snapshot));
    let made: Volume = setting.client.post(&path, &CloneSnapshot { name }).await?;
    setting.done(&made, |volume| {
        format!("volume {}/{} made of snapshot {snapshot}", volume.pool, volume.name)
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
    let warning = format!("What was written to {volume} since {snapshot} was taken will be lost.");
    confirm(yes, &warning)?;
    let path = format!("{}/roll-back", path_of(snapshot));
    let back: Volume = setting.client.post(&path, &RollBack { force }).await?;
    setting.done(&back, |_| format!("volume {volume} is what {snapshot} is"))?;
    Ok(Outcome::Done)
}

pub(super) async fn usage(setting: &Setting, name: &VolumeName) -> Result<Outcome> {
    let volume = name.volume.split_once('@').map_or(name.volume.as_str(), |(volume, _)| volume);
    let path = format!("/v1/pools/{}/volumes", segment(&name.pool));
    let all: Vec<Volume> = setting.client.get(&path).await?;
    let mine = |other: &&Volume| {
        let of = other.name.split_once('@').is_some_and(|(of, _)| of == volume);
        !other.deleting && (other.name == name.volume || name.volume == volume && of)
    };
    let mut usages: Vec<Usage> = Vec::new();
    for found in all.iter().filter(mine) {
        let of = VolumeName { pool: found.pool.clone(), volume: found.name.clone() };
        usages.push(setting.client.get(&format!("{}/usage", path_of(&of))).await?);
    }
    if usages.is_empty() {
        // Says that there is none.
        let _: Volume = setting.client.get(&path_of(name)).await?;
    }
    setting.list(&usages, |usage| format!("{}/{}", usage.pool, usage.name), output::usages)?;
    Ok(Outcome::Done)
}

pub(super) async fn diff(setting: &Setting, from: &VolumeName, to: &VolumeName) -> Result<Outcome> {
    if from.pool != to.pool {
        return Err(Error::new(ErrorKind::Invalid, format!("{from} and {to} are in different pools")).into());
    }
    let mut offset = Some(0);
    let mut out = std::io::stdout().lock();
    while let Some(at) = offset {
        let path = format!("{}/changes?since={}&offset={at}", path_of(to), segment(&from.volume));
        let found: Changes = setting.client.get(&path).await?;
        for change in &found.changes {
            if setting.json {
                writeln!(out, "{}", serde_json::to_string(change)?)?;
            } else {
                let what = if change.data { "data" } else { "zeros" };
                writeln!(out, "{} {} {what}", change.offset, change.length)?;
            }
        }
        offset = found.next;
    }
    Ok(Outcome::Done)
}
