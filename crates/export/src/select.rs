//! Waiting for the first of two futures.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

/// The output of the future that completed first.
pub(super) enum Either<A, B> {
    Left(A),
    Right(B),
}

/// Waits for the first of two futures to complete, and drops the other. If both are ready, the left
/// one wins.
pub(super) async fn select<A, B>(
    left: impl Future<Output = A>,
    right: impl Future<Output = B>,
) -> Either<A, B> {
    let (mut left, mut right) = (pin!(left), pin!(right));
    poll_fn(|context| {
        if let Poll::Ready(value) = left.as_mut().poll(context) {
            return Poll::Ready(Either::Left(value));
        }
        right.as_mut().poll(context).map(Either::Right)
    })
    .await
}
