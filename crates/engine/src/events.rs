//! Events of a pool, emitted from any part of it and written by the journal.
//!
//! Emitting an event neither waits nor fails. Must not know: how events are stored.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use format::limits::EVENT_TEXT_MAX;
use format::{DriveIndex, Event, EventKind};
use reactor::{Handle, Reactor};

use crate::pool::Journal;

/// The wall clock, in seconds since 1970. It may jump in either direction.
pub type WallClock = Arc<dyn Fn() -> u64 + Send + Sync>;

/// The queue of events that are not written yet. Shared by the reactors of a pool.
pub(crate) struct Events {
    now: WallClock,
    queued: Mutex<Vec<Event>>,
    /// Set when the pool is open; earlier events stay in the queue.
    journal: OnceLock<Handle<Journal>>,
}

impl Events {
    pub(crate) fn new(now: WallClock) -> Self {
        Self { now, queued: Mutex::default(), journal: OnceLock::new() }
    }

    /// Emits an event of the pool.
    pub(crate) fn emit(&self, kind: EventKind, amount: u64, text: &str) {
        self.queue(Event { seconds: (self.now)(), kind, drive: None, amount, text: truncate(text) });
    }

    /// Emits an event of a drive.
    pub(crate) fn emit_drive(&self, drive: DriveIndex, kind: EventKind, text: &str) {
        self.emit_drive_amount(drive, kind, 0, text);
    }

    /// Emits an event of a drive with an amount.
    pub(crate) fn emit_drive_amount(&self, drive: DriveIndex, kind: EventKind, amount: u64, text: &str) {
        let drive = Some(drive.get());
        self.queue(Event { seconds: (self.now)(), kind, drive, amount, text: truncate(text) });
    }

    /// Returns the time in seconds since 1970.
    pub(crate) fn now(&self) -> u64 {
        (self.now)()
    }

    fn queue(&self, event: Event) {
        self.queued.lock().unwrap_or_else(PoisonError::into_inner).push(event);
        if let Some(journal) = self.journal.get().cloned() {
            // A call fails only when the journal is gone, which has written all events by then.
            let write = async move {
                let _ = journal.call(|journal| async move { journal.write_queued().await }).await;
            };
            Reactor::current().spawn(write).detach();
        }
    }

    /// Takes the queued events.
    pub(crate) fn take_queued(&self) -> Vec<Event> {
        std::mem::take(&mut *self.queued.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Sets the journal, which is called for each event from now on.
    pub(crate) fn set_journal(&self, journal: Handle<Journal>) {
        // An `Events` is created for each opening, so this is set once.
        let _ = self.journal.set(journal);
    }
}

/// Truncates a text to the space of an event, at a character boundary.
fn truncate(text: &str) -> String {
    let mut end = text.len().min(EVENT_TEXT_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or_default().to_owned()
}
