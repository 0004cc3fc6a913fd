//! A minimal server, which shows the cost of wake-ups that every server for another thread has.
//!
//! A client passes the numbers of free slots through a list, and notifies the server by an eventfd;
//! the server submits an operation for each, and notifies the client of completions in the same
//! way. The server learns of a completion by a second wake-up, or the thread of the library passes
//! it to the client itself. The processor time of the client is not counted. Client and server are
//! threads of one process, so that a switch between them costs less than between processes.

#![allow(clippy::host_endian_bytes, reason = "the number of an event is one of the host")]

use std::future::Future;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use ceph::RbdImage;
use reactor::{Buffer, Span};
use rustix::event::{EventfdFlags, eventfd};

use super::{LoadPlan, Measured, Offsets, Outcome, WARM_UP, cpu_seconds};

/// A list of slots, and the event that announces entries.
struct SlotQueue {
    slots: Mutex<Vec<usize>>,
    event: OwnedFd,
}

impl SlotQueue {
    fn new() -> Outcome<Self> {
        Ok(Self { slots: Mutex::default(), event: eventfd(0, EventfdFlags::CLOEXEC)? })
    }

    fn push(&self, slots: impl IntoIterator<Item = usize>) {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner).extend(slots);
    }

    fn take(&self) -> Vec<usize> {
        std::mem::take(&mut *self.slots.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The counter of the event never reaches the number at which a write fails.
    fn notify(&self) {
        let written = rustix::io::write(&self.event, &1u64.to_ne_bytes());
        debug_assert!(written.is_ok(), "an eventfd accepts each notification");
    }

    fn wait(&self) -> rustix::io::Result<usize> {
        rustix::io::read(&self.event, &mut [0; 8][..])
    }
}

/// The queues between the client, the server and the library.
struct Relay {
    /// Slots to submit. Its event wakes the server.
    requests: SlotQueue,
    /// Slots to poll, if the server passes completions on. Announced by the event of the requests.
    completed: SlotQueue,
    /// Completed slots. Its event wakes the client.
    done: SlotQueue,
    /// The server learns of completions, and passes them on.
    wakes_twice: bool,
    stopped: AtomicBool,
}

/// Passes on the completion of a slot, on a thread of the library.
struct SlotCompletion {
    slot: usize,
    relay: Arc<Relay>,
}

impl Wake for SlotCompletion {
    fn wake(self: Arc<Self>) {
        let relay = &self.relay;
        let (list, event) =
            if relay.wakes_twice { (&relay.completed, &relay.requests) } else { (&relay.done, &relay.done) };
        list.push([self.slot]);
        event.notify();
    }
}

/// A slot of the server.
struct ServerSlot {
    span: Span,
    waker: Waker,
    operation: Option<Pin<Box<dyn Future<Output = ceph::Result<()>>>>>,
}

/// Measures the load through the minimal server. `wakes_twice`: the server wakes for completions.
pub(super) fn relay(load: &LoadPlan, image: &Arc<RbdImage>, wakes_twice: bool) -> Outcome<Measured> {
    let relay = Arc::new(Relay {
        requests: SlotQueue::new()?,
        completed: SlotQueue::new()?,
        done: SlotQueue::new()?,
        wakes_twice,
        stopped: AtomicBool::new(false),
    });
    let (depth, length, client) = (load.depth, load.length, relay.clone());
    let client = std::thread::spawn(move || {
        let measured = client_load(&client, depth, length).map_err(|error| error.to_string());
        client.stopped.store(true, Ordering::Release);
        client.requests.notify();
        measured
    });
    let mut offsets = Offsets::new(image.size());
    let mut slots: Vec<ServerSlot> = (0..depth)
        .map(|slot| ServerSlot {
            span: Buffer::zeroed(4096).span(),
            waker: Waker::from(Arc::new(SlotCompletion { slot, relay: relay.clone() })),
            operation: None,
        })
        .collect();
    loop {
        relay.requests.wait()?;
        if relay.stopped.load(Ordering::Acquire) {
            break;
        }
        // An operation may complete before its first poll, which then ends it.
        for slot in relay.requests.take() {
            let Some(place) = slots.get_mut(slot) else { continue };
            // The library has passed on the completion itself: the result is still to be checked.
            if let Some(Poll::Ready(result)) = place
                .operation
                .as_mut()
                .map(|last| last.as_mut().poll(&mut Context::from_waker(Waker::noop())))
            {
                result?;
            }
            let (image, span, at, writes) = (image.clone(), place.span.clone(), offsets.next(), load.writes);
            place.operation = Some(Box::pin(async move {
                if writes { image.write(at, &span).await } else { image.read(at, &span).await }
            }));
            relay_poll(&relay, slot, place)?;
        }
        for slot in relay.completed.take() {
            if let Some(place) = slots.get_mut(slot) {
                relay_poll(&relay, slot, place)?;
            }
        }
    }
    Ok(client.join().map_err(|_| "the client panicked")??)
}

/// Polls the operation of a slot, and tells the client if it has ended.
fn relay_poll(relay: &Relay, slot: usize, place: &mut ServerSlot) -> Outcome {
    let Some(operation) = place.operation.as_mut() else { return Ok(()) };
    if let Poll::Ready(result) = operation.as_mut().poll(&mut Context::from_waker(&place.waker)) {
        result?;
        place.operation = None;
        relay.done.push([slot]);
        relay.done.notify();
    }
    Ok(())
}

/// Measures the load, after a warm-up, without the processor time of this thread.
fn client_load(relay: &Relay, depth: usize, length: Duration) -> Outcome<Measured> {
    client_operations(relay, depth, WARM_UP)?;
    let (start, own, all) = (Instant::now(), thread_cpu_seconds()?, cpu_seconds(std::process::id())?);
    let operations = client_operations(relay, depth, length)?;
    let seconds = start.elapsed().as_secs_f64();
    let (all, own) = (cpu_seconds(std::process::id())? - all, thread_cpu_seconds()? - own);
    Ok(Measured { operations, seconds, cpu_seconds: all - own })
}

/// Keeps `depth` operations in flight for a time. Returns the number of completed ones.
fn client_operations(relay: &Relay, depth: usize, length: Duration) -> Outcome<u64> {
    let (start, mut operations, mut in_flight) = (Instant::now(), 0, depth);
    relay.requests.push(0..depth);
    relay.requests.notify();
    while in_flight > 0 {
        relay.done.wait()?;
        let done = relay.done.take();
        operations += done.len() as u64;
        if start.elapsed() > length {
            in_flight -= done.len();
        } else if !done.is_empty() {
            relay.requests.push(done);
            relay.requests.notify();
        }
    }
    Ok(operations)
}

/// Processor time of this thread in seconds.
fn thread_cpu_seconds() -> Outcome<f64> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat")?;
    let nanos = text.split_whitespace().next().ok_or("no schedstat")?.parse()?;
    Ok(Duration::from_nanos(nanos).as_secs_f64())
}
