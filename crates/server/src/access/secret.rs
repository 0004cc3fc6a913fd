//! Secrets: random texts, and their hashes.

use ring::digest::{SHA256, digest};

use crate::error::Result;
use crate::request::fill_random;

/// Number of random bytes of a secret.
const SECRET_BYTES: usize = 32;

/// Returns bytes as hexadecimal digits.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns a new secret: 256 random bits as hexadecimal digits.
///
/// # Errors
/// When the system provides no random numbers.
pub(super) fn new_secret() -> Result<String> {
    let mut bytes = [0; SECRET_BYTES];
    fill_random(&mut bytes)?;
    Ok(hex(&bytes))
}

/// Returns the hash of a secret. A fast hash is enough for 256 random bits, which cannot be
/// guessed.
pub(super) fn hash(secret: &str) -> String {
    hex(digest(&SHA256, secret.as_bytes()).as_ref())
}

/// Compares two hashes in a time that does not depend on their contents.
pub(super) fn is_same(left: &str, right: &str) -> bool {
    let difference = left.bytes().zip(right.bytes()).fold(0, |found, (left, right)| found | (left ^ right));
    left.len() == right.len() && difference == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_sha_256() {
        assert_eq!(hash("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        assert!(is_same("ab", "ab") && !is_same("ab", "ac") && !is_same("ab", "abc") && !is_same("", "a"));
        let (first, second) = (new_secret().unwrap(), new_secret().unwrap());
        assert!(first != second && first.len() == 64);
    }
}
