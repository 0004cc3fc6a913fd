//! Memory for the pieces of bodies that arrive.
//!
//! Threads of the store and of MD5s drop a piece, not the thread that received it, so the buffers
//! are in a list of all threads. Always true: a buffer belongs to one piece at a time.

use bytes::Bytes;
use object::{FreeList, PIECE_BYTES};

/// The free buffers, each with a capacity of [`PIECE_BYTES`].
#[derive(Clone, Default)]
pub(crate) struct PieceBuffers(FreeList<Vec<u8>>);

/// A piece that is being received. Its buffer returns to the free ones when it is dropped.
pub(crate) struct ReceivedPiece {
    bytes: Vec<u8>,
    free: PieceBuffers,
}

impl PieceBuffers {
    /// Returns an empty piece of a body that has `expected` more bytes. A short body gets memory
    /// for its own length.
    pub(crate) fn take(&self, expected: usize) -> ReceivedPiece {
        let bytes = if expected < PIECE_BYTES {
            Vec::with_capacity(expected)
        } else {
            self.0.take(|| Vec::with_capacity(PIECE_BYTES))
        };
        ReceivedPiece { bytes, free: self.clone() }
    }
}

impl ReceivedPiece {
    /// Appends the front of `bytes`, up to the full length. Returns the number of bytes.
    pub(crate) fn fill(&mut self, bytes: &[u8]) -> usize {
        let count = bytes.len().min(PIECE_BYTES.saturating_sub(self.bytes.len()));
        self.bytes.extend_from_slice(bytes.get(..count).unwrap_or_default());
        count
    }

    /// Returns the piece as bytes. Their last owner returns the buffer to the free ones.
    pub(crate) fn freeze(self) -> Bytes {
        Bytes::from_owner(self)
    }
}

impl AsRef<[u8]> for ReceivedPiece {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for ReceivedPiece {
    fn drop(&mut self) {
        if self.bytes.capacity() == PIECE_BYTES {
            let mut bytes = std::mem::take(&mut self.bytes);
            bytes.clear();
            self.free.0.give_back(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_used_again_after_its_last_piece_was_dropped() {
        let buffers = PieceBuffers::default();
        let mut piece = buffers.take(PIECE_BYTES);
        assert_eq!(piece.fill(b"abc"), 3);
        let bytes = piece.freeze();
        let (address, part) = (bytes.as_ptr(), bytes.slice(1..));
        drop(bytes);
        assert_eq!(&part[..], b"bc");
        assert_ne!(buffers.take(PIECE_BYTES).bytes.as_ptr(), address, "a part of it is in use");
        std::thread::spawn(move || drop(part)).join().unwrap();
        let again = buffers.take(usize::MAX);
        assert_eq!(again.bytes.as_ptr(), address);
        assert!(again.as_ref().is_empty());
    }

    #[test]
    fn a_piece_takes_bytes_up_to_its_length() {
        let buffers = PieceBuffers::default();
        let mut piece = buffers.take(2 * PIECE_BYTES);
        assert_eq!(piece.fill(&vec![1; PIECE_BYTES - 1]), PIECE_BYTES - 1);
        assert_eq!(piece.fill(&[2; 5]), 1);
        assert_eq!(piece.fill(&[3]), 0);
        assert_eq!(piece.as_ref().last(), Some(&2));
        // A body of unknown length.
        let mut grown = buffers.take(0);
        while grown.fill(&[7; 100_000]) > 0 {}
        assert_eq!(grown.as_ref().len(), PIECE_BYTES);
    }

    #[test]
    fn the_memory_of_a_short_body_is_not_kept() {
        let buffers = PieceBuffers::default();
        drop(buffers.take(1000));
        let mut is_free = true;
        buffers.0.take(|| {
            is_free = false;
            Vec::new()
        });
        assert!(!is_free);
    }
}
