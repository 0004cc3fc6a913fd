//! What users do while something in the background wants to know, and how long it takes them: by themselves, and beside pieces of that work,
//! wherever in the pool these are under way, since all of it shares the drives.
//!
//! Always true: each shard writes only its own counts of users. Must not know: who the users are, what is done in the background.

use std::ops::Sub;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use reactor::{Instant, Reactor};

use super::lately::{Counts, Lately, UsersLately};

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Users {
    /// How many want to know.
    watchers: AtomicU32,
    shards: Box<[Used]>,
    /// Pieces of background work that were begun, and those that are under way.
    pieces: AtomicU64,
    under_way: AtomicU32,
}

/// What users did in a shard, on a cache line of its own: each counts its own often.
#[repr(align(64))]
#[derive(Debug, Default)]
struct Used {
    begun: AtomicU64,
    by_themselves: Timed,
    beside_work: Timed,
    lately: Lately,
}

#[derive(Debug, Default)]
struct Timed {
    operations: AtomicU64,
    nanos: AtomicU64,
}

/// Operations that are over, and how long they took, all together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sum {
    pub(super) operations: u64,
    pub(super) nanos: u64,
}

/// What users had done at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Done {
    /// Operations begun.
    pub(super) begun: u64,
    /// Those of them that are over, and met no background work on the drives.
    pub(super) by_themselves: Sum,
    /// Those that met some.
    pub(super) beside_work: Sum,
}

/// An operation of a user. Dropped when it is over.
pub(crate) struct Use<'a> {
    users: &'a Users,
    used: &'a Used,
    at: Instant,
    /// Pieces begun before it; `None` if one was under way.
    pieces: Option<u64>,
}

impl Users {
    pub(super) fn new(shards: usize) -> Self {
        Self { shards: (0..shards).map(|_| Used::default()).collect(), ..Self::default() }
    }

    /// A user begins to read or write in this shard. `None` while nobody wants to know.
    pub(crate) fn begin(&self, shard: usize) -> Option<Use<'_>> {
        if self.watchers.load(Ordering::Relaxed) == 0 {
            return None;
        }
        self.begin_at(shard, Reactor::try_current()?.now())
    }

    /// As [`Users::begin`], at `at`.
    pub(super) fn begin_at(&self, shard: usize, at: Instant) -> Option<Use<'_>> {
        let used = self.shards.get(shard)?;
        add(&used.begun, 1);
        let is_quiet = self.under_way.load(Ordering::Relaxed) == 0;
        let pieces = is_quiet.then(|| self.pieces.load(Ordering::Relaxed));
        Some(Use { users: self, used, at, pieces })
    }

    /// Somebody wants to know, or no longer.
    pub(super) fn watch(&self, watches: bool) {
        if watches {
            self.watchers.fetch_add(1, Ordering::Relaxed);
        } else {
            self.watchers.fetch_sub(1, Ordering::Relaxed);
        }
    }

    pub(super) fn done(&self) -> Done {
        self.shards.iter().fold(Done::default(), |done, used| Done {
            begun: done.begun + used.begun.load(Ordering::Relaxed),
            by_themselves: used.by_themselves.added_to(done.by_themselves),
            beside_work: used.beside_work.added_to(done.beside_work),
        })
    }

    /// How long operations took lately, of those that somebody wanted to know of; `None` if there were none.
    pub(super) fn lately(&self, now: Instant) -> Option<UsersLately> {
        let mut counts = Counts::default();
        self.shards.iter().for_each(|used| used.lately.add_to(&mut counts, now));
        counts.told()
    }

    /// A piece of background work begins.
    pub(super) fn piece_begins(&self) {
        self.under_way.fetch_add(1, Ordering::Relaxed);
        self.pieces.fetch_add(1, Ordering::Relaxed);
    }

    /// A piece of background work is over.
    pub(super) fn piece_ends(&self) {
        self.under_way.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Done {
    /// Operations that are not over.
    pub(super) fn under_way(&self) -> u64 {
        self.begun.saturating_sub(self.by_themselves.operations + self.beside_work.operations)
    }
}

impl Sum {
    /// How long one took in the mean, in nanoseconds.
    #[allow(clippy::cast_precision_loss)]
    pub(super) fn mean(self) -> Option<f64> {
        (self.operations > 0).then(|| self.nanos as f64 / self.operations as f64)
    }
}

impl Sub for Sum {
    type Output = Self;
    fn sub(self, earlier: Self) -> Self {
        let operations = self.operations.saturating_sub(earlier.operations);
        Self { operations, nanos: self.nanos.saturating_sub(earlier.nanos) }
    }
}

impl Timed {
    fn added_to(&self, sum: Sum) -> Sum {
        let operations = sum.operations + self.operations.load(Ordering::Relaxed);
        Sum { operations, nanos: sum.nanos + self.nanos.load(Ordering::Relaxed) }
    }
}

impl Use<'_> {
    /// It is over.
    pub(super) fn end_at(&self, now: Instant) {
        let met_none = self.pieces == Some(self.users.pieces.load(Ordering::Relaxed));
        let timed = if met_none { &self.used.by_themselves } else { &self.used.beside_work };
        let took = u64::try_from(now.since(self.at).as_nanos()).unwrap_or(u64::MAX);
        add(&timed.nanos, took);
        add(&timed.operations, 1);
        self.used.lately.count(now, took);
    }
}

impl Drop for Use<'_> {
    fn drop(&mut self) {
        // At the end of a reactor nothing takes any time.
        self.end_at(Reactor::try_current().map_or(self.at, |reactor| reactor.now()));
    }
}

/// Nobody else writes it.
fn add(count: &AtomicU64, more: u64) {
    count.store(count.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
}
