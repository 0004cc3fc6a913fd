//! Waiting for the first of two futures.

use std::future::Future;
use std::pin::pin;

pub(super) use futures_util::future::Either;

/// Waits for the first of two futures to complete, and drops the other. If both are ready, the left
/// one wins.
pub(super) async fn select<A, B>(
    left: impl Future<Output = A>,
    right: impl Future<Output = B>,
) -> Either<A, B> {
    match futures_util::future::select(pin!(left), pin!(right)).await {
        Either::Left((value, _)) => Either::Left(value),
        Either::Right((value, _)) => Either::Right(value),
    }
}
