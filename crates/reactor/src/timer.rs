//! Timers of one reactor: which wakers to wake when.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::task::Waker;

use crate::Instant;

/// Pending timers, earliest first; among equal moments in the order they were set (so that runs replay exactly).
#[derive(Default)]
pub(crate) struct Timers {
    heap: BinaryHeap<Reverse<Entry>>,
    next: u64,
}

struct Entry {
    due: Instant,
    order: u64,
    waker: Waker,
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.order == other.order
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.due, self.order).cmp(&(other.due, other.order))
    }
}

impl Timers {
    pub(crate) fn set(&mut self, due: Instant, waker: Waker) {
        self.heap.push(Reverse(Entry { due, order: self.next, waker }));
        self.next += 1;
    }

    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.heap.peek().map(|Reverse(entry)| entry.due)
    }

    /// Takes one waker that is due at `now`.
    pub(crate) fn take_due(&mut self, now: Instant) -> Option<Waker> {
        if self.next_due()? > now {
            return None;
        }
        self.heap.pop().map(|Reverse(entry)| entry.waker)
    }
}
