//! The load on one queue: keeps requests in flight, measures their latency and verifies reads.
//!
//! Invariants: the memory of a request is not reused until it completes; only completions within
//! the window count. The clock is read once for all requests that complete together.

use std::sync::Arc;

use vmm_sys_util::eventfd::EventFd;

use super::ring::{DESCRIPTOR, Descriptor, INDIRECT, NEXT, Ring, RingLayout, WRITE};
use super::shared::SharedMemory;
use crate::disk_bench::{LoadCounters, RequestSequence, Window};

/// Guest-physical address of the shared memory.
pub(super) const GUEST: u64 = 1 << 32;
/// Bytes of a slot's header and status, and of its indirect table: one cache line each.
const LINE: usize = 64;
/// Offset of the status byte in the first line.
const STATUS: usize = 16;
/// Value of the status byte until the device completes the request.
const NO_STATUS: u8 = 0xEE;
const HEADER: u32 = 16;
const SECTOR: u64 = 512;
const BLOCK: u64 = 4096;
const KIND_IN: u64 = 0;
const KIND_OUT: u64 = 1;

/// A queue and the memory of its requests.
pub(super) struct Queue {
    pub(super) memory: Arc<SharedMemory>,
    pub(super) ring: Ring,
    pub(super) kick: EventFd,
    pub(super) call: EventFd,
    /// Offset of the headers.
    lines: usize,
    /// Offset of the data of all queues.
    data: usize,
    indirect: bool,
}

/// Returns the number of queue entries for this many requests, a power of two.
pub(super) fn entries(slots: u32, indirect: bool) -> u32 {
    (if indirect { slots } else { slots * 3 }).next_power_of_two().max(4)
}

impl Queue {
    /// Returns the bytes of a queue's requests without rings and data.
    pub(super) fn line_bytes(entries: u16) -> usize {
        usize::from(entries) * LINE * 2
    }

    pub(super) fn new(
        memory: Arc<SharedMemory>,
        place: RingLayout,
        (event_index, indirect): (bool, bool),
        (kick, call): (EventFd, EventFd),
        at: (usize, usize),
    ) -> Self {
        let ring = Ring::new(memory.clone(), place, event_index);
        Self { memory, ring, kick, call, lines: at.0, data: at.1, indirect }
    }
}

/// The specification of a load.
#[derive(Clone, Copy, Debug)]
pub(super) struct LoadSpec {
    pub(super) block_bytes: u32,
    pub(super) read_percent: u8,
    pub(super) random: bool,
    pub(super) depth: u16,
    /// Index of this queue on the device, which selects its part of the data.
    pub(super) queue: u32,
    /// Seed: loads with different seeds access different offsets.
    pub(super) seed: u32,
    /// The part of the disk to use, in bytes.
    pub(super) from: u64,
    pub(super) size: u64,
    /// The first block of a sequential load within that part.
    pub(super) first: u64,
    /// True to stamp written blocks with their number.
    pub(super) written: bool,
    /// True to verify the stamps of read blocks.
    pub(super) verified: bool,
    /// Interval between two requests in nanoseconds; without it, as fast as possible.
    pub(super) gap: Option<f64>,
    /// Maximum number of requests.
    pub(super) limit: u64,
}

#[derive(Clone, Copy, Default)]
struct Slot {
    started: u64,
    offset: u64,
    read: bool,
    /// The direction of the slot's descriptors.
    written_for: Option<bool>,
}

/// The result of one poll of a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    Busy,
    Idle,
    Done,
}

/// A load on one queue; see the module documentation.
pub(super) struct QueueLoad {
    pub(super) queue: Queue,
    work: LoadSpec,
    window: Window,
    slots: Vec<Slot>,
    free: Vec<u16>,
    requests: RequestSequence,
    /// Time of the next request, and the interval between requests.
    due: f64,
    gap: f64,
    begun: u64,
    heard: u64,
    pub(super) counted: LoadCounters,
}

impl QueueLoad {
    pub(super) fn new(queue: Queue, work: LoadSpec, window: Window) -> Self {
        let depth = work.depth;
        Self {
            slots: vec![Slot::default(); usize::from(depth)],
            free: (0..depth).rev().collect(),
            requests: RequestSequence::new(
                (work.read_percent, work.random),
                (work.from, work.size),
                work.block_bytes,
                work.first,
                work.seed,
            ),
            due: 0.0,
            gap: work.gap.unwrap_or(0.0),
            begun: 0,
            heard: 0,
            counted: LoadCounters::new(),
            queue,
            work,
            window,
        }
    }

    /// Returns true if requests are submitted at a fixed rate.
    pub(super) fn has_rate(&self) -> bool {
        self.gap > 0.0
    }

    /// Processes completions and submits requests.
    pub(super) fn poll(&mut self) -> Progress {
        let ended = self.queue.ring.ended();
        let now = self.window.now();
        for _ in 0..ended {
            self.finish(now);
        }
        if ended > 0 || self.begun == 0 {
            self.heard = now;
        }
        let is_idle = self.free.len() == self.slots.len();
        let is_over = self.counted.is_over(&self.window, now) || self.begun >= self.work.limit;
        if is_over && is_idle {
            self.counted.finish(&self.window, now);
            return Progress::Done;
        }
        if !is_idle && self.counted.check_stuck(self.heard, now) {
            return Progress::Done;
        }
        if !is_over {
            self.submit(now);
        }
        if ended > 0 { Progress::Busy } else { Progress::Idle }
    }

    fn submit(&mut self, now: u64) {
        #[allow(clippy::cast_precision_loss, reason = "nanoseconds of a run")]
        let time = now as f64;
        while self.begun < self.work.limit {
            if self.gap > 0.0 && self.due > time {
                break;
            }
            let Some(slot) = self.free.pop() else { break };
            // At a fixed rate, the wait of a late request is part of its latency.
            #[allow(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "nanoseconds of a run"
            )]
            let since = if self.has_rate() { self.due as u64 } else { now };
            self.begin(slot, since);
            self.due += self.gap;
        }
        if self.queue.ring.publish() {
            // Fails only if the counter is saturated, and then the device is already notified.
            let _ = self.queue.kick.write(1);
        }
    }

    fn begin(&mut self, slot: u16, since: u64) {
        let (read, offset) = self.requests.next();
        self.begun += 1;
        let Some(place) = self.slots.get_mut(usize::from(slot)) else { return };
        let described = place.written_for.replace(read) == Some(read);
        (place.started, place.offset, place.read) = (since, offset, read);
        let line = self.queue.lines + usize::from(slot) * LINE;
        let kind = if read { KIND_IN } else { KIND_OUT };
        let header = u128::from(kind) | u128::from(offset / SECTOR) << 64;
        self.queue.memory.write(line, header.to_le_bytes());
        self.queue.memory.write(line + STATUS, [NO_STATUS]);
        if !described {
            self.describe(slot, line, read);
        }
        if !read && self.work.written {
            self.each_block(slot, |memory, at, block| {
                memory.write(at, (offset / BLOCK + block).to_le_bytes())
            });
        }
        self.queue.ring.add(if self.queue.indirect { slot } else { slot * 3 });
    }

    fn data_of(&self, slot: u16) -> usize {
        let index = usize::from(slot) + self.work.queue as usize * usize::from(self.work.depth);
        self.queue.data + index * self.work.block_bytes as usize
    }

    fn each_block(&self, slot: u16, mut step: impl FnMut(&SharedMemory, usize, u64)) {
        let at = self.data_of(slot);
        for block in 0..u64::from(self.work.block_bytes) / BLOCK {
            let skip = usize::try_from(block * BLOCK).unwrap_or(0);
            step(&self.queue.memory, at + skip, block);
        }
    }

    /// Writes a slot's descriptors to the queue's table or to its indirect table.
    fn describe(&self, slot: u16, line: usize, read: bool) {
        let guest = |at: usize| GUEST + at as u64;
        let direction = if read { WRITE } else { 0 };
        let first = if self.queue.indirect { 0 } else { slot * 3 };
        let chain = [
            Descriptor { address: guest(line), len: HEADER, flags: NEXT, next: first + 1 },
            Descriptor {
                address: guest(self.data_of(slot)),
                len: self.work.block_bytes,
                flags: NEXT | direction,
                next: first + 2,
            },
            Descriptor { address: guest(line + STATUS), len: 1, flags: WRITE, next: 0 },
        ];
        if !self.queue.indirect {
            return (first..)
                .zip(chain)
                .for_each(|(index, descriptor)| self.queue.ring.set(index, descriptor));
        }
        let table = self.queue.lines + self.tables() + usize::from(slot) * LINE;
        for (index, descriptor) in chain.iter().enumerate() {
            self.queue.memory.write(table + index * DESCRIPTOR, descriptor.bytes());
        }
        let len = u32::try_from(chain.len() * DESCRIPTOR).unwrap_or(0);
        let whole = Descriptor { address: guest(table), len, flags: INDIRECT, next: 0 };
        self.queue.ring.set(slot, whole);
    }

    /// Returns the offset of the indirect tables from the headers of a queue.
    fn tables(&self) -> usize {
        usize::from(self.queue.ring.entries()) * LINE
    }

    /// Processes a completion.
    fn finish(&mut self, now: u64) {
        let head = self.queue.ring.take();
        let index = if self.queue.indirect { head } else { head / 3 };
        let Some(slot) = self.slots.get(usize::from(index)).copied() else {
            self.counted.failed += 1;
            return;
        };
        let line = self.queue.lines + usize::from(index) * LINE;
        let [status] = self.queue.memory.read(line + STATUS);
        self.counted.failed += u64::from(status != 0);
        if slot.read && self.work.verified {
            let mut wrong = 0;
            self.each_block(index, |memory, at, block| {
                wrong += u64::from(u64::from_le_bytes(memory.read(at)) != slot.offset / BLOCK + block);
            });
            self.counted.count_wrong(wrong);
        }
        self.counted.count(&self.window, slot.read, slot.started, now);
        self.free.push(index);
    }
}
