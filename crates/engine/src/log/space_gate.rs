//! The decision whether a write waits for space, and for which event.
//!
//! A write class that finds no free segment waits for a checkpoint, which releases freed segments,
//! for the cleaner, or for the cleaners of the other shards; it is refused when none of them can
//! gain space. Always true: a class that the next checkpoint depends on never waits for one; a
//! class that gains no space is refused after a bounded number of attempts.
//!
//! Plain state and pure transitions: the log performs the returned steps. Must not know segments,
//! requests, tasks.

use super::request::{PerClass, WriteClass};
use crate::error::Error;

/// Number of failed attempts to get space, each followed by a checkpoint or cleaning, after which
/// requests are refused.
const ATTEMPTS_MAX: u32 = 64;

/// The write classes other than the checkpoint's.
pub(super) const NON_CHECKPOINT_CLASSES: [WriteClass; 4] =
    [WriteClass::User, WriteClass::Trim, WriteClass::Cold, WriteClass::Freeing];

/// The event that a write class waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SpaceWait {
    /// A checkpoint, which releases segments that were freed.
    Checkpoint,
    /// The cleaner of this shard.
    Cleaner,
    /// The cleaners of the other shards.
    OtherShards,
}

/// The decision about a write class without space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GateDecision {
    /// The requests of the class wait.
    Wait(SpaceWait),
    /// The requests of the class are refused.
    Refuse,
}

/// A decision, and the steps that go with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct GateStep {
    pub(super) decision: GateDecision,
    /// The cleaner must look for work again.
    pub(super) wake_cleaner: bool,
    /// The other shards must be asked to clean. The answer is passed to
    /// [`SpaceGate::peers_answered`].
    pub(super) ask_peers: bool,
}

/// The state of the request for space to the other shards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum PeerSpace {
    /// The other shards were not asked to clean.
    #[default]
    NotAsked,
    /// The other shards are cleaning.
    Pending,
    /// The other shards gained no space.
    Exhausted,
}

/// Decides which write classes wait for space. See the module documentation.
#[derive(Default)]
pub(super) struct SpaceGate {
    waits: PerClass<Option<SpaceWait>>,
    /// Failed attempts to get space since the class's last record.
    attempts: PerClass<u32>,
    /// The cleaner gains nothing: waiting requests are refused unless other shards gain space.
    cleaner_exhausted: bool,
    peers: PeerSpace,
    /// The error of the last checkpoint; while it is set, no class waits for a checkpoint.
    checkpoint_failure: Option<Error>,
    /// Moved data may use the checkpoint reserve, and does not wait for a checkpoint.
    compacting: bool,
    /// Checkpoints and cleaning have ended: no class waits.
    reclaim_ended: bool,
}

impl SpaceGate {
    /// Returns the event that a write class waits for; `None` if it may be served.
    pub(super) fn wait_of(&self, write_class: WriteClass) -> Option<SpaceWait> {
        self.waits.of(write_class).filter(|_| !self.is_needed_by_checkpoint(write_class))
    }

    /// Returns true if any write class waits.
    pub(super) fn is_waited_for(&self) -> bool {
        self.waits.iter().any(Option::is_some)
    }

    /// Returns true if a write class has found no space since its last record.
    pub(super) fn is_urgent(&self) -> bool {
        self.attempts.iter().any(|attempts| *attempts > 0)
    }

    /// Returns the error of the last checkpoint, if it failed and no space was freed since.
    pub(super) fn checkpoint_failure(&self) -> Option<&Error> {
        self.checkpoint_failure.as_ref()
    }

    /// Returns true while moved data may use the checkpoint reserve.
    pub(super) fn is_compacting(&self) -> bool {
        self.compacting
    }

    /// Sets whether moved data may use the checkpoint reserve.
    pub(super) fn set_compacting(&mut self, compacting: bool) {
        self.compacting = compacting;
    }

    /// Returns true for write classes that the next checkpoint waits for: they must not wait for
    /// it. During a compaction it waits for moved data.
    fn is_needed_by_checkpoint(&self, write_class: WriteClass) -> bool {
        write_class == WriteClass::Checkpoint || write_class == WriteClass::Cold && self.compacting
    }

    /// Decides about a class that can be served only after a checkpoint. All classes of the same
    /// or a lower priority wait with it.
    pub(super) fn needs_checkpoint(&mut self, write_class: WriteClass) -> GateStep {
        let refused = self.is_needed_by_checkpoint(write_class)
            || self.checkpoint_failure.is_some()
            || self.reclaim_ended;
        if refused {
            return GateStep::of(GateDecision::Refuse);
        }
        let needs_less = |other: &&WriteClass| other.priority() <= write_class.priority();
        for other in NON_CHECKPOINT_CLASSES.iter().filter(needs_less) {
            *self.waits.of_mut(*other) = Some(SpaceWait::Checkpoint);
        }
        GateStep::of(GateDecision::Wait(SpaceWait::Checkpoint))
    }

    /// Decides about a class that found no free segment. `is_freeing` returns true if freed
    /// segments become usable with the next checkpoint; it is not called if that is irrelevant.
    pub(super) fn no_free_segment(
        &mut self,
        write_class: WriteClass,
        is_freeing: impl FnOnce() -> bool,
    ) -> GateStep {
        if self.reclaim_ended {
            return GateStep::of(GateDecision::Refuse);
        }
        // The cleaner's own writes, and those of a checkpoint, cannot wait for the cleaner.
        let cleanable = !matches!(write_class, WriteClass::Checkpoint | WriteClass::Cold);
        let is_freeing = is_freeing();
        if cleanable && !is_freeing && self.peers == PeerSpace::Pending {
            // The answer of the other shards retries; attempts before it do not count.
            return self.wait(write_class, SpaceWait::OtherShards);
        }
        let attempts = self.attempts.of_mut(write_class);
        *attempts += 1;
        match *attempts {
            // The cleaner has to look again for this request before its verdict counts.
            1 => self.cleaner_exhausted = false,
            // Headers and checkpoints use up all that cleaning gains.
            attempts if attempts > ATTEMPTS_MAX => return GateStep::of(GateDecision::Refuse),
            _ => {}
        }
        let step = if is_freeing {
            self.needs_checkpoint(write_class)
        } else if cleanable {
            self.needs_cleaner(write_class)
        } else {
            GateStep::of(GateDecision::Refuse)
        };
        GateStep { wake_cleaner: cleanable, ..step }
    }

    /// Decides about a class for which only cleaning gains space.
    fn needs_cleaner(&mut self, write_class: WriteClass) -> GateStep {
        if !std::mem::take(&mut self.cleaner_exhausted) {
            return self.wait(write_class, SpaceWait::Cleaner);
        }
        match self.peers {
            PeerSpace::NotAsked => {
                self.peers = PeerSpace::Pending;
                GateStep { ask_peers: true, ..self.wait(write_class, SpaceWait::OtherShards) }
            }
            PeerSpace::Pending => self.wait(write_class, SpaceWait::OtherShards),
            PeerSpace::Exhausted => {
                self.peers = PeerSpace::NotAsked;
                GateStep::of(GateDecision::Refuse)
            }
        }
    }

    fn wait(&mut self, write_class: WriteClass, wait: SpaceWait) -> GateStep {
        *self.waits.of_mut(write_class) = Some(wait);
        GateStep::of(GateDecision::Wait(wait))
    }

    /// The other shards have cleaned; `gained` if they gained space. Every class retries.
    pub(super) fn peers_answered(&mut self, gained: bool) {
        self.peers = if gained { PeerSpace::NotAsked } else { PeerSpace::Exhausted };
        self.cleaner_exhausted = !gained;
        self.retry();
    }

    /// A record of a class was written, or its requests were refused.
    pub(super) fn class_was_served(&mut self, write_class: WriteClass) {
        *self.attempts.of_mut(write_class) = 0;
    }

    /// A checkpoint has ended. Every class retries.
    pub(super) fn checkpoint_ended(&mut self, failure: Option<Error>) {
        self.checkpoint_failure = failure;
        self.retry();
    }

    /// Space was freed. Every class retries. Returns true if a checkpoint failed before, and
    /// should be tried again.
    pub(super) fn space_freed(&mut self) -> bool {
        self.retry();
        self.checkpoint_failure.take().is_some()
    }

    /// The cleaner has gained about a segment, or cannot gain any. In the second case, every class
    /// retries.
    pub(super) fn cleaning_ended(&mut self, gained: bool) {
        self.cleaner_exhausted = !gained;
        if !gained {
            self.retry();
        }
    }

    /// Checkpoints and cleaning end. Every class retries, and is refused if it finds no space.
    pub(super) fn end_reclaim(&mut self) {
        self.reclaim_ended = true;
        self.retry();
    }

    /// Lets every class retry.
    pub(super) fn retry(&mut self) {
        self.waits = PerClass::default();
    }
}

impl GateStep {
    fn of(decision: GateDecision) -> Self {
        Self { decision, wake_cleaner: false, ask_peers: false }
    }
}

#[cfg(test)]
#[path = "space_gate_tests.rs"]
mod tests;
