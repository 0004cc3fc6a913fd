//! Who works on which volume or snapshot at the moment.

use std::cell::RefCell;
use std::collections::BTreeMap;

/// See the module.
#[derive(Default)]
pub(super) struct Users(RefCell<BTreeMap<String, Uses>>);

#[derive(Clone, Copy, Default)]
struct Uses {
    running: u32,
    /// Those that have ended included.
    begun: u64,
}

/// Somebody who works on a volume or snapshot, until this is dropped.
pub(super) struct User<'a> {
    users: &'a Users,
    name: String,
}

/// The uses of a volume or snapshot that had ended by some moment.
#[derive(Clone, Copy)]
pub(super) struct Mark(u64);

impl Users {
    /// Somebody begins to work on `name`.
    pub(super) fn begin(&self, name: &str) -> User<'_> {
        let mut uses = self.0.borrow_mut();
        let uses = uses.entry(name.to_owned()).or_default();
        uses.running += 1;
        uses.begun += 1;
        User { users: self, name: name.to_owned() }
    }

    fn of(&self, name: &str) -> Uses {
        self.0.borrow().get(name).copied().unwrap_or_default()
    }

    /// True if somebody works on `name`.
    pub(super) fn has(&self, name: &str) -> bool {
        self.of(name).running > 0
    }

    /// This moment, for [`Users::since`].
    pub(super) fn mark(&self, name: &str) -> Mark {
        let Uses { running, begun } = self.of(name);
        Mark(begun - u64::from(running))
    }

    /// True if somebody has worked on `name` at some time since `mark`.
    pub(super) fn since(&self, name: &str, mark: Mark) -> bool {
        self.of(name).begun > mark.0
    }
}

impl Drop for User<'_> {
    fn drop(&mut self) {
        if let Some(uses) = self.users.0.borrow_mut().get_mut(&self.name) {
            uses.running -= 1;
        }
    }
}
