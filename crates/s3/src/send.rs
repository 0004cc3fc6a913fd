//! Sends bodies in pieces. The next piece is read while one is sent.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream;
use object::{BodyReader, ObjectError};
use s3s::dto::StreamingBlob;
use tokio::task::JoinHandle;

/// The bytes of a piece. A smaller body is sent at once.
pub(crate) const PIECE: u64 = 1 << 20;

type PieceRead = JoinHandle<Result<Bytes, ObjectError>>;

/// The part of a body that is not sent yet.
struct SendState {
    reader: Arc<dyn BodyReader>,
    range: Range<u64>,
    next: Option<PieceRead>,
}

impl SendState {
    fn begin_read(&mut self) {
        if self.range.is_empty() {
            return;
        }
        let (offset, length) = (self.range.start, (self.range.end - self.range.start).min(PIECE));
        self.range.start += length;
        let reader = self.reader.clone();
        let length = usize::try_from(length).unwrap_or(0);
        self.next = Some(tokio::task::spawn_blocking(move || reader.read(offset, length)));
    }
}

/// A stream of the bytes `range` of a body.
pub(crate) fn stream_body(reader: Arc<dyn BodyReader>, range: Range<u64>) -> StreamingBlob {
    let mut state = SendState { reader, range, next: None };
    state.begin_read();
    let pieces = stream::unfold(state, |mut state| async move {
        let piece = state.next.take()?.await;
        state.begin_read();
        let piece = match piece {
            Ok(Ok(bytes)) => Ok(bytes),
            Ok(Err(error)) => Err(std::io::Error::other(error)),
            Err(error) => Err(std::io::Error::other(error)),
        };
        if let Err(error) = &piece {
            tracing::error!(%error, "cannot read an object");
            state.next = None;
        }
        Some((piece, state))
    });
    StreamingBlob::wrap(pieces)
}

/// A body in memory.
pub(crate) fn whole_body(bytes: Bytes) -> StreamingBlob {
    StreamingBlob::from(s3s::Body::from(bytes))
}
