//! The inflight region of the vhost-user specification, for split queues: records the requests in
//! flight in memory that survives this process.
//!
//! Always true: at any time, the region and the used ring determine the requests without a reply
//! and their order. The region belongs to the front end, so its content is not trusted.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use rustix::fs::MemfdFlags;
use smallvec::SmallVec;

use super::limits::QUEUES_MAX;
use super::mapping::{MappingRef, SharedMapping, Window};
use super::ring::is_size;

/// Bytes before the entries of a queue: features (8), version, number of entries, last batch head,
/// used index.
const HEAD: usize = 16;
const VERSION: usize = 8;
const ENTRIES: usize = 10;
const LAST_HEAD: usize = 12;
const USED_INDEX: usize = 14;
/// Bytes of an entry: in flight (1), padding (5), next of the batch (2), counter (8).
const ENTRY: usize = 16;
const ENTRY_NEXT: usize = 6;
const ENTRY_COUNTER: usize = 8;
/// Alignment of the parts of the queues, in bytes.
const ALIGN: usize = 64;
/// The version of this layout.
const LAYOUT: u16 = 1;

/// The region of a whole device.
#[derive(Clone)]
pub(super) struct InflightRegion {
    mapping_ref: MappingRef,
    offset: usize,
    queues: u16,
    queue_size: u16,
}

/// Returns the bytes of one queue's part.
fn part_bytes(queue_size: u16) -> usize {
    (HEAD + ENTRY * usize::from(queue_size)).next_multiple_of(ALIGN)
}

/// Returns the bytes of a region, if the arguments are valid.
pub(super) fn region_bytes(queues: u16, queue_size: u16) -> Option<u64> {
    let fits = is_size(queue_size) && (1..=QUEUES_MAX).contains(&queues);
    fits.then(|| u64::from(queues) * part_bytes(queue_size) as u64)
}

/// Creates an empty region for a front end to keep.
///
/// # Errors
/// Fails if memory is exhausted.
pub(super) fn new_region(bytes: u64) -> io::Result<OwnedFd> {
    let file = rustix::fs::memfd_create("vhost-inflight", MemfdFlags::CLOEXEC)?;
    rustix::fs::ftruncate(&file, bytes)?;
    Ok(file)
}

impl InflightRegion {
    /// Maps the region that a front end kept.
    ///
    /// # Errors
    /// Fails if the region is shorter than stated or cannot be mapped.
    pub(super) fn new(file: BorrowedFd<'_>, offset: u64, queues: u16, queue_size: u16) -> io::Result<Self> {
        let Some(bytes) = region_bytes(queues, queue_size) else {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "inflight region with an invalid number of queues or entries",
            ));
        };
        let mapping = SharedMapping::new(file.as_fd(), offset, bytes)?;
        Ok(Self { mapping_ref: MappingRef::new(vec![Arc::new(mapping)]), offset: 0, queues, queue_size })
    }

    /// Returns the part of one queue, if the region contains it with enough entries.
    pub(super) fn queue(&self, index: usize, size: u16) -> Option<Inflight> {
        if index >= usize::from(self.queues) || size > self.queue_size {
            return None;
        }
        let bytes = part_bytes(self.queue_size);
        let window = self.mapping_ref.window(0, self.offset + index * bytes, bytes, 8)?;
        Some(Inflight { window, size, counter: 0, batch: SmallVec::new() })
    }
}

/// The part of one queue.
pub(super) struct Inflight {
    window: Window,
    size: u16,
    /// Number of the next request. Requests are numbered in the order in which they are taken.
    counter: u64,
    /// Completed requests that are not published yet.
    batch: SmallVec<[u16; 16]>,
}

/// The position at which a queue continues after a restart.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct InflightRecovery {
    /// The next available entry; `None` if the region was empty.
    pub(super) next: Option<u16>,
    /// Requests that were taken but not completed, in the order in which they were taken.
    pub(super) incomplete: Vec<u16>,
}

impl Inflight {
    /// Returns true if the front end has removed the region's memory.
    pub(super) fn is_lost(&self) -> bool {
        self.window.is_lost()
    }

    fn entry(head: u16) -> usize {
        HEAD + usize::from(head) * ENTRY
    }

    fn is_in_flight(&self, head: u16) -> bool {
        self.window.load_8(Self::entry(head)) == 1
    }

    fn counter_of(&self, head: u16) -> u64 {
        u64::from_le_bytes(self.window.read(Self::entry(head) + ENTRY_COUNTER))
    }

    /// Recovers the state that an earlier process left, given the index of the used ring, and makes
    /// it consistent.
    pub(super) fn resume(&mut self, used_index: u16) -> InflightRecovery {
        if self.window.load_16(VERSION) != LAYOUT {
            for head in 0..self.size {
                self.window.store_8(Self::entry(head), 0);
            }
            self.window.store_16(ENTRIES, self.size);
            self.window.store_16(USED_INDEX, used_index);
            self.window.store_16(VERSION, LAYOUT);
            return InflightRecovery { next: None, incomplete: Vec::new() };
        }
        self.finish_batch(used_index);
        let mut incomplete: Vec<u16> = (0..self.size).filter(|head| self.is_in_flight(*head)).collect();
        incomplete.sort_by_key(|head| self.counter_of(*head));
        self.counter = incomplete.last().map_or(0, |head| self.counter_of(*head).wrapping_add(1));
        let taken = u16::try_from(incomplete.len()).unwrap_or(u16::MAX);
        InflightRecovery { next: Some(used_index.wrapping_add(taken)), incomplete }
    }

    /// Finishes a batch that was published without being recorded here: its requests were
    /// completed.
    fn finish_batch(&mut self, used_index: u16) {
        let published = used_index.wrapping_sub(self.window.load_16(USED_INDEX));
        let mut head = self.window.load_16(LAST_HEAD);
        if published <= self.size {
            for _ in 0..published {
                if head >= self.size {
                    break;
                }
                self.window.store_8(Self::entry(head), 0);
                head = self.window.load_16(Self::entry(head) + ENTRY_NEXT);
            }
        }
        self.window.store_16(USED_INDEX, used_index);
    }

    /// Records that a request was taken and is about to begin.
    pub(super) fn begin(&mut self, head: u16) {
        let at = Self::entry(head);
        self.window.write(at + ENTRY_COUNTER, self.counter.to_le_bytes());
        self.window.store_8(at, 1);
        self.counter = self.counter.wrapping_add(1);
    }

    /// Records that a request is about to be put into the used ring.
    pub(super) fn end(&mut self, head: u16) {
        self.window.store_16(Self::entry(head) + ENTRY_NEXT, self.window.load_16(LAST_HEAD));
        self.window.store_16(LAST_HEAD, head);
        self.batch.push(head);
    }

    /// Records that the used ring was published with this index.
    pub(super) fn published(&mut self, used_index: u16) {
        // Not before the index was stored: a request recorded in neither place would be lost.
        fence(Ordering::SeqCst);
        for head in self.batch.drain(..) {
            self.window.store_8(Self::entry(head), 0);
        }
        self.window.store_16(USED_INDEX, used_index);
    }
}

#[cfg(test)]
#[path = "inflight_tests.rs"]
mod tests;
