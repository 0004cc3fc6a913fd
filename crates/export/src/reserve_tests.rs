//! ReserveState memory: first come, first served, and nothing is lost.

use std::future::Future;
use std::pin::Pin;
use std::task::Context;

use proptest::prelude::*;

use super::*;

fn poll<T>(future: &mut Pin<Box<impl Future<Output = T> + ?Sized>>) -> Option<T> {
    match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => Some(value),
        Poll::Pending => None,
    }
}

#[test]
fn waiters_are_served_in_order() {
    let reserve = Reserve::new(10);
    let held = poll(&mut Box::pin(reserve.take(6))).unwrap();
    let (mut large, mut small) = (Box::pin(reserve.take(8)), Box::pin(reserve.take(1)));
    assert!(poll(&mut large).is_none() && poll(&mut small).is_none());
    drop(held);
    let (large, small) = (poll(&mut large).unwrap(), poll(&mut small).unwrap());
    assert_eq!(reserve.shared.left.get(), 1);
    drop((large, small));
    assert_eq!(reserve.shared.left.get(), 10);
}

#[test]
fn a_request_beyond_the_reserve_gets_all_of_it() {
    let reserve = Reserve::new(10);
    let held = poll(&mut Box::pin(reserve.take(1))).unwrap();
    let mut all = Box::pin(reserve.take(1000));
    assert!(poll(&mut all).is_none());
    drop(held);
    let all = poll(&mut all).unwrap();
    assert_eq!(reserve.shared.left.get(), 0);
    drop(all);
    assert_eq!(reserve.shared.left.get(), 10);
}

#[test]
fn a_cancelled_waiter_passes_its_turn_on() {
    let reserve = Reserve::new(10);
    let held = poll(&mut Box::pin(reserve.take(5))).unwrap();
    let (mut first, mut second) = (Box::pin(reserve.take(8)), Box::pin(reserve.take(5)));
    assert!(poll(&mut first).is_none() && poll(&mut second).is_none());
    // Not granted yet.
    drop(first);
    let second = poll(&mut second).unwrap();
    let mut third = Box::pin(reserve.take(6));
    assert!(poll(&mut third).is_none());
    drop((held, second));
    // Granted, but not taken.
    drop(third);
    assert_eq!(reserve.shared.left.get(), 10);
    assert!(reserve.shared.queue.borrow().is_empty());
}

proptest! {
    #[test]
    fn no_byte_and_no_waiter_is_lost(steps in prop::collection::vec((0..4u8, 1..12usize, any::<prop::sample::Index>()), 1..100)) {
        let reserve = Reserve::new(10);
        let mut waiting: Vec<Pin<Box<dyn Future<Output = ReservedBytes>>>> = Vec::new();
        let mut held: Vec<ReservedBytes> = Vec::new();
        for (step, bytes, index) in steps {
            match step {
                0 | 1 => {
                    let reserve = reserve.clone();
                    let mut take: Pin<Box<dyn Future<Output = ReservedBytes>>> = Box::pin(async move { reserve.take(bytes).await });
                    match poll(&mut take) {
                        Some(share) => held.push(share),
                        None => waiting.push(take),
                    }
                }
                2 if !held.is_empty() => drop(held.swap_remove(index.index(held.len()))),
                3 if !waiting.is_empty() => drop(waiting.remove(index.index(waiting.len()))),
                _ => {}
            }
            let mut left = Vec::new();
            for mut take in waiting.drain(..) {
                match poll(&mut take) {
                    Some(share) => held.push(share),
                    None => left.push(take),
                }
            }
            waiting = left;
            let used: usize = held.iter().map(|share| share.bytes).sum();
            prop_assert_eq!(used + reserve.shared.left.get(), 10);
            prop_assert_eq!(reserve.shared.queue.borrow().len(), waiting.len());
            // The first in the queue waits because there is not enough.
            if let Some(first) = reserve.shared.queue.borrow().front() {
                prop_assert!(first.bytes > reserve.shared.left.get());
            }
        }
    }
}
