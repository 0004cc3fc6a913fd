//! Helpers shared by tests of the real backends.

use std::future::Future;
use std::rc::Rc;

use crate::{Backend, Buffer, Clock, Platform, Reactor, Span, SystemClock};

/// The backends that every test of files and sockets runs on.
pub(crate) const BACKENDS: [Backend; 2] = [Backend::Uring, Backend::Threads];

/// Returns a platform and its reactor.
pub(crate) fn start(backend: Backend) -> (Rc<Platform>, Reactor) {
    let clock: Rc<dyn Clock> = Rc::new(SystemClock::new());
    let platform = Platform::new(backend, clock.clone()).unwrap();
    let reactor = Reactor::new(platform.clone(), clock);
    (platform, reactor)
}

/// Runs `test` to completion on each backend.
pub(crate) fn on_each_backend<F: Future<Output = ()>>(test: impl Fn(Rc<Platform>, Reactor) -> F) {
    for backend in BACKENDS {
        let (platform, reactor) = start(backend);
        assert_eq!(platform.backend(), backend);
        reactor.run(test(platform.clone(), reactor.clone()));
        reactor.shut_down();
    }
}

/// Returns `len` bytes that differ by position and by `seed`.
pub(crate) fn pattern(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let step = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    (0..len).map(step).collect()
}

/// Returns the bytes of a span.
pub(crate) fn bytes(span: &Span) -> Vec<u8> {
    let mut bytes = vec![0; span.len()];
    span.copy_to(0, &mut bytes);
    bytes
}

/// Returns a span with these bytes.
pub(crate) fn span_of(bytes: &[u8]) -> Span {
    Buffer::copy_of(bytes).span()
}
