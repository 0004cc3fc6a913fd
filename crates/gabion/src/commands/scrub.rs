//! `gabion pool scrub`.

use std::time::Duration;

use anyhow::Result;
use api::types::{ChangeScrub, RebuildState};

use super::CommandContext;
use crate::failure::ExitReason;
use crate::output;
use crate::progress::StatusLine;

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
    ctx: &CommandContext,
    name: &str,
    change: ChangeScrub,
    options: ScrubOptions,
) -> Result<ExitReason> {
    if options.cancel {
        let pool = ctx.client.cancel_scrub(name).await?;
        ctx.done(&pool, |_| format!("scrub of pool '{name}' cancelled"))?;
        return Ok(ExitReason::Success);
    }
    let mut changed = None;
    if change != ChangeScrub::default() {
        changed = Some(ctx.client.change_scrub(name, &change).await?);
    }
    if let Some(pool) = changed.filter(|_| !options.wait) {
        ctx.done(&pool, |pool| {
            let shown = pool.scrub.as_ref().map(output::scrub_settings).unwrap_or_default();
            format!("scrubbing of pool '{name}': {shown}")
        })?;
        return Ok(ExitReason::Success);
    }
    let pool = ctx.client.start_scrub(name).await?;
    if options.wait {
        return until_finished(ctx, name).await;
    }
    ctx.done(&pool, |_| {
        format!("scrub of pool '{name}' started; 'gabion pool status {name}' shows the progress")
    })?;
    Ok(ExitReason::Success)
}

/// Waits until a scrub has ended and damaged blocks are rewritten, or until there is no progress.
async fn until_finished(ctx: &CommandContext, name: &str) -> Result<ExitReason> {
    let mut line = StatusLine::new(ctx.quiet);
    loop {
        let pool = ctx.client.get_pool(name).await?;
        let Some(scrub) = &pool.scrub else { anyhow::bail!("pool '{name}' was closed during the scrub") };
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
            let healthy = scrub.unrepaired == 0 && lost == 0;
            ctx.done(&pool, |pool| {
                let shown = pool.scrub.as_ref().map(output::scrub).unwrap_or_default();
                format!("scrub of pool '{name}': {shown}")
            })?;
            return Ok(if healthy { ExitReason::Success } else { ExitReason::Unhealthy });
        }
        line.show(&output::scrub(scrub));
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}
