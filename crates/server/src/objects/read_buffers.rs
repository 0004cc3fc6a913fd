//! Memory for the pieces of objects that clients read.
//!
//! The sender of a body drops a piece on a thread of its own. A buffer that one thread allocates
//! and another one drops is never recycled; these are, by any thread, so that the pieces of a body
//! are neither cleared nor copied. Always true: a buffer belongs to one piece at a time.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use reactor::Buffer;

/// The length of a buffer in bytes: a piece of the S3 service.
pub(super) const READ_BUFFER_BYTES: usize = 1 << 20;
/// Maximum number of free buffers that are kept.
const FREE_MAX: usize = 64;

/// The free buffers.
#[derive(Clone, Default)]
pub(super) struct ReadBuffers(Arc<Mutex<Vec<Buffer>>>);

/// A part of a buffer, which returns to the free ones when it is dropped.
struct ReadPiece {
    /// Taken by the drop only.
    buffer: Option<Buffer>,
    range: Range<usize>,
    free: ReadBuffers,
}

impl ReadBuffers {
    /// Returns a buffer of [`READ_BUFFER_BYTES`] with arbitrary contents.
    pub(super) fn take(&self) -> Buffer {
        let free = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop();
        free.unwrap_or_else(|| Buffer::new(READ_BUFFER_BYTES))
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
        let mut free = self.free.0.lock().unwrap_or_else(PoisonError::into_inner);
        if free.len() < FREE_MAX {
            free.extend(self.buffer.take());
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
        let pieces: Vec<Bytes> = (0..FREE_MAX + 3).map(|_| buffers.piece(buffers.take(), 0..1)).collect();
        drop(pieces);
        assert_eq!(buffers.0.lock().unwrap().len(), FREE_MAX);
    }
}
