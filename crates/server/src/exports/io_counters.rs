//! Counters of the requests of an export: number, errors, bytes and latency.
//!
//! Invariant: a set of counters has one writer at a time, so that counting needs neither locks nor
//! atomic additions; readers on other threads see each counter complete, and all of them only grow.
//! Must not know: protocols, and the names of exports.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use reactor::{Instant, Reactor};

/// Kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IoKind {
    Read,
    Write,
    Flush,
    Discard,
}

impl IoKind {
    /// All kinds, in the order of their numbers.
    pub(crate) const ALL: [Self; 4] = [Self::Read, Self::Write, Self::Flush, Self::Discard];

    /// Returns the name that metrics use.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Flush => "flush",
            Self::Discard => "discard",
        }
    }
}

/// Number of latency buckets. Bucket n holds latencies of up to [`bucket_nanos`]`(n)`.
pub(crate) const BUCKETS: usize = 12;
/// One of this many requests of a kind is timed, to keep two readings of the clock off the path of
/// the others.
pub(crate) const SAMPLE_EVERY: u64 = 16;

/// Returns the upper bound of a bucket in nanoseconds: 4.096 us times a power of 4. The last bucket
/// has none.
pub(crate) fn bucket_nanos(bucket: usize) -> Option<u64> {
    (bucket + 1 < BUCKETS).then(|| 4096 << (2 * bucket))
}

fn bucket_of(nanos: u64) -> usize {
    let bits = u64::BITS - nanos.saturating_sub(1).leading_zeros();
    (bits.saturating_sub(12) as usize).div_ceil(2).min(BUCKETS - 1)
}

/// Counters of one kind of request.
#[derive(Debug, Default)]
struct KindCounters {
    operations: AtomicU64,
    errors: AtomicU64,
    bytes: AtomicU64,
    nanos: AtomicU64,
    buckets: [AtomicU64; BUCKETS],
}

/// Counters of one handle of a volume: a connection or a queue.
#[repr(align(64))]
#[derive(Debug, Default)]
pub(super) struct HandleCounters([KindCounters; 4]);

/// A request in progress.
pub(super) struct StartedIo<'a> {
    counters: &'a KindCounters,
    /// The time of its start, if it is timed.
    at: Option<Instant>,
}

impl HandleCounters {
    /// Counts the start of a request.
    pub(super) fn begin(&self, kind: IoKind) -> StartedIo<'_> {
        let [read, write, flush, discard] = &self.0;
        let counters = match kind {
            IoKind::Read => read,
            IoKind::Write => write,
            IoKind::Flush => flush,
            IoKind::Discard => discard,
        };
        let number = increase(&counters.operations, 1);
        let at = number.is_multiple_of(SAMPLE_EVERY).then(|| Reactor::current().now());
        StartedIo { counters, at }
    }
}

impl StartedIo<'_> {
    /// Counts the end of a request that transferred `bytes`.
    pub(super) fn end(self, bytes: u64, succeeded: bool) {
        if succeeded {
            increase(&self.counters.bytes, bytes);
        } else {
            increase(&self.counters.errors, 1);
        }
        if let Some(at) = self.at {
            self.counters.add_latency(Reactor::current().now().as_nanos().saturating_sub(at.as_nanos()));
        }
    }
}

impl KindCounters {
    fn add_latency(&self, nanos: u64) {
        increase(&self.nanos, nanos);
        if let Some(bucket) = self.buckets.get(bucket_of(nanos)) {
            increase(bucket, 1);
        }
    }
}

/// Adds to a counter of which this thread is the only writer. Returns the previous value.
fn increase(counter: &AtomicU64, by: u64) -> u64 {
    let before = counter.load(Ordering::Relaxed);
    counter.store(before.wrapping_add(by), Ordering::Relaxed);
    before
}

/// Sums of one kind of request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct IoSums {
    /// Requests that were begun.
    pub(crate) operations: u64,
    /// Requests that failed.
    pub(crate) errors: u64,
    /// Bytes of the requests that succeeded.
    pub(crate) bytes: u64,
    /// Total time of the timed requests in nanoseconds.
    pub(crate) nanos: u64,
    /// Number of timed requests by latency.
    pub(crate) buckets: [u64; BUCKETS],
}

impl IoSums {
    /// Adds other sums.
    pub(crate) fn add(&mut self, other: &Self) {
        self.operations += other.operations;
        self.errors += other.errors;
        self.bytes += other.bytes;
        self.nanos += other.nanos;
        self.buckets.iter_mut().zip(other.buckets).for_each(|(sum, count)| *sum += count);
    }

    fn add_counters(&mut self, counters: &KindCounters) {
        let value = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        self.operations += value(&counters.operations);
        self.errors += value(&counters.errors);
        self.bytes += value(&counters.bytes);
        self.nanos += value(&counters.nanos);
        self.buckets.iter_mut().zip(&counters.buckets).for_each(|(sum, count)| *sum += value(count));
    }
}

/// The counters of an export, from its creation or the daemon's start on.
#[derive(Debug, Default)]
pub(crate) struct ExportCounters {
    handles: Mutex<Vec<Arc<HandleCounters>>>,
}

impl ExportCounters {
    /// Returns counters for a new handle: those of a handle that has ended, which continue, or new
    /// ones. Their number is bounded by the most handles that were open at once.
    pub(super) fn attach(&self) -> Arc<HandleCounters> {
        let mut handles = self.handles.lock().unwrap_or_else(PoisonError::into_inner);
        // Exclusive access shows that no handle has the counters.
        let free =
            handles.iter_mut().find_map(|counters| Arc::get_mut(counters).is_some().then_some(counters));
        if let Some(free) = free {
            return free.clone();
        }
        let counters = Arc::new(HandleCounters::default());
        handles.push(counters.clone());
        counters
    }

    /// Returns the sums of all handles by kind, in the order of [`IoKind::ALL`].
    pub(super) fn sums(&self) -> [IoSums; 4] {
        let mut sums = [IoSums::default(); 4];
        for counters in self.handles.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            sums.iter_mut().zip(&counters.0).for_each(|(sums, counters)| sums.add_counters(counters));
        }
        sums
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_latency_is_in_the_first_bucket_whose_bound_it_does_not_exceed() {
        for nanos in [0, 1, 4096, 4097, 16_384, 16_385, 1_000_000, 4_000_000_000, 5_000_000_000, u64::MAX] {
            let fits = |bucket: &usize| bucket_nanos(*bucket).is_none_or(|bound| nanos <= bound);
            assert_eq!(Some(bucket_of(nanos)), (0..BUCKETS).find(fits), "{nanos}");
        }
    }

    #[test]
    fn sums_continue_when_a_handle_is_replaced() {
        let export = ExportCounters::default();
        let first = export.attach();
        for _ in 0..SAMPLE_EVERY - 1 {
            // The first request of a kind is timed, which needs a reactor: the test begins later.
            increase(&first.0[1].operations, 1);
        }
        increase(&first.0[1].bytes, 4096);
        first.0[1].add_latency(5000);
        let second = export.attach();
        assert!(!Arc::ptr_eq(&first, &second));
        drop(first);
        let third = export.attach();
        third.0[1].add_latency(1 << 40);
        let sums = export.sums();
        assert_eq!((sums[1].operations, sums[1].bytes), (SAMPLE_EVERY - 1, 4096));
        assert_eq!((sums[1].buckets[1], sums[1].buckets[BUCKETS - 1]), (1, 1));
        assert_eq!(sums[0], IoSums::default());
        assert_eq!(export.handles.lock().unwrap().len(), 2);
    }

    #[test]
    fn failed_requests_count_as_errors() {
        let counters = HandleCounters::default();
        increase(&counters.0[0].operations, 1);
        counters.begin(IoKind::Read).end(4096, true);
        counters.begin(IoKind::Read).end(4096, false);
        let mut sums = IoSums::default();
        sums.add_counters(&counters.0[0]);
        assert_eq!((sums.operations, sums.errors, sums.bytes), (3, 1, 4096));
    }
}
