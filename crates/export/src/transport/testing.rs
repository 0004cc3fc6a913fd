//! Helpers of tests over real sockets.

use std::future::Future;
use std::rc::Rc;

use reactor::{Access, Backend, Clock, Listener, Platform, Reactor, Stream, SystemClock};

/// Runs `test` on each backend, with both ends of a connection.
pub(crate) fn on_each_backend<F: Future<Output = ()>>(test: impl Fn(Stream, Stream) -> F) {
    for backend in [Backend::Uring, Backend::Threads] {
        let clock: Rc<dyn Clock> = Rc::new(SystemClock::new());
        let platform = Platform::new(backend, clock.clone()).unwrap();
        let reactor = Reactor::new(platform.clone(), clock);
        reactor.run(async {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("socket");
            let listener = Listener::bind_unix(&platform, &path, Access::OWNER).unwrap();
            let client = Stream::connect_unix(&platform, &path).await.unwrap();
            test(client, listener.accept().await.unwrap()).await;
        });
        reactor.shut_down();
    }
}
