//! Strings and counts in the data of options.

use super::bytes::Reader;
use super::option_error::{BadOption, OptionError, TOO_SHORT, invalid};
use super::types::STRING_MAX;

/// Reads a string after its length.
pub(super) fn counted_string<'a>(reader: &mut Reader<'a>) -> Result<&'a str, BadOption> {
    let length = reader.u32().ok_or(TOO_SHORT)?;
    string(reader, usize::try_from(length).unwrap_or(usize::MAX))
}

/// Reads a string of `length` bytes.
pub(super) fn string<'a>(reader: &mut Reader<'a>, length: usize) -> Result<&'a str, BadOption> {
    if length > STRING_MAX {
        return Err(BadOption { error: OptionError::TooBig, message: "a name is longer than 4096 bytes" });
    }
    let bytes = reader.take(length).ok_or(TOO_SHORT)?;
    let string = str::from_utf8(bytes).map_err(|_| invalid("a name is not UTF-8"))?;
    if string.contains('\0') { Err(invalid("a name contains a NUL")) } else { Ok(string) }
}

/// Reads the number of elements that follow.
pub(super) fn count(reader: &mut Reader<'_>) -> Result<u32, BadOption> {
    reader.u32().ok_or(TOO_SHORT)
}

/// Returns the longest prefix of a text that the protocol permits.
pub(super) fn clipped(text: &str) -> &str {
    text.get(..text.floor_char_boundary(STRING_MAX)).unwrap_or(text)
}
