//! A queue that is served: one task for each tag, which fetches a request, executes it, and
//! completes it while fetching the next.
//!
//! Always true: a request that has begun is executed and completed. After the queue is left, no
//! request begins any more. Later requests stay with the kernel for the next daemon. Must not know
//! the content of requests.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use reactor::{Reactor, WaitList};

use super::device::RequestChannel;
use super::execute::execute;
use crate::Volume;

/// A served queue of a ublk device.
pub(super) struct UblkQueue<V, E> {
    channel: E,
    /// `None` after the queue was left.
    volume: RefCell<Option<Rc<V>>>,
    /// Requests in flight.
    in_flight: Cell<u32>,
    /// Tags that may still get a request.
    open: Cell<u32>,
    changed: WaitList,
}

impl<V: Volume + 'static, E: RequestChannel + 'static> UblkQueue<V, E> {
    /// Fetches requests for `depth` tags from now on, on this thread's reactor.
    pub(super) fn start(volume: V, channel: E, depth: u16) -> Rc<Self> {
        let queue = Rc::new(Self {
            channel,
            volume: RefCell::new(Some(Rc::new(volume))),
            in_flight: Cell::new(0),
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
        let memory = self.channel.memory(tag);
        let mut completion = None;
        loop {
            let next = self.channel.commit_and_fetch(tag, completion);
            if completion.is_some() {
                self.change(&self.in_flight, |in_flight| in_flight - 1);
            }
            let Ok(request) = next.await else { break };
            let Some(volume) = self.volume.borrow().clone() else { break };
            self.change(&self.in_flight, |in_flight| in_flight + 1);
            completion = Some(execute(&*volume, &request, &memory).await);
        }
        self.change(&self.open, |open| open - 1);
    }

    fn change(&self, number: &Cell<u32>, step: impl FnOnce(u32) -> u32) {
        number.set(step(number.get()));
        self.changed.wake_all();
    }

    /// Stops beginning requests, and waits until all begun ones are completed. The queue holds no
    /// reference to the volume then.
    pub(super) async fn leave(&self) {
        self.volume.take();
        self.changed.until(|| (self.in_flight.get() == 0).then_some(())).await;
        // Submits the last results to the kernel.
        Reactor::current().yield_now().await;
    }

    /// Waits until no request can arrive any more, because the device is gone.
    pub(super) async fn ended(&self) {
        self.changed.until(|| (self.open.get() == 0).then_some(())).await;
    }
}

#[cfg(test)]
#[path = "queue_tests.rs"]
mod tests;
