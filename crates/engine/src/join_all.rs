//! Concurrent futures.

use std::future::Future;
use std::pin::Pin;
use std::task::Poll;

use crate::error::Result;

/// Runs futures concurrently. Returns the first error, after all futures have completed.
pub(crate) async fn join_all<F: Future<Output = Result<()>>>(futures: impl Iterator<Item = F>) -> Result<()> {
    let mut running: Vec<Option<Pin<Box<F>>>> = futures.map(|future| Some(Box::pin(future))).collect();
    let mut result = Ok(());
    std::future::poll_fn(|context| {
        let mut pending = false;
        for slot in &mut running {
            let Some(future) = slot else { continue };
            match future.as_mut().poll(context) {
                Poll::Ready(output) => {
                    if result.is_ok() {
                        result = output;
                    }
                    *slot = None;
                }
                Poll::Pending => pending = true,
            }
        }
        if pending { Poll::Pending } else { Poll::Ready(()) }
    })
    .await;
    result
}
