//! What tests of records share: whether an encoder takes a value.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Encodes a value; `None` if the encoder panics, as it does over what the format does not allow.
pub(crate) fn encoded<T>(encode: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(encode)).ok()
}

/// Asserts that encoder and decoder agree over a value, and that the answer is the expected one:
/// both take it, and give it back the same, or both refuse it. `written` is the value as bytes,
/// whether it may be stored or not.
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
            assert_eq!((bytes.as_slice(), &decoded), (written, value), "a value is what was stored");
            assert!(accepted, "both accept {value:?}");
        }
        (None, Err(_)) => assert!(!accepted, "both refuse {value:?}"),
        (encoded, decoded) => {
            panic!("the encoder gives {:?}, the decoder {decoded:?}", encoded.map(|bytes| bytes.len()))
        }
    }
}
