//! A pool of slots for the futures of requests, so that taking a request allocates nothing.
//!
//! Always true: a free slot is empty. Must not know the futures.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// A slot for a future.
type Place<F> = Pin<Box<Option<F>>>;

/// The free slots.
pub(super) struct Spares<F> {
    free: RefCell<Vec<Place<F>>>,
}

impl<F: Future<Output = ()> + 'static> Spares<F> {
    pub(super) fn new() -> Rc<Self> {
        Rc::new(Self { free: RefCell::default() })
    }

    /// Polls a future once. If it is not complete, returns a future for the rest, which the caller
    /// must spawn. The first poll has no waker, so the rest polls again immediately.
    pub(super) fn begin(self: &Rc<Self>, future: F) -> Option<impl Future<Output = ()> + use<F>> {
        let free = self.free.borrow_mut().pop();
        let mut place = free.unwrap_or_else(|| Box::pin(None));
        place.set(Some(future));
        let mut context = Context::from_waker(Waker::noop());
        if poll(&mut place, &mut context).is_ready() {
            self.give_back(place);
            return None;
        }
        let spares = self.clone();
        Some(async move {
            std::future::poll_fn(|context| poll(&mut place, context)).await;
            spares.give_back(place);
        })
    }

    fn give_back(&self, mut place: Place<F>) {
        place.set(None);
        self.free.borrow_mut().push(place);
    }
}

fn poll<F: Future<Output = ()>>(place: &mut Place<F>, context: &mut Context<'_>) -> Poll<()> {
    match place.as_mut().as_pin_mut() {
        Some(future) => future.poll(context),
        None => Poll::Ready(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_used_again() {
        let spares = Spares::new();
        let log = Rc::new(RefCell::new(Vec::new()));
        // Completes at poll number `polls + 1`.
        let work = |number: u32, mut polls: u32| {
            let log = log.clone();
            async move {
                let wait = |_: &mut Context<'_>| match polls.checked_sub(1) {
                    Some(left) => {
                        polls = left;
                        Poll::Pending
                    }
                    None => Poll::Ready(()),
                };
                std::future::poll_fn(wait).await;
                log.borrow_mut().push(number);
            }
        };
        for number in 0..3 {
            assert!(spares.begin(work(number, 0)).is_none());
            assert_eq!(spares.free.borrow().len(), 1);
        }
        let mut rest = Box::pin(spares.begin(work(3, 2)).unwrap());
        assert!(spares.begin(work(4, 0)).is_none(), "in a second slot");
        let mut context = Context::from_waker(Waker::noop());
        assert!(rest.as_mut().poll(&mut context).is_pending());
        assert_eq!(*log.borrow(), [0, 1, 2, 4]);
        assert!(rest.as_mut().poll(&mut context).is_ready());
        assert_eq!(*log.borrow(), [0, 1, 2, 4, 3]);
        assert_eq!(spares.free.borrow().len(), 2);
        assert!(spares.free.borrow().iter().all(|place| place.is_none()));
        drop(spares.begin(work(5, 1)));
        assert_eq!(spares.free.borrow().len(), 1, "the slot of a dropped future is gone");
    }
}
