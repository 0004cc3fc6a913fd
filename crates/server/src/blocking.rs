//! Work that outlives its request, and blocking work, kept off the thread of the API.

use std::future::Future;
use std::pin::Pin;

use tokio::task::JoinError;

use crate::error::{Error, ErrorKind, Result};

/// Runs `work` on a thread of its own, starting immediately.
///
/// # Errors
/// When `work` panics.
pub(crate) fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> impl Future<Output = Result<T>> + Send {
    // Boxed, as in `complete`.
    let work: Box<dyn FnOnce() -> T + Send> = Box::new(work);
    let running = tokio::task::spawn_blocking(work);
    async move { running.await.map_err(bug) }
}

/// Runs work to completion even if the client disconnects, which would leave it half done.
pub(crate) async fn complete<T: Send + 'static>(
    work: impl Future<Output = Result<T>> + Send + 'static,
) -> Result<T> {
    // Boxed: the code of a task is compiled once for each type of result, and not for each request.
    let work: Pin<Box<dyn Future<Output = Result<T>> + Send>> = Box::pin(work);
    tokio::spawn(work).await.map_err(bug)?
}

fn bug(panic: JoinError) -> Error {
    let message = format!("the operation ended because of a bug in the daemon: {panic}");
    Error::new(ErrorKind::Internal, message)
}
