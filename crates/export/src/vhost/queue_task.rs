//! The task of a queue: polls while requests arrive, coalesces them if they are sparse, and sleeps
//! until a notification if there are none.
//!
//! Always true: a sleeping queue has requested a notification and found no requests afterwards. An
//! idle queue uses no CPU. Must not know the processing of requests.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::os::fd::OwnedFd;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use reactor::{AdaptivePoll, Coalescer, Instant, IoError, Notify, Platform, Reactor};
use rustix::io::Errno;

use super::queue::{Dispatcher, VirtQueue};
use crate::Volume;

/// Interval of checks for a queue without a notification descriptor.
const RECHECK_INTERVAL: Duration = Duration::from_micros(200);

/// Waits for the guest's notifications.
pub(super) struct KickEvent {
    platform: Rc<Platform>,
    descriptor: RefCell<Option<Arc<OwnedFd>>>,
    /// The descriptor was replaced.
    replaced: Notify,
}

type Waiting = Pin<Box<dyn Future<Output = Result<(), IoError>>>>;

impl KickEvent {
    pub(super) fn new(platform: Rc<Platform>, descriptor: Option<OwnedFd>) -> Self {
        let descriptor = RefCell::new(descriptor.map(Arc::new));
        Self { platform, descriptor, replaced: Notify::default() }
    }

    /// Waits on another descriptor from now on.
    pub(super) fn replace(&self, descriptor: Option<OwnedFd>) {
        *self.descriptor.borrow_mut() = descriptor.map(Arc::new);
        self.replaced.notify();
    }

    /// Returns a wait for the next notification.
    fn wait(&self) -> Waiting {
        let (platform, descriptor) = (self.platform.clone(), self.descriptor.borrow().clone());
        match descriptor {
            Some(descriptor) => Box::pin(async move { platform.readable(&descriptor).await }),
            None => Box::pin(async {
                Reactor::current().sleep(RECHECK_INTERVAL).await;
                Ok(())
            }),
        }
    }

    /// Consumes pending notifications. Returns false if the descriptor is not an event: it would
    /// stay ready forever.
    fn clear(&self) -> bool {
        match &*self.descriptor.borrow() {
            None => true,
            // Another thread may have consumed them.
            Some(descriptor) => match rustix::io::read(descriptor, &mut [0; 8]) {
                Ok(bytes) => bytes > 0,
                Err(error) => matches!(error, Errno::AGAIN | Errno::INTR),
            },
        }
    }
}

/// Serves a queue until it is stopped and all its requests are completed.
pub(super) async fn run<V: Volume + 'static>(
    queue: Rc<VirtQueue<V>>,
    kick: Rc<KickEvent>,
    poll: Duration,
    coalesce_delay: Duration,
) {
    let reactor = Reactor::current();
    let dispatcher = Dispatcher::new(VirtQueue::execute_request);
    let mut adaptive_poll = AdaptivePoll::new(poll);
    let mut coalescer = Coalescer::new(coalesce_delay.min(poll), reactor.now());
    let mut idle: Option<IdleTime> = None;
    let mut waiting: Option<Waiting> = None;
    loop {
        if queue.process(&dispatcher) {
            if let Some(idle) = idle.take() {
                coalescer.record_idle(idle.length());
            }
            reactor.yield_now().await;
            continue;
        }
        if queue.has_stopped() {
            return;
        }
        if !adaptive_poll.is_disabled() {
            let now = reactor.now();
            let idle = idle.get_or_insert(IdleTime { since: now, until: now });
            idle.until = now;
            if idle.length() < adaptive_poll.poll_time() {
                match coalescer.delay(now, queue.taken()) {
                    None => reactor.yield_now().await,
                    Some(length) => {
                        wait_coalescing(&queue, &reactor, length).await;
                        idle.until = reactor.now();
                    }
                }
                continue;
            }
        }
        // A wake-up by the queue's own work does not end the idle time.
        let slept = queue.arm() && sleep(&queue, &kick, &mut waiting).await;
        queue.disarm();
        if slept && let Some(mut idle) = idle.take() {
            idle.until = reactor.now();
            adaptive_poll.record_pause(idle.length());
            coalescer.record_idle(idle.length());
        }
    }
}

/// A period without work.
struct IdleTime {
    since: Instant,
    /// The last time at which there was no work.
    until: Instant,
}

impl IdleTime {
    fn length(&self) -> Duration {
        self.until.since(self.since)
    }
}

/// Lets requests accumulate for a while. Requests that complete meanwhile end the wait.
async fn wait_coalescing<V: Volume + 'static>(queue: &VirtQueue<V>, reactor: &Reactor, length: Duration) {
    let mut changed = pin!(queue.changed.notified());
    let mut pause = pin!(reactor.sleep_unpolled(length));
    poll_fn(|context| {
        if changed.as_mut().poll(context).is_ready() { Poll::Ready(()) } else { pause.as_mut().poll(context) }
    })
    .await;
}

/// Waits until there may be work. The wait for the guest is kept if another event ends the sleep.
/// Returns false if there was an event immediately.
async fn sleep<V: Volume + 'static>(
    queue: &VirtQueue<V>,
    kick: &KickEvent,
    waiting: &mut Option<Waiting>,
) -> bool {
    let mut slept = false;
    let mut changed = pin!(queue.changed.notified());
    let mut replaced = pin!(kick.replaced.notified());
    poll_fn(|context| {
        if changed.as_mut().poll(context).is_ready() {
            return Poll::Ready(());
        }
        if replaced.as_mut().poll(context).is_ready() {
            *waiting = None;
            return Poll::Ready(());
        }
        match waiting.get_or_insert_with(|| kick.wait()).as_mut().poll(context) {
            Poll::Pending => {
                slept = true;
                Poll::Pending
            }
            Poll::Ready(result) => {
                if result.is_err() || !kick.clear() {
                    tracing::warn!(
                        "cannot wait for the guest's notifications; polling its queue periodically"
                    );
                    kick.replace(None);
                }
                *waiting = None;
                Poll::Ready(())
            }
        }
    })
    .await;
    slept
}
