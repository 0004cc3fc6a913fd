//! Execution of calls: each runs to its end, and is logged, with its duration and the share of the
//! programs that it ran, such as mkfs.

use std::future::Future;
use std::pin::Pin;
use std::time::{Duration, Instant};

use tonic::{Code, Response, Status};

use crate::host::program;

/// Runs a call to its end, also if the client cancels it: a program such as mkfs would continue to
/// run while the next call already has the lock of the volume.
///
/// # Errors
/// The error of the call.
pub(crate) async fn run<T: Send + 'static>(
    name: &'static str,
    object: String,
    call: impl Future<Output = Result<T, Status>> + Send + 'static,
) -> Result<Response<T>, Status> {
    let work = async move {
        let started = Instant::now();
        let (result, of_programs) = program::measure(call).await;
        let (milliseconds, of_programs) = (in_milliseconds(started.elapsed()), in_milliseconds(of_programs));
        match &result {
            Ok(_) => tracing::info!(call = name, object, milliseconds, of_programs, "done"),
            Err(status) if matches!(status.code(), Code::Internal | Code::Unknown) => {
                tracing::error!(
                    call = name,
                    object,
                    milliseconds,
                    of_programs,
                    error = status.message(),
                    "failed"
                );
            }
            Err(status) => {
                let (code, error) = (status.code(), status.message());
                tracing::warn!(call = name, object, milliseconds, of_programs, ?code, error, "refused");
            }
        }
        result
    };
    // Boxed: the code of a task is compiled once for each type of reply.
    let work: Pin<Box<dyn Future<Output = Result<T, Status>> + Send>> = Box::pin(work);
    let ended = tokio::spawn(work).await;
    ended.map_err(|error| Status::internal(format!("{name}: {error}")))?.map(Response::new)
}

fn in_milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
