//! Tests of synchronisation between tasks.

use super::*;
use crate::{Clock, ParkDriver, Reactor, SystemClock};

fn reactor() -> Reactor {
    let clock: Rc<dyn Clock> = Rc::new(SystemClock::new());
    Reactor::new(ParkDriver::new(clock.clone()), clock)
}

#[test]
fn a_semaphore_serves_in_order() {
    let reactor = reactor();
    let semaphore = Semaphore::new(1);
    let seen = Rc::new(RefCell::new(Vec::new()));
    let tasks: Vec<_> = (0..4)
        .map(|index| {
            let (semaphore, seen, inside) = (semaphore.clone(), seen.clone(), reactor.clone());
            reactor.spawn(async move {
                let permit = semaphore.acquire().await;
                inside.yield_now().await;
                seen.borrow_mut().push(index);
                drop(permit);
            })
        })
        .collect();
    reactor.run(async {
        for task in tasks {
            task.await;
        }
    });
    assert_eq!(*seen.borrow(), [0, 1, 2, 3]);
}

#[test]
fn a_dropped_sender_resolves_to_none() {
    let reactor = reactor();
    let (sender, receiver) = local_oneshot::<u32>();
    drop(sender);
    assert_eq!(reactor.run(receiver), None);
    let (sender, receiver) = local_oneshot();
    sender.send(5);
    assert_eq!(reactor.run(receiver), Some(5));
}

#[test]
fn a_gate_stays_shut_until_every_shut_is_undone() {
    let reactor = reactor();
    let gate = Rc::new(Gate::default());
    gate.shut();
    gate.shut();
    let passed = Rc::new(Cell::new(false));
    let task = {
        let (gate, passed) = (gate.clone(), passed.clone());
        reactor.spawn(async move {
            gate.pass().await;
            passed.set(true);
        })
    };
    reactor.run(async {
        gate.open();
        reactor.yield_now().await;
        assert!(!passed.get());
        gate.open();
        task.await;
    });
    assert!(passed.get());
}

#[test]
fn a_signal_stays_raised_until_taken() {
    let reactor = reactor();
    let notify = Notify::default();
    notify.notify();
    notify.notify();
    reactor.run(notify.notified());
    assert!(!notify.raised.get());
}

#[test]
fn a_dropped_waiter_passes_its_permit_on() {
    let reactor = reactor();
    let semaphore = Semaphore::new(1);
    reactor.run(async {
        let held = semaphore.acquire().await;
        let waiters: Vec<_> = (0..4)
            .map(|_| {
                let semaphore = semaphore.clone();
                reactor.spawn(async move { semaphore.acquire().await })
            })
            .collect();
        reactor.yield_now().await;
        let [first, second, third, fourth] = <[_; 4]>::try_from(waiters).ok().unwrap();
        // One waiter is dropped while it waits, one after it was granted the permit and before it
        // saw that.
        first.cancel().await;
        drop(held);
        second.cancel().await;
        drop(third.await);
        drop(fourth.await);
        drop(semaphore.acquire().await);
    });
}
