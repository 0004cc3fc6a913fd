//! A limit on the chunks of signed bodies: each is held in memory until its signature is verified.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use s3s::StdError;

/// The largest chunk in bytes.
const CHUNK_MAX: u64 = 16 << 20;
/// The text of the error.
pub(crate) const TOO_LARGE: &str = "a signed chunk is too large";

/// The place in the framing of `aws-chunked`.
enum FramePlace {
    /// In the size of a chunk, with the value so far.
    Size(u64),
    /// After the size, before the line feed.
    Extension(u64),
    /// In the data of a chunk and the line break after it, with the bytes left.
    Data(u64),
    /// After the last chunk.
    Trailer,
}

/// A body whose chunks are limited.
pub(crate) struct ChunkLimit {
    inner: s3s::Body,
    place: FramePlace,
}

impl ChunkLimit {
    pub(crate) fn new(inner: s3s::Body) -> Self {
        Self { inner, place: FramePlace::Size(0) }
    }

    /// Follows the framing. Malformed framing is left to the decoder.
    fn check(&mut self, bytes: &[u8]) -> Result<(), StdError> {
        let mut at = 0;
        while let Some(byte) = bytes.get(at) {
            match &mut self.place {
                FramePlace::Size(size) => {
                    at += 1;
                    match char::from(*byte).to_digit(16) {
                        Some(digit) => *size = size.saturating_mul(16).saturating_add(u64::from(digit)),
                        None => self.place = FramePlace::Extension(*size),
                    }
                    if let FramePlace::Size(size) = self.place
                        && size > CHUNK_MAX
                    {
                        return Err(format!("{TOO_LARGE}: the maximum is {CHUNK_MAX} bytes").into());
                    }
                }
                FramePlace::Extension(size) => {
                    at += 1;
                    if *byte == b'\n' {
                        self.place =
                            if *size == 0 { FramePlace::Trailer } else { FramePlace::Data(*size + 2) };
                    }
                }
                FramePlace::Data(left) => {
                    let skipped = (bytes.len() - at).min(usize::try_from(*left).unwrap_or(usize::MAX));
                    at += skipped;
                    *left -= skipped as u64;
                    if *left == 0 {
                        self.place = FramePlace::Size(0);
                    }
                }
                FramePlace::Trailer => return Ok(()),
            }
        }
        Ok(())
    }
}

impl Body for ChunkLimit {
    type Data = Bytes;
    type Error = StdError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, StdError>>> {
        let frame = std::task::ready!(Pin::new(&mut self.inner).poll_frame(context));
        Poll::Ready(frame.map(|frame| {
            let frame = frame?;
            if let Some(bytes) = frame.data_ref() {
                self.check(bytes)?;
            }
            Ok(frame)
        }))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(pieces: &[&[u8]]) -> bool {
        let mut limit = ChunkLimit::new(s3s::Body::empty());
        pieces.iter().all(|piece| limit.check(piece).is_ok())
    }

    #[test]
    fn only_large_chunks_are_refused() {
        assert!(check(&[b"3;chunk-signature=ff\r\nabc\r\n0;chunk-signature=ff\r\n\r\n"]));
        assert!(check(&[b"3;", b"x\r", b"\nab", b"c\r\n1", b"0\r\n0123456789abcdef\r\n0\r\n"]));
        assert!(check(&[b"1000000\r\n"]), "the largest chunk");
        assert!(!check(&[b"1000001\r\n"]));
        assert!(!check(&[b"ffffffffffffffffffffffff"]));
        assert!(!check(&[b"1\r\na\r\n", b"ffff", b"ffff;"]), "the second chunk");
    }
}
