//! Waiting for one of two things.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

/// What came first.
pub(super) enum First<A, B> {
    Left(A),
    Right(B),
}

/// Waits for the first of two futures to end, and drops the other. If both could end, it is the left one.
pub(super) async fn race<A, B>(left: impl Future<Output = A>, right: impl Future<Output = B>) -> First<A, B> {
    let (mut left, mut right) = (pin!(left), pin!(right));
    poll_fn(|context| {
        if let Poll::Ready(value) = left.as_mut().poll(context) {
            return Poll::Ready(First::Left(value));
        }
        right.as_mut().poll(context).map(First::Right)
    })
    .await
}
