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
use reactor::{Clock, Driver, Instant, WakeHandle};

use crate::random::Random;

/// An action that runs at its due time.
type Event = Box<dyn FnOnce()>;

/// Simulated time and the pending events.
#[derive(Default)]
pub struct EventQueue {
    now: Cell<u64>,
    order: Cell<u64>,
    queue: RefCell<BinaryHeap<Reverse<Entry>>>,
    /// Set at a power cut: no event runs any more.
    halted: Cell<bool>,
    /// Woken at the halt.
    halt_waker: Cell<Option<Waker>>,
    idle_sleeps: Cell<u32>,
    /// Executor cycles since the last event or the last change of the time.
    idle_polls: Cell<u32>,
    /// Time of the last event in nanoseconds.
    last_event: Cell<u64>,
    wall: Arc<SimulatedWallClock>,
    delays: RefCell<Option<MessageDelays>>,
}

/// Delays of calls between the parts of a pool. The parts share one reactor as if each had its own.
struct MessageDelays {
    random: Random,
    /// Maximum delay in nanoseconds.
    max_delay: u64,
    /// Last arrival in each direction of each channel. Calls and replies do not overtake each other
    /// within a direction.
    arrivals: BTreeMap<(u64, bool), u64>,
}

/// The wall clock, readable from any thread.
#[derive(Default)]
struct SimulatedWallClock {
    /// Nanoseconds of simulated time, as of the last event.
    now: AtomicU64,
    /// Seconds by which the wall clock was moved forward.
    skipped: AtomicU64,
}

/// Seconds between 1970 and the start of simulated time.
const START_SECONDS: u64 = 1_600_000_000;

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
const IDLE_SLEEPS_MAX: u32 = 1000;
/// Number of executor cycles at one time without an event before the run counts as a busy loop.
const IDLE_POLLS_MAX: u32 = 1_000_000;
/// Longest time without an event before the run counts as hung: only timers run. A scheduled scrub
/// waits for 30 days.
const EVENTLESS_MAX: Duration = Duration::from_secs(400 * 86_400);

impl EventQueue {
    /// Creates an empty queue at time zero.
    pub fn new() -> Rc<Self> {
        Rc::default()
    }

    /// Creates an empty queue at the time of another one.
    pub(crate) fn at_time_of(other: &Self) -> Rc<Self> {
        let wall = SimulatedWallClock {
            now: other.wall.now.load(Ordering::Relaxed).into(),
            skipped: other.wall.skipped.load(Ordering::Relaxed).into(),
        };
        let (now, last_event) = (other.now.clone(), other.last_event.clone());
        Rc::new(Self { now, last_event, wall: Arc::new(wall), ..Self::default() })
    }

    /// Delays calls between the parts of a pool by up to `max_delay` nanoseconds, as between
    /// reactors.
    pub fn set_message_delay(&self, max_delay: u64, seed: u64) {
        let delays = MessageDelays { random: Random::new(seed), max_delay, arrivals: BTreeMap::new() };
        *self.delays.borrow_mut() = Some(delays);
    }

    /// Schedules `event` to run `delay` nanoseconds from now.
    pub fn schedule(&self, delay: u64, event: impl FnOnce() + 'static) {
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
        if let Some(waker) = self.halt_waker.take() {
            waker.wake();
        }
    }

    /// Sets the waker that the halt wakes.
    pub fn set_halt_waker(&self, waker: Waker) {
        self.halt_waker.set(Some(waker));
    }

    /// Returns true after [`EventQueue::halt`].
    pub fn is_halted(&self) -> bool {
        self.halted.get()
    }

    /// Continues after a halt, with an empty queue.
    pub fn restart(&self) {
        let queue = std::mem::take(&mut *self.queue.borrow_mut());
        drop(queue);
        self.halt_waker.set(None);
        self.halted.set(false);
        self.idle_sleeps.set(0);
    }

    /// Returns the wall clock.
    pub fn wall_clock(&self) -> WallClock {
        let wall = self.wall.clone();
        Arc::new(move || {
            let seconds = wall.now.load(Ordering::Relaxed) / 1_000_000_000;
            START_SECONDS + seconds + wall.skipped.load(Ordering::Relaxed)
        })
    }

    /// Moves the wall clock forward by `seconds` without running events, as if the machine had been
    /// suspended.
    pub fn skip_seconds(&self, seconds: u64) {
        self.wall.skipped.fetch_add(seconds, Ordering::Relaxed);
    }

    /// Moves the wall clock back, by no more than it was moved forward.
    pub fn turn_back_seconds(&self, seconds: u64) {
        self.wall.skipped.fetch_sub(seconds, Ordering::Relaxed);
    }

    fn next_due(&self) -> Option<u64> {
        self.queue.borrow().peek().map(|Reverse(entry)| entry.due)
    }

    /// Runs all due events. Returns true if there were any.
    fn run_due_events(&self) -> bool {
        let mut ran = false;
        while !self.halted.get() && self.next_due().is_some_and(|due| due <= self.now.get()) {
            let next = self.queue.borrow_mut().pop();
            let Some(Reverse(entry)) = next else { break };
            (entry.event)();
            ran = true;
        }
        ran
    }
}

impl Driver for EventQueue {
    fn poll(&self) -> bool {
        let ran = self.run_due_events();
        let idle_polls = if ran { 0 } else { self.idle_polls.get() + 1 };
        self.idle_polls.set(idle_polls);
        if ran {
            self.last_event.set(self.now.get());
        }
        assert!(idle_polls < IDLE_POLLS_MAX, "busy loop: the executor polls, but no event runs");
        ran
    }

    fn sleep(&self, until: Option<Instant>) {
        let next = match (self.next_due(), until) {
            (Some(due), Some(until)) => Some(due.min(until.as_nanos())),
            (Some(due), None) => Some(due),
            (None, Some(until)) => Some(until.as_nanos()),
            (None, None) => None,
        };
        let Some(next) = next else {
            self.idle_sleeps.set(self.idle_sleeps.get() + 1);
            assert!(
                self.halted.get() || self.idle_sleeps.get() < IDLE_SLEEPS_MAX,
                "the run hangs: no task is ready and no event is pending"
            );
            return;
        };
        self.idle_sleeps.set(0);
        if next > self.now.get() {
            self.idle_polls.set(0);
            let eventless = Duration::from_nanos(next - self.last_event.get());
            assert!(
                self.halted.get() || eventless < EVENTLESS_MAX,
                "the run hangs: only timers have run for {eventless:?}"
            );
        }
        self.now.set(self.now.get().max(next));
        self.wall.now.store(self.now.get(), Ordering::Relaxed);
    }

    fn message_delay(&self, key: u64, there: bool) -> Duration {
        let mut delays = self.delays.borrow_mut();
        let Some(MessageDelays { random, max_delay, arrivals }) = delays.as_mut() else {
            return Duration::ZERO;
        };
        let now = self.now.get();
        let delay = random.between(1, *max_delay);
        let last = arrivals.entry((key, there)).or_default();
        *last = (now + delay).max(*last + 1);
        Duration::from_nanos(*last - now)
    }

    fn wake_handle(&self) -> Arc<dyn WakeHandle> {
        Arc::new(NoopWakeHandle)
    }
}

impl Clock for EventQueue {
    fn now(&self) -> Instant {
        Instant::from_nanos(self.now.get())
    }
}

/// A wake handle without effect: there are no other threads.
struct NoopWakeHandle;

impl WakeHandle for NoopWakeHandle {
    fn wake(&self) {}
}
