//! A pool of slots for the futures of requests, so that taking a request allocates nothing.
//!
//! Always true: a free slot is empty. Must not know the futures.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// A slot for a future.
type Slot<F> = Pin<Box<Option<F>>>;

/// The free slots.
pub(super) struct FuturePool<F> {
    free: RefCell<Vec<Slot<F>>>,
}

impl<F: Future<Output = ()> + 'static> FuturePool<F> {
    pub(super) fn new() -> Rc<Self> {
        Rc::new(Self { free: RefCell::default() })
    }

    /// Polls a future once. If it is not complete, returns a future for the rest, which the caller
    /// must spawn. The first poll has no waker, so the rest polls again immediately.
    pub(super) fn poll_once(self: &Rc<Self>, future: F) -> Option<impl Future<Output = ()> + use<F>> {
        let free = self.free.borrow_mut().pop();
        let mut slot = free.unwrap_or_else(|| Box::pin(None));
        slot.set(Some(future));
        let mut context = Context::from_waker(Waker::noop());
        if poll(&mut slot, &mut context).is_ready() {
            self.release(slot);
            return None;
        }
        let pool = self.clone();
        Some(async move {
            std::future::poll_fn(|context| poll(&mut slot, context)).await;
            pool.release(slot);
        })
    }

    fn release(&self, mut slot: Slot<F>) {
        slot.set(None);
        self.free.borrow_mut().push(slot);
    }
}

fn poll<F: Future<Output = ()>>(slot: &mut Slot<F>, context: &mut Context<'_>) -> Poll<()> {
    match slot.as_mut().as_pin_mut() {
        Some(future) => future.poll(context),
        None => Poll::Ready(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_reused() {
        let pool = FuturePool::new();
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
            assert!(pool.poll_once(work(number, 0)).is_none());
            assert_eq!(pool.free.borrow().len(), 1);
        }
        let mut rest = Box::pin(pool.poll_once(work(3, 2)).unwrap());
        assert!(pool.poll_once(work(4, 0)).is_none(), "in a second slot");
        let mut context = Context::from_waker(Waker::noop());
        assert!(rest.as_mut().poll(&mut context).is_pending());
        assert_eq!(*log.borrow(), [0, 1, 2, 4]);
        assert!(rest.as_mut().poll(&mut context).is_ready());
        assert_eq!(*log.borrow(), [0, 1, 2, 4, 3]);
        assert_eq!(pool.free.borrow().len(), 2);
        assert!(pool.free.borrow().iter().all(|slot| slot.is_none()));
        drop(pool.poll_once(work(5, 1)));
        assert_eq!(pool.free.borrow().len(), 1, "the slot of a dropped future is gone");
    }
}
