//! Work that waits for the kernel or for a server, beside the other calls of the driver.

use std::io;

/// Runs work on a thread of its own.
///
/// # Errors
/// If the work fails or panics.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(io::Error::other)?
}
