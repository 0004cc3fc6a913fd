//! The parts of a buffer that a server has filled. Pure.

use std::collections::BTreeMap;
use std::ops::Range;

use super::ClientError;

/// The most parts with gaps between them.
const PARTS_MAX: usize = 4096;

/// The parts of a buffer that are filled, each once.
#[derive(Default)]
pub(super) struct Coverage {
    /// Ends by start; adjacent parts are merged.
    parts: BTreeMap<usize, usize>,
}

impl Coverage {
    /// Adds a part.
    ///
    /// # Errors
    /// When it is empty or overlaps an earlier part, or there are too many parts.
    pub(super) fn add(&mut self, place: &Range<usize>) -> Result<(), ClientError> {
        let before = self.parts.range(..place.end).next_back().map(|(start, end)| (*start, *end));
        if place.is_empty() || before.is_some_and(|(_, end)| end > place.start) {
            return Err(ClientError::protocol("empty or overlapping data"));
        }
        let end = self.parts.remove(&place.end).unwrap_or(place.end);
        match before.filter(|(_, end)| *end == place.start) {
            Some((start, _)) => self.parts.insert(start, end),
            None => self.parts.insert(place.start, end),
        };
        if self.parts.len() > PARTS_MAX {
            Err(ClientError::protocol("data in too many parts"))
        } else {
            Ok(())
        }
    }

    /// True if all of `length` bytes are filled.
    pub(super) fn is_complete(&self, length: usize) -> bool {
        length == 0 || self.parts.get(&0) == Some(&length)
    }
}
