//! The panic hook.
//!
//! Invariants: a panic is logged in one line with its source location. A panic on a reactor thread
//! aborts the process, because the state of that thread is unknown and a restart recovers the
//! pools.

use std::backtrace::Backtrace;
use std::panic::PanicHookInfo;
use std::sync::Once;

use crate::reactors;

/// Installs a panic hook that logs panics and aborts the process after a panic on a reactor thread.
pub(crate) fn install() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| std::panic::set_hook(Box::new(report)));
}

fn report(panic: &PanicHookInfo<'_>) {
    let message = panic.payload_as_str().unwrap_or("a panic without a message");
    let place = panic.location().map(ToString::to_string).unwrap_or_default();
    let thread = std::thread::current();
    let thread = thread.name().unwrap_or("unnamed");
    let backtrace = Backtrace::force_capture();
    if reactors::is_reactor_thread() {
        tracing::error!(
            message = "panic on a reactor thread: the daemon aborts to protect the data; a restart recovers the pools",
            panic = message, place, thread, %backtrace
        );
        std::process::abort();
    }
    tracing::error!(message = "panic", panic = message, place, thread, %backtrace);
}
