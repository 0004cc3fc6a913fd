//! Sends bodies in pieces. The next piece is read while one is sent.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream;
use object::{BodyRead, BodyReader, ObjectError, ObjectErrorKind, PIECE_BYTES};
use s3s::dto::StreamingBlob;

/// The bytes of a piece. A smaller body is sent at once.
pub(crate) const SENT_PIECE: u64 = PIECE_BYTES as u64;

/// The part of a body that is not sent yet.
struct SendState {
    reader: Arc<dyn BodyReader>,
    range: Range<u64>,
    next: Option<BodyRead>,
}

impl SendState {
    fn begin_read(&mut self) {
        if self.range.is_empty() {
            return;
        }
        let (offset, length) = (self.range.start, (self.range.end - self.range.start).min(SENT_PIECE));
        self.range.start += length;
        let length = usize::try_from(length).unwrap_or(0);
        let begun = self.reader.begin_read(offset, length);
        self.next = Some(begun.unwrap_or_else(|| read_on_a_thread(self.reader.clone(), offset, length)));
    }
}

/// Reads a piece on a thread that may block.
fn read_on_a_thread(reader: Arc<dyn BodyReader>, offset: u64, length: usize) -> BodyRead {
    let reading = tokio::task::spawn_blocking(move || reader.read(offset, length));
    let failed = |error| ObjectError::new(ObjectErrorKind::Io, format!("a read was interrupted: {error}"));
    Box::pin(async move { reading.await.unwrap_or_else(|error| Err(failed(error))) })
}

/// A stream of the bytes `range` of a body.
pub(crate) fn stream_body(reader: Arc<dyn BodyReader>, range: Range<u64>) -> StreamingBlob {
    let mut state = SendState { reader, range, next: None };
    state.begin_read();
    let pieces = stream::unfold(state, |mut state| async move {
        let piece: Result<Bytes, std::io::Error> = state.next.take()?.await.map_err(std::io::Error::other);
        state.begin_read();
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

#[cfg(test)]
mod tests {
    use futures_util::StreamExt;

    use super::*;

    /// A body that is read without blocking at even pieces only, and fails at `fails_at`.
    struct TwoWays {
        body: Bytes,
        fails_at: u64,
    }

    impl TwoWays {
        fn slice(&self, offset: u64, length: usize) -> Result<Bytes, ObjectError> {
            if offset >= self.fails_at {
                return Err(ObjectError::new(ObjectErrorKind::Io, "broken"));
            }
            let start = usize::try_from(offset).unwrap();
            Ok(self.body.slice(start..start + length))
        }
    }

    impl BodyReader for TwoWays {
        fn read(&self, offset: u64, length: usize) -> Result<Bytes, ObjectError> {
            assert!(!(offset / SENT_PIECE).is_multiple_of(2), "the other way");
            self.slice(offset, length)
        }

        fn begin_read(&self, offset: u64, length: usize) -> Option<BodyRead> {
            let piece = self.slice(offset, length);
            (offset / SENT_PIECE).is_multiple_of(2).then(|| {
                let read: BodyRead = Box::pin(async move {
                    tokio::task::yield_now().await;
                    piece
                });
                read
            })
        }
    }

    async fn collect(fails_at: u64, range: Range<u64>) -> Result<Vec<u8>, usize> {
        let body: Bytes = (0..5 * SENT_PIECE + 99).map(|at| u8::try_from(at / 4096 % 251).unwrap()).collect();
        let mut stream = stream_body(Arc::new(TwoWays { body, fails_at }), range);
        let mut all = Vec::new();
        while let Some(piece) = stream.next().await {
            all.extend_from_slice(&piece.map_err(|_| all.len())?);
        }
        Ok(all)
    }

    #[tokio::test]
    async fn pieces_of_both_ways_are_sent_in_order() {
        let whole = collect(u64::MAX, 0..5 * SENT_PIECE + 99).await.unwrap();
        assert_eq!(whole.len() as u64, 5 * SENT_PIECE + 99);
        assert!((0..).zip(&whole).all(|(at, byte)| usize::from(*byte) == at / 4096 % 251));
        let part = collect(u64::MAX, SENT_PIECE - 7..2 * SENT_PIECE).await.unwrap();
        assert_eq!(
            part,
            whole[usize::try_from(SENT_PIECE).unwrap() - 7..usize::try_from(2 * SENT_PIECE).unwrap()]
        );
    }

    #[tokio::test]
    async fn a_failed_read_of_either_way_ends_the_body() {
        for broken in [2, 3] {
            let piece = usize::try_from(SENT_PIECE).unwrap();
            assert_eq!(
                collect(broken * SENT_PIECE, 0..5 * SENT_PIECE).await,
                Err(usize::try_from(broken).unwrap() * piece)
            );
        }
    }
}
