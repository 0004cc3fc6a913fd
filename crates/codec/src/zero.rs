//! Finding blocks that hold nothing but zeros, which are stored as holes.
//!
//! Owns `is_zero`. Must not know what a hole is.

use crate::Implementation;

/// Whether every byte of `data` is zero (true of no bytes). Stops at the first few that are not, so that data which is
/// not zero costs next to nothing.
#[must_use]
pub fn is_zero(data: &[u8]) -> bool {
    Implementation::best().is_zero(data)
}
