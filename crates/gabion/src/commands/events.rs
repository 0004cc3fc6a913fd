//! `gabion pool events`.

use std::time::Duration;

use anyhow::Result;
use api::types::EventQuery;

use super::{CommandContext, print};
use crate::failure::ExitReason;
use crate::output;

/// Interval between two requests of `--follow`.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

pub(super) async fn show(ctx: &CommandContext, name: &str, last: u32, follow: bool) -> Result<ExitReason> {
    let query = EventQuery { after: 0, last: Some(last as usize) };
    let mut events = ctx.client.list_events(name, &query).await?;
    if !follow {
        ctx.list(&events, output::event, output::events)?;
        return Ok(ExitReason::Success);
    }
    let mut newest = 0;
    loop {
        for event in &events {
            print(&if ctx.json { serde_json::to_string(event)? } else { output::event(event) })?;
            newest = event.number;
        }
        tokio::time::sleep(POLL_INTERVAL).await;
        let query = EventQuery { after: newest, last: None };
        events = ctx.client.list_events(name, &query).await?;
    }
}
