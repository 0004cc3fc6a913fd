//! `gabion drive`.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Result;
use api::types::{AddDrive, DriveState, Operation, Pool, PoolDrive, RepairState, ReturnDrive};
use server::{Size, offline};

use super::pool::confirm_wipe;
use super::{Setting, absolute_one, confirm, with_daemon};
use crate::cli::{DriveCommand, Global};
use crate::client::segment;
use crate::failure::Outcome;
use crate::output;
use crate::progress::{Line, follow};

/// Pause between two looks at a pool whose drive is being emptied.
const LOOK_AGAIN: Duration = Duration::from_millis(500);
/// How long nothing may go on before nobody waits for it any more: the cleaner may be making room.
const PATIENCE: Duration = Duration::from_secs(30);

/// Runs a command about drives.
///
/// # Errors
/// Why it failed.
pub(crate) fn run(global: &Global, command: DriveCommand) -> Result<Outcome> {
    match command {
        DriveCommand::List { pool } => with_daemon(global, async |setting| list(&setting, pool).await),
        DriveCommand::Fail { pool, drive, yes } => {
            with_daemon(global, async |setting| fail(&setting, &pool, drive, yes).await)
        }
        DriveCommand::Add { pool, drive, wipe, yes } => {
            with_daemon(global, async |setting| add(&setting, &pool, &drive, wipe, yes).await)
        }
        DriveCommand::Replace { pool, drive, with, wipe, yes, no_wait } => {
            with_daemon(global, async |setting| {
                replace(&setting, &pool, drive, &with, wipe, yes).await?;
                until_gone(&setting, &pool, drive, no_wait).await
            })
        }
        DriveCommand::Remove { pool, drive, cancel: true, .. } => {
            with_daemon(global, async |setting| keep(&setting, &pool, drive).await)
        }
        DriveCommand::Remove { pool, drive, no_wait, .. } => with_daemon(global, async |setting| {
            let path = format!("/v1/pools/{}/drives/{drive}/evacuate", segment(&pool));
            let _: Pool = setting.client.post(&path, &()).await?;
            until_gone(&setting, &pool, drive, no_wait).await
        }),
        DriveCommand::Return { pool, drive, path } => {
            with_daemon(global, async |setting| bring_back(&setting, &pool, drive, path.as_deref()).await)
        }
        DriveCommand::Identify { drives } => identify(global, drives),
    }
}

async fn list(setting: &Setting, pool: Option<String>) -> Result<Outcome> {
    let pools: Vec<Pool> = match pool {
        Some(pool) => vec![setting.client.get(&format!("/v1/pools/{}", segment(&pool))).await?],
        None => setting.client.get("/v1/pools").await?,
    };
    let drives: Vec<PoolDrive> = pools.into_iter().flat_map(|pool| pool.drives).collect();
    setting.list(&drives, |drive| drive.path.clone(), output::drives)?;
    Ok(Outcome::Done)
}

async fn fail(setting: &Setting, pool: &str, drive: u16, yes: bool) -> Result<Outcome> {
    let path = format!("/v1/pools/{}", segment(pool));
    if !yes {
        let shown: Pool = setting.client.get(&path).await?;
        let found = shown.drives.iter().find(|known| known.index == Some(drive));
        let name = found.map_or_else(String::new, |drive| format!(" ({})", drive.path));
        confirm(false, &format!("Drive {drive}{name} of pool '{pool}' will be taken out of use."))?;
    }
    let after: Pool = setting.client.post(&format!("{path}/drives/{drive}/fail"), &()).await?;
    setting.done(&after, |pool| {
        let lost = |state| matches!(state, DriveState::Missing | DriveState::Failed);
        let all = pool.drives.iter().filter(|drive| drive.state != DriveState::Removed).count();
        let left = all - pool.drives.iter().filter(|drive| lost(drive.state)).count();
        format!("drive {drive} of pool '{}' is out of use; {left} of {all} drives are left", pool.name)
    })?;
    Ok(Outcome::Done)
}

/// A request for a new drive; asks before something is destroyed.
async fn new_drive(setting: &Setting, drive: &Path, wipe: bool, yes: bool) -> Result<AddDrive> {
    let path = absolute_one(drive)?;
    if wipe && !yes {
        confirm_wipe(setting, std::slice::from_ref(&path)).await?;
    }
    Ok(AddDrive { path, wipe })
}

async fn add(setting: &Setting, pool: &str, drive: &Path, wipe: bool, yes: bool) -> Result<Outcome> {
    let request = new_drive(setting, drive, wipe, yes).await?;
    let path = format!("/v1/pools/{}", segment(pool));
    let started: Operation = setting.client.post(&format!("{path}/drives"), &request).await?;
    follow(&setting.client, started, setting.quiet).await?;
    let after: Pool = setting.client.get(&path).await?;
    setting.done(&after, |pool| {
        let room =
            pool.space.as_ref().map(|space| format!(": {} are free", Size(space.free))).unwrap_or_default();
        format!("{} is a drive of pool '{}' now{room}", request.path, pool.name)
    })?;
    Ok(Outcome::Done)
}

async fn replace(
    setting: &Setting,
    pool: &str,
    drive: u16,
    with: &Path,
    wipe: bool,
    yes: bool,
) -> Result<()> {
    let request = new_drive(setting, with, wipe, yes).await?;
    let path = format!("/v1/pools/{}/drives/{drive}/replace", segment(pool));
    let started: Operation = setting.client.post(&path, &request).await?;
    follow(&setting.client, started, setting.quiet).await?;
    Ok(())
}

/// Waits until a drive belongs to its pool no more, or nothing goes on.
async fn until_gone(setting: &Setting, pool: &str, drive: u16, no_wait: bool) -> Result<Outcome> {
    let path = format!("/v1/pools/{}", segment(pool));
    let mut line = Line::new(setting.quiet);
    let mut went_on = Instant::now();
    loop {
        let now: Pool = setting.client.get(&path).await?;
        let state = now.drives.iter().find(|known| known.index == Some(drive)).map(|drive| drive.state);
        if matches!(state, None | Some(DriveState::Removed)) {
            drop(line);
            setting.done(&now, |_| {
                format!("drive {drive} is no part of pool '{pool}' any more: it can be pulled")
            })?;
            return Ok(Outcome::Done);
        }
        if no_wait {
            setting.done(&now, |_| {
                format!("drive {drive} leaves pool '{pool}' when it is empty: 'gabion pool status {pool}' shows how far that is")
            })?;
            return Ok(Outcome::Done);
        }
        if state == Some(DriveState::Online) {
            anyhow::bail!("drive {drive} stays: somebody cancelled this, or too few other drives are left");
        }
        if let Some(repair) = &now.repair {
            if repair.state == RepairState::Paused {
                anyhow::bail!(
                    "drive {drive} stays until repair goes on, which is paused: 'gabion pool repair {pool} --resume'"
                );
            }
            if matches!(repair.state, RepairState::Working | RepairState::Idle) {
                went_on = Instant::now();
            }
            line.show(&output::repair(repair));
        }
        if went_on.elapsed() > PATIENCE {
            anyhow::bail!(
                "drive {drive} is not empty, and that does not go on: 'gabion pool status {pool}' says why and what to do; \
                 'gabion drive remove {pool} {drive} --cancel' keeps the drive"
            );
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

async fn keep(setting: &Setting, pool: &str, drive: u16) -> Result<Outcome> {
    let path = format!("/v1/pools/{}/drives/{drive}/keep", segment(pool));
    let after: Pool = setting.client.post(&path, &()).await?;
    setting.done(&after, |pool| format!("drive {drive} stays in pool '{}'", pool.name))?;
    Ok(Outcome::Done)
}

async fn bring_back(setting: &Setting, pool: &str, drive: u16, path: Option<&Path>) -> Result<Outcome> {
    let request = ReturnDrive { path: path.map(absolute_one).transpose()? };
    let at = format!("/v1/pools/{}/drives/{drive}/return", segment(pool));
    let after: Pool = setting.client.post(&at, &request).await?;
    setting.done(&after, |pool| {
        format!(
            "drive {drive} of pool '{0}' is in use again, and gets what it missed: 'gabion pool status {0}'",
            pool.name
        )
    })?;
    Ok(Outcome::Done)
}

fn identify(global: &Global, drives: Vec<PathBuf>) -> Result<Outcome> {
    let identified = offline::identify(drives)?;
    let text = if global.json { super::to_json(&identified)? } else { output::identified(&identified) };
    super::print(&text)?;
    match identified.into_iter().find_map(|drive| drive.error) {
        Some(error) => Err(error.into()),
        None => Ok(Outcome::Done),
    }
}
