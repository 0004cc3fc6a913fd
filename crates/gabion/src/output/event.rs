//! Events of pools.

use api::types::{Event, Severity};

use super::time::utc;

/// A list of events, oldest first.
pub(crate) fn events(events: &[Event]) -> String {
    if events.is_empty() {
        return "no events".into();
    }
    events.iter().map(event).collect::<Vec<_>>().join("\n")
}

/// An event on a line.
pub(crate) fn event(event: &Event) -> String {
    let mark = match event.severity {
        Severity::Info => ' ',
        Severity::Warning => '!',
        Severity::Error => 'X',
    };
    format!("{} {mark} {}", utc(event.time), event.message)
}
