//! `gabion drive`.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;
use api::Size;
use api::types::{AddDrive, DriveState, PoolDrive, RebuildState, ReturnDrive};

use super::pool::confirm_wipe;
use super::{CommandContext, absolute_one, confirm, identify, with_daemon};
use crate::cli::{DriveCommand, Global};
use crate::failure::ExitReason;
use crate::output;
use crate::progress::{StatusLine, follow};

/// Interval between two requests for the state of a removal.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// Time without progress after which the command gives up. Freeing space by the cleaner may take
/// part of it.
const STALL_TIMEOUT: Duration = Duration::from_secs(30);

/// Runs a `gabion drive` command.
///
/// # Errors
/// The error of the command.
pub(crate) fn run(global: &Global, command: DriveCommand) -> Result<ExitReason> {
    match command {
        DriveCommand::List { pool } => with_daemon(global, async |ctx| list(&ctx, pool).await),
        DriveCommand::Fail { pool, drive, yes } => {
            with_daemon(global, async |ctx| fail(&ctx, &pool, drive, yes).await)
        }
        DriveCommand::Add { pool, drive, wipe, yes } => {
            with_daemon(global, async |ctx| add(&ctx, &pool, &drive, wipe, yes).await)
        }
        DriveCommand::Replace { pool, drive, with, wipe, yes, no_wait } => with_daemon(global, async |ctx| {
            replace(&ctx, &pool, drive, &with, wipe, yes).await?;
            until_removed(&ctx, &pool, drive, no_wait).await
        }),
        DriveCommand::Remove { pool, drive, cancel: true, .. } => {
            with_daemon(global, async |ctx| cancel_remove(&ctx, &pool, drive).await)
        }
        DriveCommand::Remove { pool, drive, no_wait, .. } => with_daemon(global, async |ctx| {
            ctx.client.remove_drive(&pool, drive).await?;
            until_removed(&ctx, &pool, drive, no_wait).await
        }),
        DriveCommand::Return { pool, drive, path } => {
            with_daemon(global, async |ctx| return_drive(&ctx, &pool, drive, path.as_deref()).await)
        }
        DriveCommand::Identify { drives } => identify::run(global, drives),
    }
}

async fn list(ctx: &CommandContext, pool: Option<String>) -> Result<ExitReason> {
    let pools = match pool {
        Some(pool) => vec![ctx.client.get_pool(&pool).await?],
        None => ctx.client.list_pools().await?,
    };
    let drives: Vec<PoolDrive> = pools.into_iter().flat_map(|pool| pool.drives).collect();
    ctx.list(&drives, |drive| drive.path.clone(), output::drives)?;
    Ok(ExitReason::Success)
}

async fn fail(ctx: &CommandContext, pool: &str, drive: u16, yes: bool) -> Result<ExitReason> {
    if !yes {
        let shown = ctx.client.get_pool(pool).await?;
        let member = shown.drives.iter().find(|known| known.index == Some(drive));
        let name = member.map_or_else(String::new, |drive| format!(" ({})", drive.path));
        confirm(false, &format!("marks drive {drive}{name} of pool '{pool}' as failed"))?;
    }
    let after = ctx.client.fail_drive(pool, drive).await?;
    ctx.done(&after, |pool| {
        let lost = |state| matches!(state, DriveState::Missing | DriveState::Failed);
        let all = pool.drives.iter().filter(|drive| drive.state != DriveState::Removed).count();
        let left = all - pool.drives.iter().filter(|drive| lost(drive.state)).count();
        format!("drive {drive} of pool '{}' marked as failed; {left} of {all} drives are left", pool.name)
    })?;
    Ok(ExitReason::Success)
}

/// Returns the request for a new drive; asks for confirmation before existing data is erased.
async fn new_drive(ctx: &CommandContext, drive: &Path, wipe: bool, yes: bool) -> Result<AddDrive> {
    let path = absolute_one(drive)?;
    if wipe && !yes {
        confirm_wipe(ctx, std::slice::from_ref(&path)).await?;
    }
    Ok(AddDrive { path, wipe })
}

async fn add(ctx: &CommandContext, pool: &str, drive: &Path, wipe: bool, yes: bool) -> Result<ExitReason> {
    let request = new_drive(ctx, drive, wipe, yes).await?;
    let started = ctx.client.add_drive(pool, &request).await?;
    follow(&ctx.client, started, ctx.quiet).await?;
    let after = ctx.client.get_pool(pool).await?;
    ctx.done(&after, |pool| {
        let room =
            pool.space.as_ref().map(|space| format!(": {} are free", Size(space.free))).unwrap_or_default();
        format!("{} added to pool '{}'{room}", request.path, pool.name)
    })?;
    Ok(ExitReason::Success)
}

async fn replace(
    ctx: &CommandContext,
    pool: &str,
    drive: u16,
    with: &Path,
    wipe: bool,
    yes: bool,
) -> Result<()> {
    let request = new_drive(ctx, with, wipe, yes).await?;
    let started = ctx.client.replace_drive(pool, drive, &request).await?;
    follow(&ctx.client, started, ctx.quiet).await?;
    Ok(())
}

/// Waits until a drive has left its pool, or its removal makes no progress.
async fn until_removed(ctx: &CommandContext, pool: &str, drive: u16, no_wait: bool) -> Result<ExitReason> {
    let mut line = StatusLine::new(ctx.quiet);
    let mut progressed = Instant::now();
    loop {
        let now = ctx.client.get_pool(pool).await?;
        let state = now.drives.iter().find(|known| known.index == Some(drive)).map(|drive| drive.state);
        if matches!(state, None | Some(DriveState::Removed)) {
            drop(line);
            ctx.done(&now, |_| format!("drive {drive} of pool '{pool}' removed; it can be unplugged"))?;
            return Ok(ExitReason::Success);
        }
        if no_wait {
            ctx.done(&now, |_| {
                format!("removal of drive {drive} started; 'gabion pool status {pool}' shows the progress")
            })?;
            return Ok(ExitReason::Success);
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

async fn cancel_remove(ctx: &CommandContext, pool: &str, drive: u16) -> Result<ExitReason> {
    let after = ctx.client.cancel_remove_drive(pool, drive).await?;
    ctx.done(&after, |pool| format!("removal of drive {drive} of pool '{}' cancelled", pool.name))?;
    Ok(ExitReason::Success)
}

async fn return_drive(
    ctx: &CommandContext,
    pool: &str,
    drive: u16,
    path: Option<&Path>,
) -> Result<ExitReason> {
    let request = ReturnDrive { path: path.map(absolute_one).transpose()? };
    let after = ctx.client.return_drive(pool, drive, &request).await?;
    ctx.done(&after, |pool| {
        format!("drive {drive} of pool '{0}' returned; 'gabion pool status {0}' shows its rebuild", pool.name)
    })?;
    Ok(ExitReason::Success)
}
