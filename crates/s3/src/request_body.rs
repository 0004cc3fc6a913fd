//! A request body that records whether it was read to its end.
//!
//! An answer that is sent before the body was read ends the connection. A client that waits for
//! `100 Continue` may send the body or not, so the start of its next request is unknown.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use s3s::StdError;

/// A request body whose use is recorded.
pub(crate) struct RequestBody {
    inner: Incoming,
    is_read: Arc<AtomicBool>,
}

impl RequestBody {
    /// Returns the body, and a flag that is set at its end.
    pub(crate) fn new(inner: Incoming) -> (Self, Arc<AtomicBool>) {
        let is_read = Arc::new(AtomicBool::new(inner.is_end_stream()));
        (Self { inner, is_read: is_read.clone() }, is_read)
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = StdError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, StdError>>> {
        let frame = std::task::ready!(Pin::new(&mut self.inner).poll_frame(context));
        if frame.is_none() || self.inner.is_end_stream() {
            self.is_read.store(true, Ordering::Release);
        }
        Poll::Ready(frame.map(|frame| frame.map_err(StdError::from)))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
