//! Blocking work, kept off the thread of the API.

use std::future::Future;

use crate::error::{Error, ErrorKind, Result};

/// Runs `work` on a thread of its own, starting immediately.
///
/// # Errors
/// When `work` panics.
pub(crate) fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> impl Future<Output = Result<T>> + Send {
    let running = tokio::task::spawn_blocking(work);
    async move {
        let bug = |panic| {
            let message = format!("the operation ended because of a bug in the daemon: {panic}");
            Error::new(ErrorKind::Internal, message)
        };
        running.await.map_err(bug)
    }
}
