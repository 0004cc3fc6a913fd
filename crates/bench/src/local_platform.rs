//! The I/O platform of this thread's reactor.

use std::cell::RefCell;
use std::rc::Rc;

use reactor::Platform;

thread_local! {
    static PLATFORM: RefCell<Option<Rc<Platform>>> = const { RefCell::new(None) };
}

/// Sets the platform, or removes it when the reactor ends.
pub(crate) fn set(platform: Option<Rc<Platform>>) {
    PLATFORM.set(platform);
}

/// Returns the platform.
///
/// # Panics
/// On a thread without a reactor.
pub(crate) fn current() -> Rc<Platform> {
    match PLATFORM.with_borrow(Clone::clone) {
        Some(platform) => platform,
        None => panic!("not on a reactor's thread"),
    }
}
