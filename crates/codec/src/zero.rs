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

#[cfg(test)]
mod tests;
