//! Test helpers shared by the record tests: comparison of encoders and decoders.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Encodes a value; returns `None` if the encoder panics because the value is invalid.
pub(crate) fn encoded<T>(encode: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(encode)).ok()
}

/// Asserts that encoder and decoder agree on a value: both accept it and reproduce it, or both
/// refuse it. `accepted` is the expected result; `written` is the value as bytes, valid or not.
#[track_caller]
pub(crate) fn assert_both<T: PartialEq + std::fmt::Debug, E: std::fmt::Debug>(
    accepted: bool,
    value: &T,
    written: &[u8],
    encode: impl FnOnce() -> Vec<u8>,
    decode: impl Fn(&[u8]) -> Result<T, E>,
) {
    match (encoded(encode), decode(written)) {
        (Some(bytes), Ok(decoded)) => {
            assert_eq!(
                (bytes.as_slice(), &decoded),
                (written, value),
                "the decoded value differs from the stored one"
            );
            assert!(accepted, "both accept the invalid {value:?}");
        }
        (None, Err(_)) => assert!(!accepted, "both refuse the valid {value:?}"),
        (encoded, decoded) => {
            panic!("the encoder returns {:?}, the decoder {decoded:?}", encoded.map(|bytes| bytes.len()))
        }
    }
}
