//! Which parts of a buffer were filled. Pure.

use std::collections::BTreeMap;
use std::ops::Range;

/// The most parts that have gaps between them.
const PARTS_MAX: usize = 4096;

/// Which parts of a buffer a server has filled: each once, or what it says of the whole is worth
/// nothing.
#[derive(Default)]
pub(super) struct Filled {
    /// Ends by their starts; neighbours are one.
    parts: BTreeMap<usize, usize>,
}

impl Filled {
    /// Notes that a part was filled.
    ///
    /// # Errors
    /// When some of it was filled before, it is empty, or the parts are too many.
    pub(super) fn add(&mut self, place: &Range<usize>) -> Result<(), &'static str> {
        let before = self.parts.range(..place.end).next_back().map(|(start, end)| (*start, *end));
        if place.is_empty() || before.is_some_and(|(_, end)| end > place.start) {
            return Err("the same data twice, or none");
        }
        let end = self.parts.remove(&place.end).unwrap_or(place.end);
        match before.filter(|(_, end)| *end == place.start) {
            Some((start, _)) => self.parts.insert(start, end),
            None => self.parts.insert(place.start, end),
        };
        if self.parts.len() > PARTS_MAX { Err("data in too many parts") } else { Ok(()) }
    }

    /// True if all of so many bytes were filled.
    pub(super) fn is_all(&self, length: usize) -> bool {
        length == 0 || self.parts.get(&0) == Some(&length)
    }
}
