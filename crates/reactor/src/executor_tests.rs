//! Tests of the executor: order, wake-ups, sleep, shutdown.

use super::*;
use crate::testing::{BACKENDS, start};
use crate::{Handle, ParkDriver, SystemClock, WakeHandle};

fn reactor() -> Reactor {
    let clock: Rc<dyn Clock> = Rc::new(SystemClock::new());
    Reactor::new(ParkDriver::new(clock.clone()), clock)
}

#[test]
fn tasks_run_in_the_order_they_were_spawned() {
    let reactor = reactor();
    let seen = Rc::new(RefCell::new(Vec::new()));
    let tasks: Vec<_> = (0..5)
        .map(|index| {
            let seen = seen.clone();
            let reactor_inside = reactor.clone();
            reactor.spawn(async move {
                seen.borrow_mut().push(index);
                reactor_inside.yield_now().await;
                seen.borrow_mut().push(10 + index);
            })
        })
        .collect();
    reactor.run(async {
        for task in tasks {
            task.await;
        }
    });
    assert_eq!(*seen.borrow(), [0, 1, 2, 3, 4, 10, 11, 12, 13, 14]);
}

#[test]
fn timers_fire_in_order_of_time() {
    let reactor = reactor();
    let seen = Rc::new(RefCell::new(Vec::new()));
    let tasks: Vec<_> = [3u64, 1, 2]
        .map(|millis| {
            let (seen, inside) = (seen.clone(), reactor.clone());
            reactor.spawn(async move {
                inside.sleep(Duration::from_millis(millis)).await;
                seen.borrow_mut().push(millis);
            })
        })
        .into();
    reactor.run(async {
        for task in tasks {
            task.await;
        }
    });
    assert_eq!(*seen.borrow(), [1, 2, 3]);
}

#[test]
fn a_call_from_another_thread_returns_its_result() {
    let (sender, receiver) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || {
        let reactor = reactor();
        let home = Handle::register(&reactor, Rc::new(Cell::new(41)));
        let (stop, stopped) = futures_channel::oneshot::channel::<()>();
        sender.send((home.clone(), stop)).unwrap();
        reactor.run(stopped).unwrap();
        home.unregister();
    });
    let (home, stop) = receiver.recv().unwrap();
    let here = reactor();
    for expected in 42..142 {
        let answer = here.run(home.call(|cell| async move {
            cell.set(cell.get() + 1);
            cell.get()
        }));
        assert_eq!(answer, Ok(expected));
    }
    stop.send(()).unwrap();
    thread.join().unwrap();
}

#[test]
fn calls_that_wait_complete_later() {
    let (sender, receiver) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || {
        let reactor = reactor();
        let (gate, gone) = (Rc::new(crate::Gate::default()), Rc::new(Cell::new(0)));
        gate.shut();
        let homes = (Handle::register(&reactor, gate), Handle::register(&reactor, gone));
        homes.1.unregister();
        let (stop, stopped) = futures_channel::oneshot::channel::<()>();
        sender.send((homes.clone(), stop)).unwrap();
        reactor.run(stopped).unwrap();
        homes.0.unregister();
    });
    let ((gate, gone), stop) = receiver.recv().unwrap();
    let here = reactor();
    let answers = here.run(async {
        let inside = here.clone();
        let waiting: Vec<_> = (0..10)
            .map(|number| {
                let gate = gate.clone();
                inside.spawn(async move {
                    gate.call(move |gate| async move {
                        gate.pass().await;
                        number
                    })
                    .await
                })
            })
            .collect();
        inside.yield_now().await;
        // Queued after the calls, which therefore wait.
        assert_eq!(gate.call(|gate| async move { gate.open() }).await, Ok(()));
        let mut answers = Vec::new();
        for waiting in waiting {
            answers.push(waiting.await.unwrap());
        }
        answers
    });
    assert_eq!(answers, (0..10).collect::<Vec<_>>());
    assert_eq!(here.run(gone.call(|gone| async move { gone.get() })), Err(crate::ReactorGone));
    stop.send(()).unwrap();
    thread.join().unwrap();
}

#[test]
fn a_call_to_a_reactor_that_has_shut_down_fails() {
    let remote = std::thread::spawn(|| {
        let reactor = reactor();
        reactor.shut_down();
        reactor.remote()
    })
    .join()
    .unwrap();
    assert!(remote.post(|| ()).is_err());
    assert!(reactor().run(remote.call(|| async {})).is_err());
}

#[test]
fn shutdown_drops_waiting_tasks() {
    let reactor = reactor();
    let held = Rc::new(());
    let list = Rc::new(crate::WaitList::default());
    for _ in 0..3 {
        // The waiting task owns the list that owns its waker: only the shutdown breaks this cycle.
        let (held, list) = (held.clone(), list.clone());
        reactor
            .spawn(async move { list.until(|| (Rc::strong_count(&held) == 99).then_some(())).await })
            .detach();
    }
    reactor.run(reactor.yield_now());
    assert_eq!(Rc::strong_count(&held), 4);
    reactor.shut_down();
    drop(reactor);
    assert_eq!(Rc::strong_count(&held), 1);
}

/// A clock that advances by `tick` on each read, and a driver that counts polls and sleeps by
/// setting that clock.
struct FakeDriver {
    now: Cell<u64>,
    tick: u64,
    polls: Cell<u32>,
    sleeps: RefCell<Vec<Option<u64>>>,
    /// Runs during the next sleep.
    dream: Cell<Option<Box<dyn FnOnce()>>>,
}

impl FakeDriver {
    fn new(tick: u64) -> (Rc<Self>, Reactor) {
        let fake = Rc::new(Self {
            now: Cell::new(0),
            tick,
            polls: Cell::new(0),
            sleeps: RefCell::default(),
            dream: Cell::default(),
        });
        (fake.clone(), Reactor::new(fake.clone(), fake))
    }
}

impl Clock for FakeDriver {
    fn now(&self) -> Instant {
        self.now.set(self.now.get() + self.tick);
        Instant::from_nanos(self.now.get())
    }
}

struct NoWakeExpected;

impl WakeHandle for NoWakeExpected {
    fn wake(&self) {
        panic!("woken from its own thread");
    }
}

impl Driver for FakeDriver {
    fn poll(&self) -> bool {
        self.polls.set(self.polls.get() + 1);
        false
    }

    fn sleep(&self, until: Option<Instant>) {
        self.sleeps.borrow_mut().push(until.map(Instant::as_nanos));
        if let Some(dream) = self.dream.take() {
            dream();
            return;
        }
        let until = until.expect("a sleep without end");
        self.now.set(self.now.get().max(until.as_nanos()));
    }

    fn wake_handle(&self) -> Arc<dyn WakeHandle> {
        Arc::new(NoWakeExpected)
    }
}

#[test]
fn an_idle_reactor_sleeps_once_until_its_timer() {
    let (fake, reactor) = FakeDriver::new(0);
    reactor.run(reactor.sleep(Duration::from_secs(1)));
    assert_eq!(*fake.sleeps.borrow(), [Some(1_000_000_000)]);
    assert_eq!(fake.polls.get(), 2, "one before the sleep and one after");
}

#[test]
fn without_timers_the_sleep_has_no_end() {
    let (fake, reactor) = FakeDriver::new(0);
    let notify = Rc::new(crate::Notify::default());
    let inside = notify.clone();
    fake.dream.set(Some(Box::new(move || inside.notify())));
    reactor.run(notify.notified());
    assert_eq!(*fake.sleeps.borrow(), [None]);
}

#[test]
fn an_idle_reactor_polls_then_sleeps() {
    let (fake, reactor) = FakeDriver::new(10);
    reactor.set_poll_before_sleep(Duration::from_nanos(1000));
    reactor.run(reactor.sleep(Duration::from_secs(1)));
    let polls = fake.polls.get();
    // Each poll reads the clock at most three times.
    assert!((1000 / 10 / 3..=1000 / 10 + 3).contains(&polls), "{polls} polls");
    assert_eq!(fake.sleeps.borrow().len(), 1);
    // After a long pause it sleeps at once; after two short ones it polls again, and work restarts
    // the polling time.
    reactor.run(async {
        for sleeps in [2, 3, 3, 3] {
            reactor.sleep(Duration::from_nanos(900)).await;
            assert_eq!(fake.sleeps.borrow().len(), sleeps);
        }
        reactor.sleep(Duration::from_secs(1)).await;
    });
    assert_eq!(fake.sleeps.borrow().len(), 4);
}

#[test]
fn sleep_and_vain_polls_are_not_busy_time() {
    for poll in [0, 1000] {
        let (fake, reactor) = FakeDriver::new(10);
        reactor.set_poll_before_sleep(Duration::from_nanos(poll));
        reactor.run(reactor.sleep(Duration::from_secs(1)));
        let idle = reactor.busy_time();
        assert!(idle < Duration::from_nanos(300), "{idle:?} of {} ns", fake.now.get());
        reactor.run(async { fake.now.set(fake.now.get() + 5000) });
        let busy = reactor.busy_time() - idle;
        assert!((5000..5300).contains(&busy.as_nanos()), "{busy:?}");
    }
}

#[test]
fn an_unpolled_sleep_does_not_poll() {
    let (fake, reactor) = FakeDriver::new(10);
    reactor.set_poll_before_sleep(Duration::from_nanos(1000));
    reactor.run(reactor.sleep_unpolled(Duration::from_nanos(900)));
    assert_eq!(fake.sleeps.borrow().len(), 1);
    assert!(fake.polls.get() <= 2, "{} polls", fake.polls.get());
    // Afterwards it polls as before.
    reactor.run(reactor.sleep(Duration::from_nanos(900)));
    assert_eq!(fake.sleeps.borrow().len(), 1);
}

#[test]
fn a_dropped_timer_wakes_no_task() {
    let (fake, reactor) = FakeDriver::new(0);
    let short = reactor.sleep(Duration::from_nanos(5));
    let inside = reactor.clone();
    let abandoned = reactor.spawn(async move { inside.sleep(Duration::from_nanos(3)).await });
    reactor.run(async {
        let mut short = pin!(short);
        // Polled by this task, then by another one: the last one is woken.
        std::future::poll_fn(|context| Poll::Ready(short.as_mut().poll(context).is_pending())).await;
        reactor.yield_now().await;
        abandoned.cancel().await;
        short.await;
    });
    assert_eq!(*fake.sleeps.borrow(), [Some(5)]);
}

#[test]
fn a_message_always_ends_the_sleep() {
    const CALLS: u64 = 50_000;
    for backend in BACKENDS {
        let (sender, receiver) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            let (_platform, reactor) = start(backend);
            let home = Handle::register(&reactor, Rc::new((reactor.clone(), Cell::new(0u64))));
            let (stop, stopped) = futures_channel::oneshot::channel::<()>();
            sender.send((home.clone(), stop)).unwrap();
            reactor.run(stopped).unwrap();
            home.unregister();
        });
        let (home, stop) = receiver.recv().unwrap();
        let (_platform, here) = start(backend);
        here.run(async {
            for call in 1..=CALLS {
                // Both sides poll for a time that differs from call to call, so that messages reach
                // reactors that poll, that are about to sleep, and that sleep. A missed message
                // would block the test.
                let polling = |step: u64| Duration::from_nanos(call * step % 4001);
                here.set_poll_before_sleep(polling(7919));
                let there = polling(6101);
                let answer = home.call(async move |resident| {
                    resident.0.set_poll_before_sleep(there);
                    resident.1.set(resident.1.get() + 1);
                    resident.1.get()
                });
                assert_eq!(answer.await, Ok(call));
            }
        });
        stop.send(()).unwrap();
        thread.join().unwrap();
    }
}

#[test]
fn a_job_posted_during_shutdown_is_run_or_dropped() {
    for _ in 0..200 {
        let (sender, receiver) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            let reactor = reactor();
            sender.send(reactor.remote()).unwrap();
            reactor.run(reactor.yield_now());
            reactor.shut_down();
        });
        let remote = receiver.recv().unwrap();
        let held = Arc::new(());
        loop {
            let held = held.clone();
            if remote.post(move || drop(held)).is_err() {
                break;
            }
        }
        thread.join().unwrap();
        assert_eq!(Arc::strong_count(&held), 1);
    }
}
