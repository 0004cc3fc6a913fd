//! Waiters for the signal are woken once.

use std::pin::pin;

use super::*;

fn poll(future: Pin<&mut impl Future<Output = ()>>) -> bool {
    future.poll(&mut Context::from_waker(Waker::noop())).is_ready()
}

#[test]
fn the_signal_stays_raised() {
    let stop = Stop::default();
    let mut before = pin!(stop.clone().raised());
    assert!(!poll(before.as_mut()));
    stop.raise();
    assert!(stop.is_raised() && poll(before) && poll(pin!(stop.raised())));
}

#[test]
fn cancelled_waiters_are_forgotten() {
    let stop = Stop::default();
    let mut kept = pin!(stop.raised());
    for _ in 0..10 {
        let mut given_up = Box::pin(stop.raised());
        assert!(!poll(given_up.as_mut()) && !poll(given_up.as_mut()) && !poll(kept.as_mut()));
    }
    assert_eq!(stop.shared.waiting.borrow().len(), 1);
    stop.raise();
    assert_eq!(stop.shared.waiting.borrow().len(), 0);
}
