//! Work that goes on to its end whatever becomes of whoever asked for it.

use std::future::Future;
use std::task::{Context, Waker};

use reactor::Reactor;

/// Begins work, as a task if it has to wait. What need not wait is done at once, which is cheaper.
pub(crate) fn begin(reactor: &Reactor, work: impl Future<Output = ()> + 'static) {
    let mut work = Box::pin(work);
    // Nobody wakes this waker's task: the task that takes over polls again at once.
    if work.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending() {
        reactor.spawn(work).detach();
    }
}
