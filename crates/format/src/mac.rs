//! The keyed MAC of headers and superblocks.
//!
//! SipHash-2-4 with 128-bit output (Aumasson and Bernstein, 2012) under the pool's secret key. A
//! guest that writes bytes shaped like a header into its volume cannot compute a valid MAC for
//! them, and random damage goes undetected with probability 2^-128. The MAC does not protect
//! against an attacker who can read the drives.

use std::fmt;
use std::hash::Hasher;

use siphasher::sip128::{Hasher128, SipHasher24};

/// Bytes of a MAC.
pub(crate) const MAC_BYTES: usize = 16;

/// The pool's secret key.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PoolKey(pub [u8; 16]);

impl fmt::Debug for PoolKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PoolKey(..)")
    }
}

impl PoolKey {
    /// Returns the MAC of the concatenation of `parts`.
    pub(crate) fn mac(&self, parts: &[&[u8]]) -> [u8; MAC_BYTES] {
        let mut hasher = SipHasher24::new_with_key(&self.0);
        for part in parts {
            hasher.write(part);
        }
        hasher.finish128().as_bytes()
    }
}
