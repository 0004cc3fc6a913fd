//! An I/O that its caller must await.
//!
//! A transfer continues when its future is dropped: it would write to memory after the caller was
//! answered and reuses it, or to a zone after its segment was unpinned and the zone reused. Always
//! true (D2): an I/O is awaited before its caller is answered, and a future that is dropped earlier
//! stops the process. Shutdown of the reactor, which drops everything, is exempt: no caller is
//! answered any more.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use reactor::{Io, IoResult, Reactor};

/// An I/O that must be awaited (D2).
#[must_use = "an I/O in flight must be awaited"]
pub(crate) struct InFlight(Io);

impl InFlight {
    pub(crate) fn new(io: Io) -> Self {
        Self(io)
    }
}

impl Future for InFlight {
    type Output = IoResult;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<IoResult> {
        Pin::new(&mut self.0).poll(context)
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let abandoned = self.0.is_pending() && !std::thread::panicking() && Reactor::try_current().is_some();
        assert!(!abandoned, "D2: an I/O is dropped while it is in flight");
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use reactor::{Clock, ParkDriver, SystemClock, completion};

    use super::*;

    fn on_a_reactor(work: impl Future<Output = ()>) {
        let clock: Rc<dyn Clock> = Rc::new(SystemClock::new());
        Reactor::new(ParkDriver::new(clock.clone()), clock).run(work);
    }

    fn drop_in_flight() {
        let (_completer, io) = completion();
        drop(InFlight::new(io));
    }

    #[test]
    #[should_panic(expected = "D2")]
    fn an_io_dropped_in_flight_stops_the_reactor() {
        on_a_reactor(async { drop_in_flight() });
    }

    #[test]
    fn the_end_of_a_reactor_drops_what_is_in_flight() {
        drop_in_flight();
    }

    #[test]
    fn an_io_that_has_ended_may_be_dropped() {
        on_a_reactor(async {
            let (completer, io) = completion();
            let in_flight = InFlight::new(io);
            completer.complete(Ok(0));
            assert!(in_flight.await.is_ok());
        });
    }
}
