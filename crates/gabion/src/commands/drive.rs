//! `gabion drive`.

use std::path::PathBuf;

use anyhow::Result;
use server::offline;
use server::wire::{DriveState, Pool, PoolDrive};

use super::{Setting, confirm, with_daemon};
use crate::cli::{DriveCommand, Global};
use crate::client::segment;
use crate::failure::Outcome;
use crate::output;

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
        confirm(false, &format!("Drive {drive}{name} of pool '{pool}' will be taken out of use for good."))?;
    }
    let after: Pool = setting.client.post(&format!("{path}/drives/{drive}/fail"), &()).await?;
    setting.done(&after, |pool| {
        let left = pool.drives.iter().filter(|drive| drive.state == DriveState::Online).count();
        format!(
            "drive {drive} of pool '{}' is out of use; {left} of {} drives are left",
            pool.name,
            pool.drives.len()
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
