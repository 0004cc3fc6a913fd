//! The decision whether a write waits for space, and for which event.
//!
//! A write class that finds no free segment waits for a checkpoint, which releases freed segments,
//! for the cleaner, or for the cleaners of the other shards; it is refused when none of them can
//! gain space. Always true: a class that the next checkpoint depends on never waits for one; a
//! class that gains no space is refused after a bounded number of attempts; the next write or trim
//! of a class that was refused has fewer, until one is written.
//!
//! Plain state and pure transitions: the log performs the returned steps. Must not know segments,
//! requests, tasks.

use super::commit_queue::NON_CHECKPOINT_CLASSES;
use super::request::{PerClass, WriteClass};
use crate::error::Error;

/// Number of failed attempts to get space, each followed by a checkpoint or cleaning, after which
/// requests are refused.
const ATTEMPTS_MAX: u32 = 64;
/// Number of rounds after which user data and trims are refused if requests of the class were
/// refused before. A round ends with a checkpoint, or with the answer of the cleaner or of the
/// other shards that they gain nothing. Enough to find space that was freed since then, and cheap
/// for a full pool that refuses request after request. Deletions and the catalogue have no such
/// limit: they are few.
const ROUNDS_AFTER_REFUSAL: u32 = 4;

/// The access of a write class to space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum SpaceState {
    /// Its requests may be served.
    #[default]
    Open,
    /// They wait for a checkpoint, which releases segments that were freed.
    WaitForCheckpoint,
    /// They wait for the cleaner of this shard.
    WaitForCleaner,
    /// They wait for the cleaners of the other shards, which were asked to free space.
    AskOtherShards,
    /// They are refused. Only a decision: the class is open for the requests after them.
    Refuse,
}

/// A decision, and the steps that go with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct GateStep {
    /// The class's state from now on; never [`SpaceState::Open`].
    pub(super) decision: SpaceState,
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

/// The attempts of a write class to get space.
#[derive(Clone, Copy, Debug, Default)]
struct Attempts {
    /// Failed attempts since the class's last record or refusal.
    failed: u32,
    /// Rounds that ended since then. Space that other shards free begins an attempt and ends no
    /// round.
    rounds: u32,
    /// Requests were refused after the last attempt, and none was written since.
    was_refused: bool,
}

impl Attempts {
    /// Counts a failed attempt; returns true if it was one too many.
    fn fail(&mut self, write_class: WriteClass) -> bool {
        self.failed += 1;
        let is_limited = self.was_refused && matches!(write_class, WriteClass::User | WriteClass::Trim);
        let exceeded = self.failed > ATTEMPTS_MAX || is_limited && self.rounds >= ROUNDS_AFTER_REFUSAL;
        self.was_refused |= exceeded;
        exceeded
    }
}

/// Decides which write classes wait for space. See the module documentation.
#[derive(Default)]
pub(super) struct SpaceGate {
    /// Never [`SpaceState::Refuse`].
    states: PerClass<SpaceState>,
    attempts: PerClass<Attempts>,
    /// The cleaner gains nothing: waiting requests are refused unless other shards gain space.
    cleaner_exhausted: bool,
    peers: PeerSpace,
    /// The error of the last checkpoint; while it is set, no class waits for a checkpoint.
    checkpoint_failure: Option<Error>,
    /// While set, moved data may use the checkpoint reserve, and does not wait for a checkpoint:
    /// the number of segments that it may still open there.
    compaction: Option<u64>,
    /// Number of times that a compaction needed more segments than its plan.
    compaction_overruns: u64,
    /// Checkpoints and cleaning have ended: no class waits.
    reclaim_ended: bool,
}

impl SpaceGate {
    /// Returns the state of a write class.
    pub(super) fn state_of(&self, write_class: WriteClass) -> SpaceState {
        if self.is_needed_by_checkpoint(write_class) {
            SpaceState::Open
        } else {
            *self.states.of(write_class)
        }
    }

    /// Returns true if any write class waits.
    pub(super) fn is_waited_for(&self) -> bool {
        self.states.iter().any(|state| *state != SpaceState::Open)
    }

    /// Returns true if a write class has found no space since its last record.
    pub(super) fn is_urgent(&self) -> bool {
        self.attempts.iter().any(|attempts| attempts.failed > 0)
    }

    /// Returns the error of the last checkpoint, if it failed and no space was freed since.
    pub(super) fn checkpoint_failure(&self) -> Option<&Error> {
        self.checkpoint_failure.as_ref()
    }

    /// Returns true while moved data may use the checkpoint reserve.
    pub(super) fn is_compacting(&self) -> bool {
        self.compaction.is_some()
    }

    /// Lets moved data use the checkpoint reserve, and open up to `segments` segments there.
    pub(super) fn begin_compaction(&mut self, segments: u64) {
        assert!(self.compaction.is_none(), "S4: one compaction runs at a time");
        self.compaction = Some(segments);
    }

    /// Ends the access of moved data to the checkpoint reserve.
    pub(super) fn end_compaction(&mut self) {
        self.compaction = None;
    }

    /// Takes one of the segments that moved data may open in the checkpoint reserve. Returns false
    /// if none is left: the compaction has used what its plan counted.
    pub(super) fn take_compaction_segment(&mut self) -> bool {
        match &mut self.compaction {
            Some(left) if *left > 0 => {
                *left -= 1;
                true
            }
            _ => {
                self.compaction_overruns += 1;
                false
            }
        }
    }

    /// Returns the number of times that a compaction needed more segments than its plan.
    pub(super) fn compaction_overruns(&self) -> u64 {
        self.compaction_overruns
    }

    /// Returns true for write classes that the next checkpoint waits for: they must not wait for
    /// it. During a compaction it waits for moved data.
    fn is_needed_by_checkpoint(&self, write_class: WriteClass) -> bool {
        write_class == WriteClass::Checkpoint || write_class == WriteClass::Cold && self.is_compacting()
    }

    /// Decides about a class that can be served only after a checkpoint. All classes of the same
    /// or a lower priority wait with it.
    pub(super) fn needs_checkpoint(&mut self, write_class: WriteClass) -> GateStep {
        let refused = self.is_needed_by_checkpoint(write_class)
            || self.checkpoint_failure.is_some()
            || self.reclaim_ended;
        if refused {
            return GateStep::of(SpaceState::Refuse);
        }
        let needs_less = |other: &&WriteClass| other.priority() <= write_class.priority();
        for other in NON_CHECKPOINT_CLASSES.iter().filter(needs_less) {
            *self.states.of_mut(*other) = SpaceState::WaitForCheckpoint;
        }
        GateStep::of(SpaceState::WaitForCheckpoint)
    }

    /// Decides about a class that found no free segment. `is_freeing` returns true if freed
    /// segments become usable with the next checkpoint; it is not called if that is irrelevant.
    pub(super) fn no_free_segment(
        &mut self,
        write_class: WriteClass,
        is_freeing: impl FnOnce() -> bool,
    ) -> GateStep {
        if self.reclaim_ended {
            return GateStep::of(SpaceState::Refuse);
        }
        // The cleaner's own writes, and those of a checkpoint, cannot wait for the cleaner.
        let cleanable = !matches!(write_class, WriteClass::Checkpoint | WriteClass::Cold);
        let is_freeing = is_freeing();
        if cleanable && !is_freeing && self.peers == PeerSpace::Pending {
            // The answer of the other shards retries; attempts before it do not count.
            return self.wait(write_class, SpaceState::AskOtherShards);
        }
        let attempts = self.attempts.of_mut(write_class);
        if attempts.fail(write_class) {
            // Headers and checkpoints use up all that cleaning gains.
            return GateStep::of(SpaceState::Refuse);
        }
        if attempts.failed == 1 {
            // The cleaner has to look again for this request before its verdict counts.
            self.cleaner_exhausted = false;
        }
        let step = if is_freeing {
            self.needs_checkpoint(write_class)
        } else if cleanable {
            self.needs_cleaner(write_class)
        } else {
            GateStep::of(SpaceState::Refuse)
        };
        GateStep { wake_cleaner: cleanable, ..step }
    }

    /// Decides about a class for which only cleaning gains space.
    fn needs_cleaner(&mut self, write_class: WriteClass) -> GateStep {
        if !std::mem::take(&mut self.cleaner_exhausted) {
            return self.wait(write_class, SpaceState::WaitForCleaner);
        }
        match self.peers {
            PeerSpace::NotAsked => {
                self.peers = PeerSpace::Pending;
                GateStep { ask_peers: true, ..self.wait(write_class, SpaceState::AskOtherShards) }
            }
            PeerSpace::Pending => self.wait(write_class, SpaceState::AskOtherShards),
            PeerSpace::Exhausted => {
                self.peers = PeerSpace::NotAsked;
                GateStep::of(SpaceState::Refuse)
            }
        }
    }

    fn wait(&mut self, write_class: WriteClass, wait: SpaceState) -> GateStep {
        assert!(!matches!(wait, SpaceState::Open | SpaceState::Refuse), "S4: a class waits for an event");
        *self.states.of_mut(write_class) = wait;
        GateStep::of(wait)
    }

    /// The other shards have cleaned; `gained` if they gained space. Every class retries.
    pub(super) fn peers_answered(&mut self, gained: bool) {
        self.peers = if gained { PeerSpace::NotAsked } else { PeerSpace::Exhausted };
        self.cleaner_exhausted = !gained;
        self.end_round();
        self.retry();
    }

    /// A record of a class was written.
    pub(super) fn class_was_served(&mut self, write_class: WriteClass) {
        *self.attempts.of_mut(write_class) = Attempts::default();
    }

    /// The waiting requests of a class were refused.
    pub(super) fn class_was_refused(&mut self, write_class: WriteClass) {
        let attempts = self.attempts.of_mut(write_class);
        *attempts = Attempts { was_refused: attempts.was_refused, ..Attempts::default() };
    }

    /// Ends a round of the classes that have failed attempts.
    fn end_round(&mut self) {
        let failing = self.attempts.iter_mut().filter(|attempts| attempts.failed > 0);
        failing.for_each(|attempts| attempts.rounds += 1);
    }

    /// A checkpoint has ended. Every class retries.
    pub(super) fn checkpoint_ended(&mut self, failure: Option<Error>) {
        self.checkpoint_failure = failure;
        self.end_round();
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
            self.end_round();
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
        self.states = PerClass::default();
    }
}

impl GateStep {
    fn of(decision: SpaceState) -> Self {
        Self { decision, wake_cleaner: false, ask_peers: false }
    }
}

#[cfg(test)]
#[path = "space_gate_tests.rs"]
mod tests;
