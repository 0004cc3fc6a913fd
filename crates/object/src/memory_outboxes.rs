//! The outboxes of the store in memory.

use std::collections::BTreeMap;

use crate::events::{ObjectEvent, OutboxInfo};

/// The outboxes by target.
#[derive(Default)]
pub(crate) struct MemoryOutboxes {
    /// The newest number of an event.
    last_event: u64,
    /// The largest number of events that wait for a target.
    max: u64,
    outboxes: BTreeMap<String, MemoryOutbox>,
}

/// The events of a target, and the number of dropped ones.
#[derive(Default)]
struct MemoryOutbox {
    events: Vec<ObjectEvent>,
    dropped: u64,
}

impl MemoryOutboxes {
    pub(crate) fn new(max: u64) -> Self {
        Self { max, ..Self::default() }
    }

    /// Appends events for their targets, or counts those that find an outbox full.
    pub(crate) fn append(&mut self, events: Vec<(String, ObjectEvent)>) {
        for (target, event) in events {
            let outbox = self.outboxes.entry(target).or_default();
            if outbox.events.len() as u64 >= self.max {
                outbox.dropped += 1;
                continue;
            }
            self.last_event += 1;
            outbox.events.push(ObjectEvent { number: self.last_event, ..event });
        }
    }

    pub(crate) fn acknowledge(&mut self, target: &str, through: u64) {
        if let Some(outbox) = self.outboxes.get_mut(target) {
            outbox.events.retain(|event| event.number > through);
        }
    }

    pub(crate) fn delete(&mut self, target: &str) {
        self.outboxes.remove(target);
    }

    pub(crate) fn infos(&self) -> Vec<OutboxInfo> {
        let info = |(target, outbox): (&String, &MemoryOutbox)| OutboxInfo {
            target: target.clone(),
            pending: outbox.events.len() as u64,
            dropped: outbox.dropped,
        };
        self.outboxes.iter().map(info).collect()
    }

    pub(crate) fn events(&self, target: &str, limit: usize) -> Vec<ObjectEvent> {
        let events = self.outboxes.get(target).map_or(&[][..], |outbox| &outbox.events);
        events.iter().take(limit).cloned().collect()
    }
}
