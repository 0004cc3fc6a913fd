//! Memory for the pieces of bodies that arrive.
//!
//! Threads of the store and of MD5s drop a piece, not the thread that received it. These buffers
//! are used again by any thread, so that their pages are not cleared for each piece. Always true: a
//! buffer belongs to one piece at a time.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;

/// The bytes of a piece. Smaller bodies stay in memory.
pub(crate) const PIECE: usize = 1 << 20;
/// Maximum number of free buffers that are kept.
const FREE_MAX: usize = 64;

/// The free buffers, each with a capacity of [`PIECE`].
#[derive(Clone, Default)]
pub(crate) struct PieceBuffers(Arc<Mutex<Vec<Vec<u8>>>>);

/// A piece that is being received. Its buffer returns to the free ones when it is dropped.
pub(crate) struct ReceivedPiece {
    bytes: Vec<u8>,
    free: PieceBuffers,
}

impl PieceBuffers {
    /// Returns an empty piece of a body that has `expected` more bytes. A short body gets memory
    /// for its own length.
    pub(crate) fn take(&self, expected: usize) -> ReceivedPiece {
        let bytes = if expected < PIECE {
            Vec::with_capacity(expected)
        } else {
            let free = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop();
            free.unwrap_or_else(|| Vec::with_capacity(PIECE))
        };
        ReceivedPiece { bytes, free: self.clone() }
    }
}

impl ReceivedPiece {
    /// Appends the front of `bytes`, up to the full length. Returns the number of bytes.
    pub(crate) fn fill(&mut self, bytes: &[u8]) -> usize {
        let count = bytes.len().min(PIECE.saturating_sub(self.bytes.len()));
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
        if self.bytes.capacity() != PIECE {
            return;
        }
        let mut bytes = std::mem::take(&mut self.bytes);
        bytes.clear();
        let mut free = self.free.0.lock().unwrap_or_else(PoisonError::into_inner);
        if free.len() < FREE_MAX {
            free.push(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_used_again_after_its_last_piece_was_dropped() {
        let buffers = PieceBuffers::default();
        let mut piece = buffers.take(PIECE);
        assert_eq!(piece.fill(b"abc"), 3);
        let bytes = piece.freeze();
        let (address, part) = (bytes.as_ptr(), bytes.slice(1..));
        drop(bytes);
        assert_eq!(&part[..], b"bc");
        assert_ne!(buffers.take(PIECE).bytes.as_ptr(), address, "a part of it is in use");
        std::thread::spawn(move || drop(part)).join().unwrap();
        let again = buffers.take(usize::MAX);
        assert_eq!(again.bytes.as_ptr(), address);
        assert!(again.as_ref().is_empty());
    }

    #[test]
    fn a_piece_takes_bytes_up_to_its_length() {
        let buffers = PieceBuffers::default();
        let mut piece = buffers.take(2 * PIECE);
        assert_eq!(piece.fill(&vec![1; PIECE - 1]), PIECE - 1);
        assert_eq!(piece.fill(&[2; 5]), 1);
        assert_eq!(piece.fill(&[3]), 0);
        assert_eq!(piece.as_ref().last(), Some(&2));
        // A body of unknown length.
        let mut grown = buffers.take(0);
        while grown.fill(&[7; 100_000]) > 0 {}
        assert_eq!(grown.as_ref().len(), PIECE);
    }

    #[test]
    fn free_buffers_are_limited_and_short_ones_are_not_kept() {
        let buffers = PieceBuffers::default();
        let pieces: Vec<Bytes> = (0..FREE_MAX + 3).map(|_| buffers.take(PIECE).freeze()).collect();
        drop(pieces);
        drop(buffers.take(1000));
        let free = buffers.0.lock().unwrap();
        assert_eq!(free.len(), FREE_MAX);
        assert!(free.iter().all(|bytes| bytes.capacity() == PIECE));
    }
}
