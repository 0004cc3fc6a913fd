//! `gabion pool scrub`.

use std::time::Duration;

use anyhow::Result;
use api::types::{ChangeScrub, Pool, RepairState};

use super::Setting;
use super::pool::path_of;
use crate::failure::Outcome;
use crate::output;
use crate::progress::Line;

/// Pause between two looks.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// What else is to be done.
pub(super) struct Asked {
    pub(super) wait: bool,
    pub(super) cancel: bool,
}

/// Changes how a pool is scrubbed, or begins with it.
///
/// # Errors
/// Why it failed.
pub(super) async fn run(setting: &Setting, name: &str, change: ChangeScrub, asked: Asked) -> Result<Outcome> {
    let path = format!("{}/scrub", path_of(name));
    if asked.cancel {
        let pool: Pool = setting.client.delete(&path).await?;
        setting.done(&pool, |_| format!("no scrub of pool '{name}' is under way"))?;
        return Ok(Outcome::Done);
    }
    let mut changed = None;
    if change != ChangeScrub::default() {
        changed = Some(setting.client.patch::<Pool>(&path, &change).await?);
    }
    if let Some(pool) = changed.filter(|_| !asked.wait) {
        setting.done(&pool, |pool| {
            let shown = pool.scrub.as_ref().map(output::scrub_settings).unwrap_or_default();
            format!("scrubbing of pool '{name}': {shown}")
        })?;
        return Ok(Outcome::Done);
    }
    let pool: Pool = setting.client.post(&path, &()).await?;
    if asked.wait {
        return until_ended(setting, name).await;
    }
    setting.done(&pool, |_| {
        format!("pool '{name}' is being scrubbed: 'gabion pool status {name}' shows how far")
    })?;
    Ok(Outcome::Done)
}

/// Waits until a scrub has ended, and what it found is written anew, or that does not go on.
async fn until_ended(setting: &Setting, name: &str) -> Result<Outcome> {
    let mut line = Line::new(setting.quiet);
    loop {
        let pool: Pool = setting.client.get(&path_of(name)).await?;
        let Some(scrub) = &pool.scrub else { anyhow::bail!("pool '{name}' is not open any more") };
        if scrub.current.is_some() && scrub.paused {
            anyhow::bail!("the scrub is paused: 'gabion pool scrub {name} --resume'");
        }
        let heals = scrub.unhealed > 0
            && pool
                .repair
                .as_ref()
                .is_some_and(|repair| matches!(repair.state, RepairState::Working | RepairState::Idle));
        if scrub.current.is_none() && !heals {
            drop(line);
            let lost = scrub.last.as_ref().map_or(0, |last| last.lost);
            let well = scrub.unhealed == 0 && lost == 0;
            setting.done(&pool, |pool| {
                let shown = pool.scrub.as_ref().map(output::scrub).unwrap_or_default();
                format!("scrub of pool '{name}': {shown}")
            })?;
            return Ok(if well { Outcome::Done } else { Outcome::Unwell });
        }
        line.show(&output::scrub(scrub));
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}
