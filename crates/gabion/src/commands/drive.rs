//! `gabion drive`.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;
use api::Size;
use api::types::{AddDrive, DriveState, PoolDrive, RebuildState, ReturnDrive};

use super::pool::confirm_wipe;
use super::{Setting, absolute_one, confirm, identify, with_daemon};
use crate::cli::{DriveCommand, Global};
use crate::failure::Outcome;
use crate::output;
use crate::progress::{Line, follow};

/// Interval between two requests for the state of a removal.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// Time without progress after which the command gives up. The cleaner may be freeing space.
const STALL_TIMEOUT: Duration = Duration::from_secs(30);

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
                until_removed(&setting, &pool, drive, no_wait).await
            })
        }
        DriveCommand::Remove { pool, drive, cancel: true, .. } => {
            with_daemon(global, async |setting| cancel_remove(&setting, &pool, drive).await)
        }
        DriveCommand::Remove { pool, drive, no_wait, .. } => with_daemon(global, async |setting| {
            setting.client.remove_drive(&pool, drive).await?;
            until_removed(&setting, &pool, drive, no_wait).await
        }),
        DriveCommand::Return { pool, drive, path } => {
            with_daemon(global, async |setting| return_drive(&setting, &pool, drive, path.as_deref()).await)
        }
        DriveCommand::Identify { drives } => identify::run(global, drives),
    }
}

async fn list(setting: &Setting, pool: Option<String>) -> Result<Outcome> {
    let pools = match pool {
        Some(pool) => vec![setting.client.get_pool(&pool).await?],
        None => setting.client.list_pools().await?,
    };
    let drives: Vec<PoolDrive> = pools.into_iter().flat_map(|pool| pool.drives).collect();
    setting.list(&drives, |drive| drive.path.clone(), output::drives)?;
    Ok(Outcome::Done)
}

async fn fail(setting: &Setting, pool: &str, drive: u16, yes: bool) -> Result<Outcome> {
    if !yes {
        let shown = setting.client.get_pool(pool).await?;
        let found = shown.drives.iter().find(|known| known.index == Some(drive));
        let name = found.map_or_else(String::new, |drive| format!(" ({})", drive.path));
        confirm(false, &format!("Drive {drive}{name} of pool '{pool}' will be taken out of use."))?;
    }
    let after = setting.client.fail_drive(pool, drive).await?;
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
    let started = setting.client.add_drive(pool, &request).await?;
    follow(&setting.client, started, setting.quiet).await?;
    let after = setting.client.get_pool(pool).await?;
    setting.done(&after, |pool| {
        let room =
            pool.space.as_ref().map(|space| format!(": {} are free", Size(space.free))).unwrap_or_default();
        format!("{} added to pool '{}'{room}", request.path, pool.name)
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
    let started = setting.client.replace_drive(pool, drive, &request).await?;
    follow(&setting.client, started, setting.quiet).await?;
    Ok(())
}

/// Waits until a drive has left its pool, or its removal makes no progress.
async fn until_removed(setting: &Setting, pool: &str, drive: u16, no_wait: bool) -> Result<Outcome> {
    let mut line = Line::new(setting.quiet);
    let mut progressed = Instant::now();
    loop {
        let now = setting.client.get_pool(pool).await?;
        let state = now.drives.iter().find(|known| known.index == Some(drive)).map(|drive| drive.state);
        if matches!(state, None | Some(DriveState::Removed)) {
            drop(line);
            setting.done(&now, |_| format!("drive {drive} of pool '{pool}' removed; it can be unplugged"))?;
            return Ok(Outcome::Done);
        }
        if no_wait {
            setting.done(&now, |_| {
                format!("removal of drive {drive} started; 'gabion pool status {pool}' shows the progress")
            })?;
            return Ok(Outcome::Done);
        }
        if state == Some(DriveState::Online) {
            anyhow::bail!(
                "drive {drive} was not removed: the removal was cancelled, or too few other drives are in use"
            );
        }
        if let Some(rebuild) = &now.rebuild {
            if rebuild.state == RebuildState::Paused {
                anyhow::bail!(
                    "drive {drive} is not removed while the rebuild is paused: 'gabion pool rebuild {pool} --resume'"
                );
            }
            if matches!(rebuild.state, RebuildState::Working | RebuildState::Idle) {
                progressed = Instant::now();
            }
            line.show(&output::rebuild(rebuild));
        }
        if progressed.elapsed() > STALL_TIMEOUT {
            anyhow::bail!(
                "the removal of drive {drive} makes no progress: 'gabion pool status {pool}' shows the reason; \
                 'gabion drive remove {pool} {drive} --cancel' cancels it"
            );
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

async fn cancel_remove(setting: &Setting, pool: &str, drive: u16) -> Result<Outcome> {
    let after = setting.client.cancel_remove_drive(pool, drive).await?;
    setting.done(&after, |pool| format!("removal of drive {drive} of pool '{}' cancelled", pool.name))?;
    Ok(Outcome::Done)
}

async fn return_drive(setting: &Setting, pool: &str, drive: u16, path: Option<&Path>) -> Result<Outcome> {
    let request = ReturnDrive { path: path.map(absolute_one).transpose()? };
    let after = setting.client.return_drive(pool, drive, &request).await?;
    setting.done(&after, |pool| {
        format!("drive {drive} of pool '{0}' returned; 'gabion pool status {0}' shows its rebuild", pool.name)
    })?;
    Ok(Outcome::Done)
}
