//! Finding blocks that hold nothing but zeros, which are stored as holes.
//!
//! Owns `is_zero`. Must not know what a hole is.

use crate::Implementation;

/// Whether every byte of `data` is zero (true of no bytes). Stops at the first few that are not, so that data
/// which is not zero costs next to nothing.
#[must_use]
pub fn is_zero(data: &[u8]) -> bool {
    Implementation::best().is_zero(data)
}

/// As [`is_zero`], 64 bytes at a time, in a shape that compilers vectorise.
pub(crate) fn is_zero_by_words(data: &[u8]) -> bool {
    let (groups, rest) = data.as_chunks::<64>();
    let is_zero = |group: &[u8; 64]| group.iter().fold(0, |any, &byte| any | byte) == 0;
    groups.iter().all(is_zero) && rest.iter().all(|&byte| byte == 0)
}

#[cfg(test)]
mod tests;
