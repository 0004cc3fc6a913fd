//! Tracks the running uses of volumes and snapshots.

use std::cell::RefCell;
use std::collections::BTreeMap;

/// The uses of each volume and snapshot, by name.
#[derive(Default)]
pub(super) struct UseTracker(RefCell<BTreeMap<String, UseCounts>>);

#[derive(Clone, Copy, Default)]
struct UseCounts {
    running: u32,
    /// All uses so far, including the running ones.
    begun: u64,
}

/// A running use of a volume or snapshot. Dropping it ends the use.
pub(super) struct UseGuard<'a> {
    users: &'a UseTracker,
    name: String,
}

/// The number of uses of a volume or snapshot that had ended by some time.
#[derive(Clone, Copy)]
pub(super) struct UseMark(u64);

impl UseTracker {
    /// Begins a use of `name`.
    pub(super) fn begin(&self, name: &str) -> UseGuard<'_> {
        let mut uses = self.0.borrow_mut();
        let uses = uses.entry(name.to_owned()).or_default();
        uses.running += 1;
        uses.begun += 1;
        UseGuard { users: self, name: name.to_owned() }
    }

    fn of(&self, name: &str) -> UseCounts {
        self.0.borrow().get(name).copied().unwrap_or_default()
    }

    /// Returns true if `name` is in use.
    pub(super) fn is_used(&self, name: &str) -> bool {
        self.of(name).running > 0
    }

    /// Returns the current mark, for [`UseTracker::used_since`].
    pub(super) fn mark(&self, name: &str) -> UseMark {
        let UseCounts { running, begun } = self.of(name);
        UseMark(begun - u64::from(running))
    }

    /// Returns true if `name` was in use at any time since `mark`.
    pub(super) fn used_since(&self, name: &str, mark: UseMark) -> bool {
        self.of(name).begun > mark.0
    }
}

impl Drop for UseGuard<'_> {
    fn drop(&mut self) {
        if let Some(uses) = self.users.0.borrow_mut().get_mut(&self.name) {
            uses.running -= 1;
        }
    }
}
