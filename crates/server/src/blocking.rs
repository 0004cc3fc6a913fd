//! Work that would block the thread that answers requests.

use std::future::Future;

use crate::error::{Error, ErrorKind, Result};

/// Runs work on a thread where it may block. It begins at once.
///
/// # Errors
/// When it panics.
pub(crate) fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> impl Future<Output = Result<T>> + Send {
    let running = tokio::task::spawn_blocking(work);
    async move {
        let bug = |panic| Error::new(ErrorKind::Internal, format!("a bug in the daemon ended this: {panic}"));
        running.await.map_err(bug)
    }
}
