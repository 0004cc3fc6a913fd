//! Memory for the pieces of objects that clients read.
//!
//! The sender of a body drops a piece on a thread of its own, so the buffers are in a list of all
//! threads. Always true: a buffer belongs to one piece at a time.

use std::ops::Range;

use bytes::Bytes;
use object::{FreeList, PIECE_BYTES};
use reactor::Buffer;

/// The free buffers, each of [`PIECE_BYTES`].
#[derive(Clone, Default)]
pub(super) struct ReadBuffers(FreeList<Buffer>);

/// A part of a buffer, which returns to the free ones when it is dropped.
struct ReadPiece {
    /// Taken by the drop only.
    buffer: Option<Buffer>,
    range: Range<usize>,
    free: ReadBuffers,
}

impl ReadBuffers {
    /// Returns a buffer of [`PIECE_BYTES`] with arbitrary contents.
    pub(super) fn take(&self) -> Buffer {
        self.0.take(|| Buffer::new(PIECE_BYTES))
    }

    /// Returns a range of a buffer as bytes. Their last owner returns the buffer to the free ones.
    pub(super) fn piece(&self, buffer: Buffer, range: Range<usize>) -> Bytes {
        Bytes::from_owner(ReadPiece { buffer: Some(buffer), range, free: self.clone() })
    }
}

impl AsRef<[u8]> for ReadPiece {
    fn as_ref(&self) -> &[u8] {
        self.buffer.as_ref().and_then(|buffer| buffer.as_slice().get(self.range.clone())).unwrap_or_default()
    }
}

impl Drop for ReadPiece {
    fn drop(&mut self) {
        if let Some(buffer) = self.buffer.take() {
            self.free.0.give_back(buffer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_used_again_after_its_last_piece_was_dropped() {
        let buffers = ReadBuffers::default();
        let mut buffer = buffers.take();
        buffer.as_mut_slice()[100..103].copy_from_slice(b"abc");
        let address = buffer.as_slice().as_ptr();
        let piece = buffers.piece(buffer, 100..103);
        let clone = piece.slice(1..);
        drop(piece);
        assert_eq!(&clone[..], b"bc");
        assert_ne!(buffers.take().as_slice().as_ptr(), address, "a piece of it is in use");
        std::thread::spawn(move || drop(clone)).join().unwrap();
        assert_eq!(buffers.take().as_slice().as_ptr(), address);
    }
}
