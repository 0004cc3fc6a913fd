//! Simulated time: a queue of events, in order of their moments. It is the reactor's driver and clock, and the time of day, which goes
//! along with it and jumps besides.

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Waker;
use std::time::Duration;

use engine::WallClock;
use reactor::{Clock, Driver, Instant, WakeHandle};

use crate::random::Random;

/// Something that happens at its moment.
type Event = Box<dyn FnOnce()>;

/// Time and what is to come.
#[derive(Default)]
pub struct World {
    now: Cell<u64>,
    order: Cell<u64>,
    queue: RefCell<BinaryHeap<Reverse<Entry>>>,
    /// Set at a power cut: nothing happens any more.
    halted: Cell<bool>,
    /// Whom to wake then.
    at_halt: Cell<Option<Waker>>,
    stuck: Cell<u32>,
    /// Cycles of the executor since something last happened.
    busy: Cell<u32>,
    day: Arc<TimeOfDay>,
    ways: RefCell<Option<Ways>>,
}

/// How long calls take between the parts of a pool, which share the one reactor as if each had its own.
struct Ways {
    random: Random,
    /// Nanoseconds at most.
    longest: u64,
    /// When the last one arrives on each way: calls and answers do not overtake each other on it.
    arrivals: BTreeMap<(u64, bool), u64>,
}

/// The time of day, for whoever may be on any thread.
#[derive(Default)]
struct TimeOfDay {
    /// Nanoseconds since the beginning of time, as of the last event.
    now: AtomicU64,
    /// Seconds that have passed besides.
    passed: AtomicU64,
}

/// Seconds between 1970 and the beginning of time.
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

/// Times that the executor may come to rest with nothing to wait for before the run counts as hung.
const STUCK_MAX: u32 = 1000;
/// Cycles of the executor in which nothing happens before the run counts as caught in a loop.
const BUSY_MAX: u32 = 1_000_000;

impl World {
    /// A world at the beginning of time.
    pub fn new() -> Rc<Self> {
        Rc::default()
    }

    /// From now on calls between the parts of a pool take up to so many nanoseconds, as between reactors.
    pub fn set_apart(&self, longest: u64, seed: u64) {
        let ways = Ways { random: Random::new(seed), longest, arrivals: BTreeMap::new() };
        *self.ways.borrow_mut() = Some(ways);
    }

    /// Lets `event` happen `delay` nanoseconds from now.
    pub fn after(&self, delay: u64, event: impl FnOnce() + 'static) {
        let order = self.order.get();
        self.order.set(order + 1);
        let due = self.now.get() + delay;
        self.queue.borrow_mut().push(Reverse(Entry { due, order, event: Box::new(event) }));
    }

    /// Stops the world: what was to happen does not, and everything that waits for it waits for ever.
    pub fn halt(&self) {
        self.halted.set(true);
        let queue = std::mem::take(&mut *self.queue.borrow_mut());
        drop(queue);
        if let Some(waker) = self.at_halt.take() {
            waker.wake();
        }
    }

    /// Wakes `waker` at the halt.
    pub fn on_halt(&self, waker: Waker) {
        self.at_halt.set(Some(waker));
    }

    /// True after [`World::halt`].
    pub fn is_halted(&self) -> bool {
        self.halted.get()
    }

    /// Lets time go on after a halt, with nothing to come.
    pub fn restart(&self) {
        let queue = std::mem::take(&mut *self.queue.borrow_mut());
        drop(queue);
        self.at_halt.set(None);
        self.halted.set(false);
        self.stuck.set(0);
    }

    /// The time of day.
    pub fn wall_clock(&self) -> WallClock {
        let day = self.day.clone();
        Arc::new(move || {
            let seconds = day.now.load(Ordering::Relaxed) / 1_000_000_000;
            BEGINNING + seconds + day.passed.load(Ordering::Relaxed)
        })
    }

    /// Lets so many seconds pass at once in which nothing happens, as if the machine had been asleep.
    pub fn pass(&self, seconds: u64) {
        self.day.passed.fetch_add(seconds, Ordering::Relaxed);
    }

    /// Somebody sets the time of day back: by no more than has passed at once.
    pub fn set_back(&self, seconds: u64) {
        self.day.passed.fetch_sub(seconds, Ordering::Relaxed);
    }

    fn next_due(&self) -> Option<u64> {
        self.queue.borrow().peek().map(|Reverse(entry)| entry.due)
    }

    /// Everything whose moment has come happens.
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
        assert!(busy < BUSY_MAX, "the run goes round in circles without doing anything");
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
                "the run hangs: nothing is ready, and nothing will ever happen"
            );
            return;
        };
        self.stuck.set(0);
        self.now.set(self.now.get().max(next));
        self.day.now.store(self.now.get(), Ordering::Relaxed);
    }

    fn message_delay(&self, key: u64, there: bool) -> Duration {
        let mut ways = self.ways.borrow_mut();
        let Some(Ways { random, longest, arrivals }) = ways.as_mut() else { return Duration::ZERO };
        let now = self.now.get();
        let takes = random.between(1, *longest);
        let last = arrivals.entry((key, there)).or_default();
        *last = (now + takes).max(*last + 1);
        Duration::from_nanos(*last - now)
    }

    fn wake_handle(&self) -> Arc<dyn WakeHandle> {
        Arc::new(Nobody)
    }
}

impl Clock for World {
    fn now(&self) -> Instant {
        Instant::from_nanos(self.now.get())
    }
}

/// There are no other threads that could wake the reactor.
struct Nobody;

impl WakeHandle for Nobody {
    fn wake(&self) {}
}
