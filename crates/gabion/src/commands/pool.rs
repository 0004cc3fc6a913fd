//! `gabion pool`.

use std::io::{IsTerminal, Write};
use std::time::Duration;

use anyhow::{Context, Result};
use api::Size;
use api::types::{
    ChangeRebuild, ChangeScrub, ClosePool, CreatePool, FileDrives, Health, IdentifiedDrive, IdentifyDrives,
    OpenPool, Pool, PoolState,
};

use super::{Setting, absolute, absolute_one, confirm, events, scrub};
use crate::cli::{CreatePoolArgs, PoolCommand};
use crate::failure::Outcome;
use crate::output;
use crate::progress::follow;

/// Pause between two looks of `--watch`.
const WATCH: Duration = Duration::from_secs(2);

/// Runs a command about pools.
///
/// # Errors
/// Why it failed.
pub(crate) async fn run(setting: &Setting, command: PoolCommand) -> Result<Outcome> {
    match command {
        PoolCommand::Create(arguments) => create(setting, arguments).await,
        PoolCommand::List => list(setting).await,
        PoolCommand::Status { pools, watch: false } => status(setting, &pools).await,
        PoolCommand::Status { pools, watch: true } => watch(setting, &pools).await,
        PoolCommand::Open { name, drives, degraded, accept_stale } => {
            let request = OpenPool { drives: absolute(&drives)?, degraded, accept_stale };
            open(setting, &name, &request).await
        }
        PoolCommand::Close { name, force, forget } => {
            close(setting, &name, ClosePool { force, forget }).await
        }
        PoolCommand::Events { name, last, follow } => events::show(setting, &name, last, follow).await,
        PoolCommand::Rebuild { name, pause, resume, rate_limit } => {
            rebuild(setting, &name, pause, resume, rate_limit).await
        }
        PoolCommand::Scrub { name, wait, rate_limit, pause, resume, cancel, every } => {
            let change = ChangeScrub {
                paused: (pause || resume).then_some(pause),
                rate_limit: rate_limit.map(Size::bytes),
                every,
            };
            scrub::run(setting, &name, change, scrub::ScrubOptions { wait, cancel }).await
        }
        PoolCommand::Destroy { name, yes } => destroy(setting, &name, yes).await,
    }
}

async fn create(setting: &Setting, arguments: CreatePoolArgs) -> Result<Outcome> {
    let drives = absolute(&arguments.drives)?;
    let files = match (&arguments.files, arguments.file_size, arguments.count) {
        (Some(directory), Some(size), Some(count)) => {
            Some(FileDrives { directory: absolute_one(directory)?, size: size.bytes(), count })
        }
        _ => None,
    };
    if arguments.wipe && !arguments.yes {
        confirm_wipe(setting, &drives).await?;
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
    let started = setting.client.create_pool(&request).await?;
    follow(&setting.client, started, setting.quiet).await?;
    let pool = setting.client.get_pool(&request.name).await?;
    setting.done(&pool, |pool| {
        let name = &pool.name;
        let room = pool
            .space
            .as_ref()
            .map(|space| format!(" with room for {}", Size(space.free)))
            .unwrap_or_default();
        format!("pool '{name}' created{room}; 'gabion volume create {name}/NAME --size SIZE' makes a volume")
    })?;
    Ok(Outcome::Done)
}

/// Shows what would be destroyed, and asks.
pub(super) async fn confirm_wipe(setting: &Setting, drives: &[String]) -> Result<()> {
    let request = IdentifyDrives { drives: drives.to_vec() };
    let found = setting.client.identify_drives(&request).await?;
    let full: Vec<IdentifiedDrive> = found.into_iter().filter(|drive| !drive.contents.is_empty()).collect();
    if full.is_empty() {
        return Ok(());
    }
    eprintln!("{}", output::identified(&full));
    confirm(false, &format!("Everything on {} of {} drives will be lost.", full.len(), drives.len()))
}

async fn list(setting: &Setting) -> Result<Outcome> {
    let pools = setting.client.list_pools().await?;
    setting.list(&pools, |pool| pool.name.clone(), output::pools)?;
    Ok(Outcome::Done)
}

async fn fetch(setting: &Setting, names: &[String]) -> Result<Vec<Pool>> {
    if names.is_empty() {
        return Ok(setting.client.list_pools().await?);
    }
    let mut pools = Vec::new();
    for name in names {
        pools.push(setting.client.get_pool(name).await?);
    }
    Ok(pools)
}

async fn status(setting: &Setting, names: &[String]) -> Result<Outcome> {
    let pools = fetch(setting, names).await?;
    let brief = |pool: &Pool| format!("{} {}", pool.name, output::word(&pool.health));
    setting.list(&pools, brief, output::pool_statuses)?;
    Ok(if pools.iter().all(is_well) { Outcome::Done } else { Outcome::Unwell })
}

fn is_well(pool: &Pool) -> bool {
    match pool.state {
        PoolState::Open => pool.health == Health::Healthy,
        PoolState::Closed | PoolState::Changing => true,
        PoolState::Unavailable => false,
    }
}

async fn watch(setting: &Setting, names: &[String]) -> Result<Outcome> {
    loop {
        let pools = fetch(setting, names).await?;
        let text = if setting.json { serde_json::to_string(&pools)? } else { output::pool_statuses(&pools) };
        if std::io::stdout().is_terminal() && !setting.json {
            // Home, and clear what is left of the last look.
            print!("\x1b[H\x1b[2J");
        }
        println!("{text}");
        std::io::stdout().flush().context("writing to standard output")?;
        tokio::time::sleep(WATCH).await;
    }
}

async fn open(setting: &Setting, name: &str, request: &OpenPool) -> Result<Outcome> {
    let started = setting.client.open_pool(name, request).await?;
    follow(&setting.client, started, setting.quiet).await?;
    let pool = setting.client.get_pool(name).await?;
    setting.done(&pool, |pool| {
        let how = pool.opened.as_ref().map(output::opening).unwrap_or_default();
        format!("pool '{name}' is open: {}; {how}", output::word(&pool.health))
    })?;
    Ok(Outcome::Done)
}

async fn close(setting: &Setting, name: &str, request: ClosePool) -> Result<Outcome> {
    let started = setting.client.close_pool(name, &request).await?;
    let ended = follow(&setting.client, started, setting.quiet).await?;
    setting.done(&ended, |_| {
        let after = if request.forget { " and forgotten" } else { "" };
        format!("pool '{name}' is closed{after}")
    })?;
    Ok(Outcome::Done)
}

async fn rebuild(
    setting: &Setting,
    name: &str,
    pause: bool,
    resume: bool,
    rate_limit: Option<Size>,
) -> Result<Outcome> {
    let paused = (pause || resume).then_some(pause);
    let request = ChangeRebuild { paused, rate_limit: rate_limit.map(Size::bytes) };
    let pool = setting.client.change_rebuild(name, &request).await?;
    setting.done(&pool, |pool| {
        let settings = pool.rebuild.as_ref().map(output::rebuild_settings).unwrap_or_default();
        format!("rebuild of pool '{name}': {settings}")
    })?;
    Ok(Outcome::Done)
}

async fn destroy(setting: &Setting, name: &str, yes: bool) -> Result<Outcome> {
    if !yes {
        let pool = setting.client.get_pool(name).await?;
        let holds = pool.space.as_ref().map_or_else(
            || "Everything in it".to_owned(),
            |space| format!("{} in {} volumes", Size(space.stored), space.volumes),
        );
        confirm(false, &format!("Pool '{name}' will be destroyed. {holds} will be lost."))?;
    }
    let started = setting.client.destroy_pool(name).await?;
    let ended = follow(&setting.client, started, setting.quiet).await?;
    setting.done(&ended, |_| format!("pool '{name}' is destroyed"))?;
    Ok(Outcome::Done)
}
