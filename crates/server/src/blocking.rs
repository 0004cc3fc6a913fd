//! Work that would block the thread that answers requests.

use crate::error::{Error, ErrorKind, Result};

/// Runs work on a thread where it may block.
///
/// # Errors
/// When it panics.
pub(crate) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T> {
    let ended = tokio::task::spawn_blocking(work).await;
    ended.map_err(|panic| Error::new(ErrorKind::Internal, format!("a bug in the daemon ended this: {panic}")))
}
