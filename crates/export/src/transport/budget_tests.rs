//! Charges are released, and waiters resume.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use super::*;

fn poll<T>(future: impl Future<Output = T>) -> Option<T> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => Some(value),
        Poll::Pending => None,
    }
}

fn budget(requests: usize, payload_bytes: usize) -> Rc<Budget> {
    Budget::new(requests, payload_bytes, &Reserve::new(1 << 30))
}

#[test]
fn requests_are_counted() {
    let budget = budget(2, 100);
    let first = poll(budget.charge_request(0)).unwrap();
    let second = poll(budget.charge_request(0)).unwrap();
    assert!(poll(budget.charge_request(0)).is_none());
    assert!(poll(budget.charge_bytes(100)).is_some());
    drop(first);
    let third = poll(budget.charge_request(0)).unwrap();
    assert!(poll(budget.idle()).is_none());
    drop((second, third));
    assert!(poll(budget.idle()).is_some());
}

#[test]
fn payload_is_counted_and_one_request_always_fits() {
    let budget = budget(10, 100);
    let large = poll(budget.charge_request(1000)).unwrap();
    assert!(poll(budget.charge_request(1)).is_none());
    assert!(poll(budget.charge_bytes(1)).is_none());
    drop(large);
    let small = poll(budget.charge_request(60)).unwrap();
    assert!(poll(budget.charge_request(41)).is_none());
    let exact = poll(budget.charge_request(40)).unwrap();
    assert!(poll(budget.charge_request(1)).is_none());
    drop((small, exact));
    assert!(poll(budget.charge_request(usize::MAX)).is_some());
}

#[test]
fn waiters_resume_when_charges_are_released() {
    let budget = budget(1, 100);
    let charge = poll(budget.charge_request(0)).unwrap();
    let mut waiting = pin!(budget.charge_request(0));
    let mut context = Context::from_waker(Waker::noop());
    assert!(waiting.as_mut().poll(&mut context).is_pending());
    drop(charge);
    assert!(waiting.as_mut().poll(&mut context).is_ready());
}

#[test]
fn a_connection_has_its_own_memory_and_shares_the_rest() {
    let reserve = Reserve::new(10 * OWN_BYTES);
    let budget = || Budget::new(128, 64 << 20, &reserve);
    let (greedy, modest) = (budget(), budget());
    let shared = poll(greedy.charge_request(10 * OWN_BYTES)).unwrap();
    let own = poll(greedy.charge_request(OWN_BYTES)).unwrap();
    assert!(poll(greedy.charge_request(1)).is_none());
    for _ in 0..10 {
        let half = poll(modest.charge_request(OWN_BYTES / 2)).unwrap();
        let other_half = poll(modest.charge_bytes(OWN_BYTES / 2)).unwrap();
        assert!(poll(modest.charge_request(1)).is_none());
        drop((half, other_half));
    }
    drop(own);
    assert!(poll(greedy.charge_request(OWN_BYTES)).is_some());
    assert!(poll(modest.charge_request(OWN_BYTES + 1)).is_none());
    drop(shared);
    assert!(poll(modest.charge_request(OWN_BYTES + 1)).is_some());
    assert_eq!((greedy.own_bytes.get(), modest.own_bytes.get()), (0, 0));
}
