//! What happens when our own code panics.
//!
//! Always true: a panic is one line of the log, with its place. On a reactor thread it ends the process: what the thread
//! was in the middle of is unknown, and a restart recovers what unknown state could destroy.

use std::backtrace::Backtrace;
use std::panic::PanicHookInfo;
use std::sync::Once;

use crate::reactors;

/// Makes panics be logged, and those of reactors be the end.
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
            message = "a bug on a reactor thread: the daemon ends here, before it can harm data; a restart recovers the pools",
            panic = message, place, thread, %backtrace
        );
        std::process::abort();
    }
    tracing::error!(message = "a bug", panic = message, place, thread, %backtrace);
}
