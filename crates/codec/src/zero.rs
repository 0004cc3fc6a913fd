//! Detection of blocks of zeros, which are stored as holes.
//!
//! Owns `is_zero`. Must not know about holes.

use crate::Implementation;

/// Returns true if every byte of `data` is zero (also for no bytes). Stops at the first nonzero
/// group of bytes, so most data that is not zero costs almost nothing.
#[must_use]
pub fn is_zero(data: &[u8]) -> bool {
    Implementation::best().is_zero(data)
}

/// Does the same as [`is_zero`], 64 bytes at a time, in a form that compilers vectorise.
pub(crate) fn is_zero_by_words(data: &[u8]) -> bool {
    let (groups, rest) = data.as_chunks::<64>();
    let is_zero = |group: &[u8; 64]| group.iter().fold(0, |any, &byte| any | byte) == 0;
    groups.iter().all(is_zero) && rest.iter().all(|&byte| byte == 0)
}

#[cfg(test)]
mod tests;
