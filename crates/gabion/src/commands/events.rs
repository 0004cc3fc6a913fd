//! `gabion pool events`.

use std::time::Duration;

use anyhow::Result;
use api::types::EventQuery;

use super::{Setting, print};
use crate::failure::Outcome;
use crate::output;

/// Interval between two requests of `--follow`.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

pub(super) async fn show(setting: &Setting, name: &str, last: u32, follow: bool) -> Result<Outcome> {
    let query = EventQuery { after: 0, last: Some(last as usize) };
    let mut events = setting.client.list_events(name, &query).await?;
    if !follow {
        setting.list(&events, output::event, output::events)?;
        return Ok(Outcome::Done);
    }
    let mut newest = 0;
    loop {
        for event in &events {
            print(&if setting.json { serde_json::to_string(event)? } else { output::event(event) })?;
            newest = event.number;
        }
        tokio::time::sleep(POLL_INTERVAL).await;
        let query = EventQuery { after: newest, last: None };
        events = setting.client.list_events(name, &query).await?;
    }
}
