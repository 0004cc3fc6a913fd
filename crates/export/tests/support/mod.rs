//! Parts that the tests of the network protocols share: a reactor on a thread of its own, and
//! futures of the control path.

use std::cell::RefCell;
use std::pin::pin;
use std::rc::Rc;
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{JoinHandle, Thread};
use std::time::{Duration, Instant};

use export::{FrontendContext, ReactorSet};
use futures_channel::oneshot;
use reactor::{Access, Backend, Clock, Platform, Reactor, Remote, SystemClock};

/// Longer than any step takes, on any machine.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);

thread_local! {
    static PLATFORM: RefCell<Option<Rc<Platform>>> = const { RefCell::new(None) };
}

fn platform() -> Rc<Platform> {
    PLATFORM.with_borrow(Clone::clone).unwrap()
}

/// Wakes a thread that polls a future.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Completes a future of the control path on this thread.
pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let (mut future, end) = (pin!(future), Instant::now() + TIMEOUT);
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return value;
        }
        std::thread::park_timeout(TIMEOUT);
        assert!(Instant::now() < end, "a step takes too long");
    }
}

/// A reactor that runs on a thread until this is dropped.
pub(crate) struct ReactorThread {
    backend: Backend,
    pub(crate) remote: Remote,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl ReactorThread {
    pub(crate) fn start(backend: Backend) -> Self {
        let (stop, stopped) = oneshot::channel::<()>();
        let (sender, receiver) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            let clock: Rc<dyn Clock> = Rc::new(SystemClock::new());
            let platform = Platform::new(backend, clock.clone()).unwrap();
            let reactor = Reactor::new(platform.clone(), clock);
            PLATFORM.set(Some(platform));
            sender.send(reactor.remote()).unwrap();
            let _ = reactor.run(stopped);
            reactor.shut_down();
            PLATFORM.set(None);
        });
        let remote = receiver.recv().unwrap();
        Self { backend, remote, stop: Some(stop), thread: Some(thread) }
    }

    /// The context of a frontend on this reactor.
    pub(crate) fn context(&self) -> FrontendContext {
        let reactors = ReactorSet::new(std::slice::from_ref(&self.remote), self.backend, platform);
        FrontendContext { reactors, access: Access::OWNER }
    }
}

impl Drop for ReactorThread {
    fn drop(&mut self) {
        drop(self.stop.take());
        let result = self.thread.take().unwrap().join();
        if !std::thread::panicking() {
            result.unwrap();
        }
    }
}
