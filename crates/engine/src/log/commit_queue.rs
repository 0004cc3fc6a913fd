//! The requests that wait for a record, and the choice of the write class to serve next.
//!
//! Owns the queues, the turn of the classes, and the numbers of requests queued and answered.
//! Always true: a request is answered once; the requests of a class leave the queue in the order in
//! which they came. Plain state and pure decisions: must not know segments, drives, tasks.

use std::collections::VecDeque;

use format::{Scheme, Sequence};

use super::request::{Batch, PerClass, REQUEST_BLOCKS_MAX, Request, WriteClass};

/// The write classes other than the checkpoint's, in the order of their turns.
pub(super) const NON_CHECKPOINT_CLASSES: [WriteClass; 4] =
    [WriteClass::User, WriteClass::Trim, WriteClass::Cold, WriteClass::Freeing];

/// The position in the rotation of the write classes: the checkpoint's class and the others
/// alternate, and the others take turns, so that none starves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ClassTurn {
    /// The other classes are served before the checkpoint's next.
    others_first: bool,
    /// The class other than the checkpoint's that was served last.
    last: WriteClass,
}

impl Default for ClassTurn {
    fn default() -> Self {
        Self { others_first: true, last: WriteClass::Cold }
    }
}

impl ClassTurn {
    /// Returns the class to serve next among those that are ready.
    pub(super) fn next(self, is_ready: impl Fn(WriteClass) -> bool) -> Option<WriteClass> {
        let count = NON_CHECKPOINT_CLASSES.len();
        let after = NON_CHECKPOINT_CLASSES.iter().take_while(|class| **class != self.last).count() + 1;
        let mut others = NON_CHECKPOINT_CLASSES.iter().cycle().skip(after).take(count);
        let other = others.find(|class| is_ready(**class)).copied();
        let checkpoint = is_ready(WriteClass::Checkpoint).then_some(WriteClass::Checkpoint);
        if self.others_first { other.or(checkpoint) } else { checkpoint.or(other) }
    }

    /// Returns the position after a class was served.
    pub(super) fn after(self, served: WriteClass) -> Self {
        match served {
            WriteClass::Checkpoint => Self { others_first: true, ..self },
            _ => Self { others_first: false, last: served },
        }
    }
}

/// The numbers of requests with a reply channel that were queued by some moment.
#[derive(Clone, Copy)]
pub(super) struct QueueMark(PerClass<u64>);

/// The requests that wait for a record. See the module documentation.
#[derive(Default)]
pub(super) struct CommitQueue {
    requests: PerClass<VecDeque<Request>>,
    turn: ClassTurn,
    /// Requests that have a reply channel, queued and answered so far.
    queued: PerClass<u64>,
    answered: PerClass<u64>,
    /// Records before this one may contain the front parts of refused requests.
    refused_before: Sequence,
}

impl CommitQueue {
    /// Adds a request at the end of its class.
    pub(super) fn push(&mut self, write_class: WriteClass, request: Request) {
        *self.queued.of_mut(write_class) += u64::from(request.reply.is_some());
        self.requests.of_mut(write_class).push_back(request);
    }

    /// Returns the write class to serve next, among those with requests for which `is_held` is
    /// false.
    pub(super) fn next_class(&self, is_held: impl Fn(WriteClass) -> bool) -> Option<WriteClass> {
        self.turn.next(|write_class| !self.requests.of(write_class).is_empty() && !is_held(write_class))
    }

    /// Notes that a write class is served now.
    pub(super) fn note_served(&mut self, write_class: WriteClass) {
        assert!(!self.requests.of(write_class).is_empty(), "a class without requests is not served");
        self.turn = self.turn.after(write_class);
    }

    /// Returns true if a record of a class would be full: it has nothing to wait for.
    pub(super) fn fills_record(&self, write_class: WriteClass) -> bool {
        let mut left = REQUEST_BLOCKS_MAX;
        self.requests.of(write_class).iter().any(|request| {
            left -= request.payload().min(left);
            left == 0
        })
    }

    /// Returns the payload blocks of all requests of a class, if there are at most `count_max` of
    /// them.
    pub(super) fn small_payload(&self, write_class: WriteClass, count_max: usize) -> Option<u32> {
        let requests = self.requests.of(write_class);
        (requests.len() <= count_max).then(|| requests.iter().map(Request::payload).sum())
    }

    /// Takes the requests for the next record of a class: see [`Batch::gather`].
    pub(super) fn take_batch(
        &mut self,
        write_class: WriteClass,
        scheme: Scheme,
        rows: u32,
        atomic: u32,
        more_to_come: bool,
    ) -> Batch {
        Batch::gather(self.requests.of_mut(write_class), scheme, rows, atomic, more_to_come)
    }

    /// Takes all requests of a class, which will be refused. `next` is the sequence of the next
    /// record.
    pub(super) fn take_refused(&mut self, write_class: WriteClass, next: Sequence) -> VecDeque<Request> {
        assert!(next >= self.refused_before, "L1: sequences go forward");
        self.refused_before = next;
        std::mem::take(self.requests.of_mut(write_class))
    }

    /// Takes all requests of all classes: the log has failed.
    pub(super) fn take_all(&mut self) -> impl Iterator<Item = Request> + use<> {
        std::mem::take(&mut self.requests).into_iter().flatten()
    }

    /// Counts requests of a write class as answered.
    pub(super) fn count_answered(&mut self, write_class: WriteClass, requests: u64) {
        let answered = self.answered.of_mut(write_class);
        *answered += requests;
        assert!(*answered <= *self.queued.of(write_class), "L1: a request is answered once");
    }

    /// Returns a mark behind all requests queued so far.
    pub(super) fn mark(&self) -> QueueMark {
        QueueMark(self.queued)
    }

    /// Returns true if all requests before a mark were answered, and, with the sequence after the
    /// last applied record, no front part of a refused request is in flight.
    pub(super) fn is_settled(&self, mark: &QueueMark, next_applied: Sequence) -> bool {
        let answered = self.answered.iter().zip(mark.0.iter()).all(|(answered, queued)| answered >= queued);
        answered && next_applied >= self.refused_before
    }

    /// Returns the number of requests of a class.
    pub(super) fn len(&self, write_class: WriteClass) -> usize {
        self.requests.of(write_class).len()
    }

    /// Returns true if no class has requests.
    pub(super) fn is_empty(&self) -> bool {
        self.requests.iter().all(VecDeque::is_empty)
    }
}

#[cfg(test)]
#[path = "commit_queue_tests.rs"]
mod tests;
