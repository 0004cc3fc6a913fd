//! Simulated time: a queue of events, ordered by due time. It is the reactor's driver and clock. It
//! also provides the wall clock, which follows simulated time and can jump.

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Waker;
use std::time::Duration;

use engine::WallClock;
use reactor::{Clock, Driver, Instant, Rouse};

use crate::random::Random;

/// An action that runs at its due time.
type Event = Box<dyn FnOnce()>;

/// Simulated time and the pending events.
#[derive(Default)]
pub struct World {
    now: Cell<u64>,
    order: Cell<u64>,
    queue: RefCell<BinaryHeap<Reverse<Entry>>>,
    /// Set at a power cut: no event runs any more.
    halted: Cell<bool>,
    /// Woken at the halt.
    at_halt: Cell<Option<Waker>>,
    stuck: Cell<u32>,
    /// Executor cycles since the last event.
    busy: Cell<u32>,
    day: Arc<TimeOfDay>,
    ways: RefCell<Option<Ways>>,
}

/// Delays of calls between the parts of a pool. The parts share one reactor as if each had its own.
struct Ways {
    random: Random,
    /// Maximum delay in nanoseconds.
    longest: u64,
    /// Last arrival in each direction of each channel. Calls and replies do not overtake each other
    /// within a direction.
    arrivals: BTreeMap<(u64, bool), u64>,
}

/// The wall clock, readable from any thread.
#[derive(Default)]
struct TimeOfDay {
    /// Nanoseconds of simulated time, as of the last event.
    now: AtomicU64,
    /// Seconds by which the wall clock was moved forward.
    passed: AtomicU64,
}

/// Seconds between 1970 and the start of simulated time.
const BEGINNING: u64 = 1_600_000_000;

struct Entry {
    due: u64,
    order: u64,
    event: Event,
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

/// Number of times that the executor may sleep without a pending event before the run counts as
/// hung.
const STUCK_MAX: u32 = 1000;
/// Number of executor cycles without an event before the run counts as a busy loop.
const BUSY_MAX: u32 = 1_000_000;

impl World {
    /// Creates an empty queue at time zero.
    pub fn new() -> Rc<Self> {
        Rc::default()
    }

    /// Delays calls between the parts of a pool by up to `longest` nanoseconds, as between
    /// reactors.
    pub fn set_apart(&self, longest: u64, seed: u64) {
        let ways = Ways { random: Random::new(seed), longest, arrivals: BTreeMap::new() };
        *self.ways.borrow_mut() = Some(ways);
    }

    /// Schedules `event` to run `delay` nanoseconds from now.
    pub fn after(&self, delay: u64, event: impl FnOnce() + 'static) {
        let order = self.order.get();
        self.order.set(order + 1);
        let due = self.now.get() + delay;
        self.queue.borrow_mut().push(Reverse(Entry { due, order, event: Box::new(event) }));
    }

    /// Drops all pending events. Tasks that wait for them wait forever.
    pub fn halt(&self) {
        self.halted.set(true);
        let queue = std::mem::take(&mut *self.queue.borrow_mut());
        drop(queue);
        if let Some(waker) = self.at_halt.take() {
            waker.wake();
        }
    }

    /// Sets the waker that the halt wakes.
    pub fn on_halt(&self, waker: Waker) {
        self.at_halt.set(Some(waker));
    }

    /// Returns true after [`EventQueue::halt`].
    pub fn is_halted(&self) -> bool {
        self.halted.get()
    }

    /// Continues after a halt, with an empty queue.
    pub fn restart(&self) {
        let queue = std::mem::take(&mut *self.queue.borrow_mut());
        drop(queue);
        self.at_halt.set(None);
        self.halted.set(false);
        self.stuck.set(0);
    }

    /// Returns the wall clock.
    pub fn wall_clock(&self) -> WallClock {
        let day = self.day.clone();
        Arc::new(move || {
            let seconds = day.now.load(Ordering::Relaxed) / 1_000_000_000;
            BEGINNING + seconds + day.passed.load(Ordering::Relaxed)
        })
    }

    /// Moves the wall clock forward by `seconds` without running events, as if the machine had been
    /// suspended.
    pub fn pass(&self, seconds: u64) {
        self.day.passed.fetch_add(seconds, Ordering::Relaxed);
    }

    /// Moves the wall clock back, by no more than it was moved forward.
    pub fn set_back(&self, seconds: u64) {
        self.day.passed.fetch_sub(seconds, Ordering::Relaxed);
    }

    fn next_due(&self) -> Option<u64> {
        self.queue.borrow().peek().map(|Reverse(entry)| entry.due)
    }

    /// Runs all due events. Returns true if there were any.
    fn happen(&self) -> bool {
        let mut happened = false;
        while !self.halted.get() && self.next_due().is_some_and(|due| due <= self.now.get()) {
            let next = self.queue.borrow_mut().pop();
            let Some(Reverse(entry)) = next else { break };
            (entry.event)();
            happened = true;
        }
        happened
    }
}

impl Driver for World {
    fn poll(&self) -> bool {
        let happened = self.happen();
        let busy = if happened { 0 } else { self.busy.get() + 1 };
        self.busy.set(busy);
        assert!(busy < BUSY_MAX, "busy loop: the executor polls, but no event runs");
        happened
    }

    fn sleep(&self, until: Option<Instant>) {
        let next = match (self.next_due(), until) {
            (Some(due), Some(until)) => Some(due.min(until.as_nanos())),
            (Some(due), None) => Some(due),
            (None, Some(until)) => Some(until.as_nanos()),
            (None, None) => None,
        };
        let Some(next) = next else {
            self.stuck.set(self.stuck.get() + 1);
            assert!(
                self.halted.get() || self.stuck.get() < STUCK_MAX,
                "the run hangs: no task is ready and no event is pending"
            );
            return;
        };
        self.stuck.set(0);
        self.now.set(self.now.get().max(next));
        self.day.now.store(self.now.get(), Ordering::Relaxed);
    }

    fn on_the_way(&self, key: u64, there: bool) -> Duration {
        let mut ways = self.ways.borrow_mut();
        let Some(Ways { random, longest, arrivals }) = ways.as_mut() else { return Duration::ZERO };
        let now = self.now.get();
        let takes = random.between(1, *longest);
        let last = arrivals.entry((key, there)).or_default();
        *last = (now + takes).max(*last + 1);
        Duration::from_nanos(*last - now)
    }

    fn rouser(&self) -> Arc<dyn Rouse> {
        Arc::new(Nobody)
    }
}

impl Clock for World {
    fn now(&self) -> Instant {
        Instant::from_nanos(self.now.get())
    }
}

/// A wake handle without effect: there are no other threads.
struct Nobody;

impl Rouse for Nobody {
    fn rouse(&self) {}
}
