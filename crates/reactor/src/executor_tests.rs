use super::*;
use crate::{Home, ParkDriver, SystemClock};

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
fn another_thread_calls_and_gets_its_answer() {
    let (sender, receiver) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || {
        let reactor = reactor();
        let home = Home::settle(&reactor, Rc::new(Cell::new(41)));
        let (stop, stopped) = futures_channel::oneshot::channel::<()>();
        sender.send((home.clone(), stop)).unwrap();
        reactor.run(stopped).unwrap();
        home.evict();
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
fn a_call_to_a_reactor_that_is_gone_fails() {
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
fn shutting_down_drops_tasks_that_wait() {
    let reactor = reactor();
    let held = Rc::new(());
    let list = Rc::new(crate::WaitList::default());
    for _ in 0..3 {
        // The waiting task owns the list that owns its waker: nothing but the shutdown breaks that ring.
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
