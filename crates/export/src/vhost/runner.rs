//! The task of a queue: polls while requests come, or lets them gather if they leave much time between them, and sleeps until a
//! notification when none do.
//!
//! Always true: a queue that sleeps has asked for a notification and has found nothing after that; an idle queue costs
//! nothing. Must not know what a turn does.

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

use super::queue::{Queue, Works};
use crate::Volume;

/// How long a queue without a descriptor for notifications sleeps between two looks.
const LOOK_AGAIN: Duration = Duration::from_micros(200);

/// Waits for the guest's notifications.
pub(super) struct Kick {
    platform: Rc<Platform>,
    descriptor: RefCell<Option<Arc<OwnedFd>>>,
    /// The descriptor is another one.
    replaced: Notify,
}

type Waiting = Pin<Box<dyn Future<Output = Result<(), IoError>>>>;

impl Kick {
    pub(super) fn new(platform: Rc<Platform>, descriptor: Option<OwnedFd>) -> Self {
        let descriptor = RefCell::new(descriptor.map(Arc::new));
        Self { platform, descriptor, replaced: Notify::default() }
    }

    /// Listens elsewhere from now on.
    pub(super) fn replace(&self, descriptor: Option<OwnedFd>) {
        *self.descriptor.borrow_mut() = descriptor.map(Arc::new);
        self.replaced.notify();
    }

    /// A wait for the next notification.
    fn wait(&self) -> Waiting {
        let (platform, descriptor) = (self.platform.clone(), self.descriptor.borrow().clone());
        match descriptor {
            Some(descriptor) => Box::pin(async move { platform.readable(&descriptor).await }),
            None => Box::pin(async {
                Reactor::current().sleep(LOOK_AGAIN).await;
                Ok(())
            }),
        }
    }

    /// Takes the notifications that there are. False if the descriptor is none that notifies: it would be ready for ever.
    fn clear(&self) -> bool {
        match &*self.descriptor.borrow() {
            None => true,
            // Somebody else may have taken them before us.
            Some(descriptor) => match rustix::io::read(descriptor, &mut [0; 8]) {
                Ok(bytes) => bytes > 0,
                Err(error) => matches!(error, Errno::AGAIN | Errno::INTR),
            },
        }
    }
}

/// Serves a queue until it is told to stop, and everything that was begun has been handed back.
pub(super) async fn run<V: Volume + 'static>(
    queue: Rc<Queue<V>>,
    kick: Rc<Kick>,
    poll: Duration,
    gather: Duration,
) {
    let reactor = Reactor::current();
    let works = Works::new(Queue::carry_out);
    let mut patience = AdaptivePoll::new(poll);
    let mut thrift = Coalescer::new(gather.min(poll), reactor.now());
    let mut idle: Option<Idle> = None;
    let mut waiting: Option<Waiting> = None;
    loop {
        if queue.turn(&works) {
            if let Some(idle) = idle.take() {
                thrift.record_idle(idle.length());
            }
            reactor.yield_now().await;
            continue;
        }
        if queue.has_stopped() {
            return;
        }
        if !patience.is_disabled() {
            let now = reactor.now();
            let idle = idle.get_or_insert(Idle { since: now, until: now });
            idle.until = now;
            if idle.length() < patience.poll_time() {
                match thrift.delay(now, queue.taken()) {
                    None => reactor.yield_now().await,
                    Some(length) => {
                        rest(&queue, &reactor, length).await;
                        idle.until = reactor.now();
                    }
                }
                continue;
            }
        }
        // Woken by what it has done itself before, it goes on being idle.
        let slept = queue.arm() && sleep(&queue, &kick, &mut waiting).await;
        queue.disarm();
        if slept && let Some(mut idle) = idle.take() {
            idle.until = reactor.now();
            patience.record_pause(idle.length());
            thrift.record_idle(idle.length());
        }
    }
}

/// A time without work.
struct Idle {
    since: Instant,
    /// The last moment at which there was none.
    until: Instant,
}

impl Idle {
    fn length(&self) -> Duration {
        self.until.since(self.since)
    }
}

/// Lets requests gather for a while; what ends meanwhile is handed back at once.
async fn rest<V: Volume + 'static>(queue: &Queue<V>, reactor: &Reactor, length: Duration) {
    let mut changed = pin!(queue.changed.notified());
    let mut rest = pin!(reactor.sleep_unpolled(length));
    poll_fn(|context| {
        if changed.as_mut().poll(context).is_ready() { Poll::Ready(()) } else { rest.as_mut().poll(context) }
    })
    .await;
}

/// Waits until there may be something to do. The wait for the guest is kept when something else comes first. False if
/// there was something at once.
async fn sleep<V: Volume + 'static>(queue: &Queue<V>, kick: &Kick, waiting: &mut Option<Waiting>) -> bool {
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
                        "a guest's notifications cannot be waited for: its queue is looked at now and then"
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
