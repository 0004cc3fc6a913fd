//! What happened to a pool, said from anywhere in it; the journal writes it down.
//!
//! Must not know: what becomes of it. Whoever says something neither waits nor fails.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use format::limits::EVENT_TEXT_MAX;
use format::{DriveIndex, Event, EventKind};
use reactor::{Handle, Reactor};

use crate::pool::Journal;

/// The time of day, in seconds since 1970, which may jump in either direction.
pub type WallClock = Arc<dyn Fn() -> u64 + Send + Sync>;

/// See the module. Shared by the reactors of a pool.
pub(crate) struct Events {
    now: WallClock,
    queued: Mutex<Vec<Event>>,
    /// Set when the pool is open; what is said before waits.
    journal: OnceLock<Handle<Journal>>,
}

impl Events {
    pub(crate) fn new(now: WallClock) -> Self {
        Self { now, queued: Mutex::default(), journal: OnceLock::new() }
    }

    /// Says what happened.
    pub(crate) fn say(&self, kind: EventKind, amount: u64, text: &str) {
        self.queue(Event { seconds: (self.now)(), kind, drive: None, amount, text: short(text) });
    }

    /// Says what happened to a drive.
    pub(crate) fn say_of(&self, drive: DriveIndex, kind: EventKind, text: &str) {
        self.say_much_of(drive, kind, 0, text);
    }

    /// As [`Events::say_of`], with how much.
    pub(crate) fn say_much_of(&self, drive: DriveIndex, kind: EventKind, amount: u64, text: &str) {
        let drive = Some(drive.get());
        self.queue(Event { seconds: (self.now)(), kind, drive, amount, text: short(text) });
    }

    /// Seconds since 1970.
    pub(crate) fn now(&self) -> u64 {
        (self.now)()
    }

    fn queue(&self, event: Event) {
        self.queued.lock().unwrap_or_else(PoisonError::into_inner).push(event);
        if let Some(journal) = self.journal.get().cloned() {
            // A journal that is gone has written what the pool's closing had to say.
            let write = async move {
                let _ = journal.call(|journal| async move { journal.write_queued().await }).await;
            };
            Reactor::current().spawn(write).detach();
        }
    }

    /// Takes what was said since.
    pub(crate) fn take(&self) -> Vec<Event> {
        std::mem::take(&mut *self.queued.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// From now on the journal is told as soon as there is something.
    pub(crate) fn tell(&self, journal: Handle<Journal>) {
        // There is one for each opening.
        let _ = self.journal.set(journal);
    }
}

/// As much of a text as an event has room for.
fn short(text: &str) -> String {
    let mut end = text.len().min(EVENT_TEXT_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or_default().to_owned()
}
