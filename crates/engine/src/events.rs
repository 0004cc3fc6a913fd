//! Events of a pool, emitted from any part of it and written by the journal.
//!
//! Emitting an event neither waits nor fails. Must not know: how events are stored.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use format::limits::EVENT_TEXT_MAX;
use format::{DriveIndex, Event, EventKind};

/// The wall clock, in seconds since 1970. It may jump in either direction.
pub type WallClock = Arc<dyn Fn() -> u64 + Send + Sync>;

/// The queue of events that are not written yet. Shared by the reactors of a pool.
pub(crate) struct Events {
    now: WallClock,
    queued: Mutex<Vec<Event>>,
    /// Starts to write the queued events. Set when the pool is open; earlier events stay in the
    /// queue.
    start_write: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

impl Events {
    pub(crate) fn new(now: WallClock) -> Self {
        Self { now, queued: Mutex::default(), start_write: OnceLock::new() }
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
        if let Some(start_write) = self.start_write.get() {
            start_write();
        }
    }

    /// Takes the queued events.
    pub(crate) fn take_queued(&self) -> Vec<Event> {
        std::mem::take(&mut *self.queued.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Sets the function that starts to write the queued events. It is called for each event from
    /// now on, on the reactor that emits the event.
    pub(crate) fn set_writer(&self, start_write: impl Fn() + Send + Sync + 'static) {
        // An `Events` is created for each opening, so this is set once.
        let _ = self.start_write.set(Box::new(start_write));
    }
}

/// Truncates a text to the space of an event, at a character boundary.
fn truncate(text: &str) -> String {
    let mut end = text.len().min(EVENT_TEXT_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.split_at(end).0.to_owned()
}
