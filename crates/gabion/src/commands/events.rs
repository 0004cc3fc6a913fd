//! `gabion pool events`.

use std::time::Duration;

use anyhow::Result;
use api::types::Event;

use super::pool::path_of;
use super::{Setting, print};
use crate::failure::Outcome;
use crate::output;

/// Pause between two looks of `--follow`.
const AGAIN: Duration = Duration::from_secs(1);

pub(super) async fn show(setting: &Setting, name: &str, last: u32, follow: bool) -> Result<Outcome> {
    let path = format!("{}/events", path_of(name));
    let mut events: Vec<Event> = setting.client.get(&format!("{path}?most={last}")).await?;
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
        tokio::time::sleep(AGAIN).await;
        events = setting.client.get(&format!("{path}?after={newest}")).await?;
    }
}
