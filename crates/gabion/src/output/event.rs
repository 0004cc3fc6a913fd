//! Formatting of the event log.

use api::types::{Event, Severity};

use super::time::utc;

/// Formats events, oldest first.
pub(crate) fn events(events: &[Event]) -> String {
    if events.is_empty() {
        return "no events".into();
    }
    events.iter().map(event).collect::<Vec<_>>().join("\n")
}

/// Formats an event on one line. A warning is marked with `!`, an error with `X`.
pub(crate) fn event(event: &Event) -> String {
    let mark = match event.severity {
        Severity::Info => ' ',
        Severity::Warning => '!',
        Severity::Error => 'X',
    };
    format!("{} {mark} {}", utc(event.time), event.message)
}
