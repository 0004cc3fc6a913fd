//! Helpers of tests over real sockets.

use std::future::Future;
use std::rc::Rc;

use reactor::{Access, Backend, Buffer, Clock, Listener, Platform, Reactor, Stream, SystemClock};

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

/// Reads until the end of a connection.
pub(crate) async fn receive_all(client: Rc<Stream>) -> Vec<u8> {
    let mut received = Vec::new();
    let part = Buffer::new(256 << 10).span();
    while let Ok(count @ 1..) = client.read(&part).await {
        part.slice(0..count).peek(|bytes| received.extend_from_slice(bytes));
    }
    received
}
