//! A queue while it is served: a task for each of its places, which takes a request, carries it out, answers it with taking the next.
//!
//! Always true: a request that was begun is finished and answered; once the queue is left none is begun any more, and those that
//! come stay with the kernel, for the next daemon. Must not know what requests are.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use reactor::{Reactor, WaitList};

use super::device::Exchange;
use super::execute::execute;
use crate::Volume;

/// See the module.
pub(super) struct Queue<V, E> {
    exchange: E,
    /// Nothing when the queue was left.
    volume: RefCell<Option<Rc<V>>>,
    /// Requests that were begun and are not answered.
    under_way: Cell<u32>,
    /// Places that a request may still come to.
    open: Cell<u32>,
    changed: WaitList,
}

impl<V: Volume + 'static, E: Exchange + 'static> Queue<V, E> {
    /// Takes requests for `depth` places from now on, on the reactor of this thread.
    pub(super) fn start(volume: V, exchange: E, depth: u16) -> Rc<Self> {
        let queue = Rc::new(Self {
            exchange,
            volume: RefCell::new(Some(Rc::new(volume))),
            under_way: Cell::new(0),
            open: Cell::new(depth.into()),
            changed: WaitList::default(),
        });
        let reactor = Reactor::current();
        for tag in 0..depth {
            reactor.spawn(queue.clone().serve(tag)).detach();
        }
        queue
    }

    async fn serve(self: Rc<Self>, tag: u16) {
        let memory = self.exchange.memory(tag);
        let mut answer = None;
        loop {
            let next = self.exchange.exchange(tag, answer);
            if answer.is_some() {
                self.change(&self.under_way, |under_way| under_way - 1);
            }
            let Ok(request) = next.await else { break };
            let Some(volume) = self.volume.borrow().clone() else { break };
            self.change(&self.under_way, |under_way| under_way + 1);
            answer = Some(execute(&*volume, &request, &memory).await);
        }
        self.change(&self.open, |open| open - 1);
    }

    fn change(&self, number: &Cell<u32>, step: impl FnOnce(u32) -> u32) {
        number.set(step(number.get()));
        self.changed.wake_all();
    }

    /// Begins nothing any more, and waits until what was begun has been answered. Nothing holds the volume then.
    pub(super) async fn leave(&self) {
        self.volume.take();
        self.changed.until(|| (self.under_way.get() == 0).then_some(())).await;
        // The last answers go to the kernel.
        Reactor::current().yield_now().await;
    }

    /// Waits until no request can come any more: the device is gone.
    pub(super) async fn ended(&self) {
        self.changed.until(|| (self.open.get() == 0).then_some(())).await;
    }
}

#[cfg(test)]
#[path = "queue_tests.rs"]
mod tests;
