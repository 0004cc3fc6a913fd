//! Rules for the names of buckets and the keys of objects.

use crate::error::{ObjectError, ObjectErrorKind, Result};

/// The longest key in bytes, as in S3.
pub const KEY_BYTES_MAX: usize = 1024;
/// The lengths of a bucket name in bytes, as in S3.
const BUCKET_NAME_MIN: usize = 3;
const BUCKET_NAME_MAX: usize = 63;

/// Checks a bucket name by the rules of S3: 3 to 63 lower-case letters, digits, hyphens and dots,
/// with a letter or digit at both ends and no two dots in a row.
///
/// # Errors
/// `Invalid`.
pub fn check_bucket_name(name: &str) -> Result<()> {
    let bytes = name.as_bytes();
    let is_alphanumeric = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let right = (BUCKET_NAME_MIN..=BUCKET_NAME_MAX).contains(&bytes.len())
        && bytes.iter().all(|byte| is_alphanumeric(byte) || *byte == b'-' || *byte == b'.')
        && bytes.first().is_some_and(is_alphanumeric)
        && bytes.last().is_some_and(is_alphanumeric)
        && !name.contains("..")
        && name.parse::<std::net::Ipv4Addr>().is_err();
    if right {
        return Ok(());
    }
    let shown: String = name.chars().take(80).flat_map(char::escape_debug).collect();
    Err(ObjectError::new(
        ObjectErrorKind::Invalid,
        format!(
            "'{shown}' is not a bucket name: use {BUCKET_NAME_MIN} to {BUCKET_NAME_MAX} lower-case letters, \
             digits, dots and hyphens, with a letter or digit at both ends"
        ),
    ))
}

/// Checks a key: 1 to 1,024 bytes without a zero byte.
///
/// # Errors
/// `Invalid`.
pub fn check_key(key: &str) -> Result<()> {
    let invalid = |message: String| Err(ObjectError::new(ObjectErrorKind::Invalid, message));
    if key.is_empty() {
        return invalid("the key is empty".into());
    }
    if key.len() > KEY_BYTES_MAX {
        return invalid(format!("the key has {} bytes: the maximum is {KEY_BYTES_MAX}", key.len()));
    }
    if key.contains('\0') {
        return invalid("the key contains a zero byte".into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bucket_names_follow_the_rules() {
        for name in ["abc", "my-bucket.1", &"a".repeat(63)] {
            check_bucket_name(name).unwrap();
        }
        for name in ["ab", "Abc", "-abc", "abc.", "a..b", "1.2.3.4", "a_b", "../x", "", &"a".repeat(64)] {
            assert_eq!(check_bucket_name(name).unwrap_err().kind(), ObjectErrorKind::Invalid, "{name}");
        }
    }

    #[test]
    fn keys_have_a_length_and_no_zero_byte() {
        check_key("../a/ü").unwrap();
        check_key(&"k".repeat(KEY_BYTES_MAX)).unwrap();
        for key in ["", "a\0b", &"k".repeat(KEY_BYTES_MAX + 1)] {
            assert_eq!(check_key(key).unwrap_err().kind(), ObjectErrorKind::Invalid);
        }
    }
}
