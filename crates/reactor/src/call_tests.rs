//! Tests of calls between reactors that start and shut down meanwhile.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use crate::{Clock, Handle, ParkDriver, Reactor, ReactorGone, SystemClock, WaitList};

fn reactor() -> Reactor {
    let clock: Rc<dyn Clock> = Rc::new(SystemClock::new());
    Reactor::new(ParkDriver::new(clock.clone()), clock)
}

/// Counts its live instances.
struct InstanceCount(Arc<AtomicUsize>);

impl InstanceCount {
    fn new(all: &Arc<AtomicUsize>) -> Self {
        all.fetch_add(1, Ordering::Relaxed);
        Self(all.clone())
    }
}

impl Drop for InstanceCount {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A reactor on another thread, with a registered object in which callers may wait. Runs until it
/// receives a shutdown.
struct Other {
    home: Handle<WaitList>,
    stop: futures_channel::oneshot::Sender<()>,
    thread: thread::JoinHandle<()>,
}

impl Other {
    fn start() -> Self {
        let (sender, receiver) = channel();
        let thread = thread::spawn(move || {
            let reactor = reactor();
            let home = Handle::register(&reactor, Rc::new(WaitList::default()));
            let (stop, stopped) = futures_channel::oneshot::channel();
            sender.send((home, stop)).unwrap();
            reactor.run(stopped).unwrap();
            reactor.shut_down();
        });
        let (home, stop) = receiver.recv().unwrap();
        Self { home, stop, thread }
    }

    fn shut_down(self) {
        self.stop.send(()).unwrap();
        self.thread.join().unwrap();
    }
}

#[test]
fn waiting_calls_fail_when_the_called_reactor_shuts_down() {
    let other = Other::start();
    let (here, all) = (reactor(), Arc::new(AtomicUsize::new(0)));
    here.run(async {
        let calls: Vec<_> = (0..10)
            .map(|_| {
                let (home, counted) = (other.home.clone(), InstanceCount::new(&all));
                here.spawn(async move {
                    home.call(|waiting| async move {
                        waiting.until(|| None::<()>).await;
                        drop(counted);
                    })
                    .await
                })
            })
            .collect();
        // Runs after the calls, which therefore wait there.
        here.yield_now().await;
        assert_eq!(other.home.call(|_| async { 7 }).await, Ok(7));
        assert_eq!(all.load(Ordering::Relaxed), 10);
        other.shut_down();
        for call in calls {
            assert_eq!(call.await, Err(ReactorGone));
        }
    });
    assert_eq!(all.load(Ordering::Relaxed), 0);
}

#[test]
fn work_completes_after_the_caller_drops_the_call() {
    let other = Other::start();
    let (here, all) = (reactor(), Arc::new(AtomicUsize::new(0)));
    here.run(async {
        let (home, counted) = (other.home.clone(), InstanceCount::new(&all));
        let done = all.clone();
        let call = here.spawn(async move {
            let answer = home.call(|waiting| async move {
                waiting
                    .until({
                        let looked = Cell::new(false);
                        move || looked.replace(true).then_some(())
                    })
                    .await;
                done.fetch_add(100, Ordering::Relaxed);
                counted
            });
            drop(answer.await);
        });
        here.yield_now().await;
        assert_eq!(other.home.call(|_| async {}).await, Ok(()));
        drop(call);
        assert_eq!(other.home.call(|waiting| async move { waiting.wake_all() }).await, Ok(()));
        while all.load(Ordering::Relaxed) != 100 {
            // The unwanted reply arrives at this reactor.
            here.sleep(Duration::from_micros(10)).await;
        }
    });
    other.shut_down();
}

#[test]
fn a_call_during_shutdown_completes_or_fails() {
    let mut answered = [0_usize; 2];
    for round in 0..300_u64 {
        let other = Other::start();
        let (here, all) = (reactor(), Arc::new(AtomicUsize::new(0)));
        here.run(async {
            let calls: Vec<_> = (0..8)
                .map(|_| {
                    let (home, counted) = (other.home.clone(), InstanceCount::new(&all));
                    here.spawn(async move {
                        let mut done = 0;
                        while home.call(|_| async move {}).await.is_ok() {
                            done += 1;
                        }
                        drop(counted);
                        done
                    })
                })
                .collect();
            here.sleep(Duration::from_micros(round)).await;
            other.shut_down();
            for call in calls {
                answered[usize::from(call.await > 0)] += 1;
            }
        });
        assert_eq!(all.load(Ordering::Relaxed), 0);
    }
    assert!(answered[1] > 0, "{answered:?}");
}

#[test]
fn a_reply_to_a_caller_that_has_shut_down_is_dropped() {
    let other = Other::start();
    let all = Arc::new(AtomicUsize::new(0));
    for _ in 0..100 {
        let (here, home, counted) = (reactor(), other.home.clone(), InstanceCount::new(&all));
        let calling = here.spawn(async move { drop(home.call(|_| async move { counted }).await) });
        here.run(here.yield_now());
        here.shut_down();
        drop(calling);
    }
    assert_eq!(Reactor::run(&reactor(), other.home.call(|_| async {})), Ok(()));
    other.shut_down();
    assert_eq!(all.load(Ordering::Relaxed), 0);
}
