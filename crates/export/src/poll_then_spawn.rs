//! Work that completes even if its requester is gone.

use std::future::Future;
use std::task::{Context, Waker};

use reactor::{BoxedTask, Reactor};

/// Polls `work` once, and spawns it as a task if it is not ready. Work that is ready at once needs
/// no task, which is cheaper.
pub(crate) fn poll_then_spawn(reactor: &Reactor, work: impl Future<Output = ()> + 'static) {
    let mut work: BoxedTask<()> = Box::pin(work);
    // The waker does nothing: the task polls again as its first step.
    if work.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending() {
        reactor.spawn_boxed(work).detach();
    }
}
