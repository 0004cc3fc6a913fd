//! `gabion pool scrub`.

use std::time::Duration;

use anyhow::Result;
use api::types::{ChangeScrub, RebuildState};

use super::Setting;
use crate::failure::Outcome;
use crate::output;
use crate::progress::Line;

/// Interval between two requests for the state of a scrub.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// Options of the command that are not settings of the pool.
pub(super) struct ScrubOptions {
    pub(super) wait: bool,
    pub(super) cancel: bool,
}

/// Changes the settings of scrubbing, or starts a scrub.
///
/// # Errors
/// The error of the daemon.
pub(super) async fn run(
    setting: &Setting,
    name: &str,
    change: ChangeScrub,
    options: ScrubOptions,
) -> Result<Outcome> {
    if options.cancel {
        let pool = setting.client.cancel_scrub(name).await?;
        setting.done(&pool, |_| format!("scrub of pool '{name}' cancelled"))?;
        return Ok(Outcome::Done);
    }
    let mut changed = None;
    if change != ChangeScrub::default() {
        changed = Some(setting.client.change_scrub(name, &change).await?);
    }
    if let Some(pool) = changed.filter(|_| !options.wait) {
        setting.done(&pool, |pool| {
            let shown = pool.scrub.as_ref().map(output::scrub_settings).unwrap_or_default();
            format!("scrubbing of pool '{name}': {shown}")
        })?;
        return Ok(Outcome::Done);
    }
    let pool = setting.client.start_scrub(name).await?;
    if options.wait {
        return until_finished(setting, name).await;
    }
    setting.done(&pool, |_| {
        format!("scrub of pool '{name}' started; 'gabion pool status {name}' shows the progress")
    })?;
    Ok(Outcome::Done)
}

/// Waits until a scrub has ended and damaged blocks are rewritten, or until there is no progress.
async fn until_finished(setting: &Setting, name: &str) -> Result<Outcome> {
    let mut line = Line::new(setting.quiet);
    loop {
        let pool = setting.client.get_pool(name).await?;
        let Some(scrub) = &pool.scrub else { anyhow::bail!("pool '{name}' is not open any more") };
        if scrub.current.is_some() && scrub.paused {
            anyhow::bail!("the scrub is paused: 'gabion pool scrub {name} --resume'");
        }
        let repairs = scrub.unrepaired > 0
            && pool
                .rebuild
                .as_ref()
                .is_some_and(|rebuild| matches!(rebuild.state, RebuildState::Working | RebuildState::Idle));
        if scrub.current.is_none() && !repairs {
            drop(line);
            let lost = scrub.last.as_ref().map_or(0, |last| last.lost);
            let well = scrub.unrepaired == 0 && lost == 0;
            setting.done(&pool, |pool| {
                let shown = pool.scrub.as_ref().map(output::scrub).unwrap_or_default();
                format!("scrub of pool '{name}': {shown}")
            })?;
            return Ok(if well { Outcome::Done } else { Outcome::Unwell });
        }
        line.show(&output::scrub(scrub));
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}
