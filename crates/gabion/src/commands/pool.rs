//! `gabion pool`.

use std::io::{IsTerminal, Write};
use std::time::Duration;

use std::collections::BTreeSet;

use anyhow::{Context, Result};
use api::Size;
use api::types::{
    ChangeRebuild, ChangeScrub, ClosePool, CreatePool, FileDrives, Health, IdentifiedDrive, IdentifyDrives,
    OpenPool, Pool, PoolState,
};

use super::{CommandContext, absolute, absolute_one, confirm, events, scrub};
use crate::cli::{CreatePoolArgs, PoolCommand};
use crate::failure::ExitReason;
use crate::output;
use crate::progress::follow;

/// Refresh interval of `--watch`.
const WATCH_INTERVAL: Duration = Duration::from_secs(2);

/// Runs a `gabion pool` command.
///
/// # Errors
/// The error of the command.
pub(crate) async fn run(ctx: &CommandContext, command: PoolCommand) -> Result<ExitReason> {
    match command {
        PoolCommand::Create(arguments) => create(ctx, arguments).await,
        PoolCommand::List => list(ctx).await,
        PoolCommand::Status { pools, watch: false } => status(ctx, &pools).await,
        PoolCommand::Status { pools, watch: true } => watch(ctx, &pools).await,
        PoolCommand::Open { name, drives, degraded, accept_stale } => {
            let request = OpenPool { drives: absolute(&drives)?, degraded, accept_stale };
            open(ctx, &name, &request).await
        }
        PoolCommand::Close { name, force, forget } => close(ctx, &name, ClosePool { force, forget }).await,
        PoolCommand::Events { name, last, follow } => events::show(ctx, &name, last, follow).await,
        PoolCommand::Rebuild { name, pause, resume, rate_limit } => {
            rebuild(ctx, &name, pause, resume, rate_limit).await
        }
        PoolCommand::Scrub { name, wait, rate_limit, pause, resume, cancel, every } => {
            let change = ChangeScrub {
                paused: (pause || resume).then_some(pause),
                rate_limit: rate_limit.map(Size::bytes),
                every,
            };
            scrub::run(ctx, &name, change, scrub::ScrubOptions { wait, cancel }).await
        }
        PoolCommand::Destroy { name, yes } => destroy(ctx, &name, yes).await,
    }
}

async fn create(ctx: &CommandContext, arguments: CreatePoolArgs) -> Result<ExitReason> {
    let drives = absolute(&arguments.drives)?;
    let files = match (&arguments.files, arguments.file_size, arguments.count) {
        (Some(directory), Some(size), Some(count)) => {
            Some(FileDrives { directory: absolute_one(directory)?, size: size.bytes(), count })
        }
        _ => None,
    };
    if arguments.wipe && !arguments.yes {
        confirm_wipe(ctx, &drives).await?;
    }
    let request = CreatePool {
        name: arguments.name,
        scheme: arguments.scheme,
        level: arguments.level,
        drives,
        files,
        wipe: arguments.wipe,
        shards: arguments.shards,
    };
    let started = ctx.client.create_pool(&request).await?;
    follow(&ctx.client, started, ctx.quiet).await?;
    let pool = ctx.client.get_pool(&request.name).await?;
    ctx.done(&pool, |pool| {
        let name = &pool.name;
        let free =
            pool.space.as_ref().map(|space| format!(", {} free", Size(space.free))).unwrap_or_default();
        format!(
            "pool '{name}' created{free}; 'gabion volume create {name}/NAME --size SIZE' creates a volume"
        )
    })?;
    Ok(ExitReason::Success)
}

/// Shows the data that would be erased, and asks for confirmation.
pub(super) async fn confirm_wipe(ctx: &CommandContext, drives: &[String]) -> Result<()> {
    let request = IdentifyDrives { drives: drives.to_vec() };
    let identified = ctx.client.identify_drives(&request).await?;
    let full: Vec<IdentifiedDrive> =
        identified.into_iter().filter(|drive| !drive.contents.is_empty()).collect();
    if full.is_empty() {
        return Ok(());
    }
    eprintln!("{}", output::identified(&full));
    confirm(false, &format!("erases {} of {} drives", full.len(), drives.len()))
}

async fn list(ctx: &CommandContext) -> Result<ExitReason> {
    let pools = ctx.client.list_pools().await?;
    ctx.list(&pools, |pool| pool.name.clone(), output::pools)?;
    Ok(ExitReason::Success)
}

async fn fetch(ctx: &CommandContext, names: &[String]) -> Result<Vec<Pool>> {
    if names.is_empty() {
        return Ok(ctx.client.list_pools().await?);
    }
    let mut pools = Vec::new();
    for name in names {
        pools.push(ctx.client.get_pool(name).await?);
    }
    Ok(pools)
}

async fn status(ctx: &CommandContext, names: &[String]) -> Result<ExitReason> {
    let pools = fetch(ctx, names).await?;
    let brief = |pool: &Pool| format!("{} {}", pool.name, output::word(&pool.health));
    ctx.list(&pools, brief, output::pool_statuses)?;
    Ok(if pools.iter().all(is_healthy) { ExitReason::Success } else { ExitReason::Unhealthy })
}

fn is_healthy(pool: &Pool) -> bool {
    match pool.state {
        PoolState::Open => pool.health == Health::Healthy,
        PoolState::Closed | PoolState::Changing => true,
        PoolState::Unavailable => false,
    }
}

async fn watch(ctx: &CommandContext, names: &[String]) -> Result<ExitReason> {
    loop {
        let pools = fetch(ctx, names).await?;
        let text = if ctx.json { serde_json::to_string(&pools)? } else { output::pool_statuses(&pools) };
        if std::io::stdout().is_terminal() && !ctx.json {
            // Moves the cursor home and clears the screen.
            print!("\x1b[H\x1b[2J");
        }
        println!("{text}");
        std::io::stdout().flush().context("writing to standard output")?;
        tokio::time::sleep(WATCH_INTERVAL).await;
    }
}

async fn open(ctx: &CommandContext, name: &str, request: &OpenPool) -> Result<ExitReason> {
    let started = ctx.client.open_pool(name, request).await?;
    follow(&ctx.client, started, ctx.quiet).await?;
    let pool = ctx.client.get_pool(name).await?;
    ctx.done(&pool, |pool| {
        let report = pool.opened.as_ref().map(output::opening).unwrap_or_default();
        format!("pool '{name}' opened: {}; {report}", output::word(&pool.health))
    })?;
    Ok(ExitReason::Success)
}

async fn close(ctx: &CommandContext, name: &str, request: ClosePool) -> Result<ExitReason> {
    let started = ctx.client.close_pool(name, &request).await?;
    let ended = follow(&ctx.client, started, ctx.quiet).await?;
    ctx.done(&ended, |_| {
        let after = if request.forget { "; its record was deleted" } else { "" };
        format!("pool '{name}' closed{after}")
    })?;
    Ok(ExitReason::Success)
}

async fn rebuild(
    ctx: &CommandContext,
    name: &str,
    pause: bool,
    resume: bool,
    rate_limit: Option<Size>,
) -> Result<ExitReason> {
    let paused = (pause || resume).then_some(pause);
    let request = ChangeRebuild { paused, rate_limit: rate_limit.map(Size::bytes) };
    let pool = ctx.client.change_rebuild(name, &request).await?;
    ctx.done(&pool, |pool| {
        let settings = pool.rebuild.as_ref().map(output::rebuild_settings).unwrap_or_default();
        format!("rebuild of pool '{name}': {settings}")
    })?;
    Ok(ExitReason::Success)
}

async fn destroy(ctx: &CommandContext, name: &str, yes: bool) -> Result<ExitReason> {
    let pool = ctx.client.get_pool(name).await?;
    if !yes {
        let contents = pool.space.as_ref().map_or_else(
            || "all its data".to_owned(),
            |space| {
                let stored = Size(space.stored);
                format!("{stored} of data: {} volumes and snapshots, and all objects", space.volumes)
            },
        );
        confirm(false, &format!("destroys pool '{name}' with {contents}"))?;
    }
    let started = ctx.client.destroy_pool(name).await?;
    let ended = follow(&ctx.client, started, ctx.quiet).await?;
    let is_file = |path: &&str| std::path::Path::new(path).is_file();
    let files: Vec<&str> = pool.drives.iter().map(|drive| drive.path.as_str()).filter(is_file).collect();
    let parents = files.iter().filter_map(|file| std::path::Path::new(file).parent());
    let directories: BTreeSet<String> = parents.map(|parent| parent.display().to_string()).collect();
    let directories = Vec::from_iter(directories).join(", ");
    ctx.done(&ended, |_| match files.len() {
        0 => format!("pool '{name}' destroyed"),
        1 => format!("pool '{name}' destroyed; 1 drive file remains in {directories}"),
        count => format!("pool '{name}' destroyed; {count} drive files remain in {directories}"),
    })?;
    Ok(ExitReason::Success)
}
