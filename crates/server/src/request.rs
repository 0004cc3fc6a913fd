//! Helpers for requests: paths, printable names, random numbers.

use std::path::{Path, PathBuf};

use crate::error::{Error, ErrorKind, Result};

/// Returns a path of a request, which must be absolute.
///
/// # Errors
/// `Invalid`.
pub(crate) fn path(path: &str) -> Result<PathBuf> {
    if Path::new(path).is_absolute() && !path.contains('\0') {
        return Ok(PathBuf::from(path));
    }
    let message = format!("'{}' is not an absolute path", shown(path));
    Err(Error::new(ErrorKind::Invalid, message).hint("give the full path, such as /dev/nvme0n1"))
}

/// Escapes and shortens a text of a request for messages and logs.
pub(crate) fn shown(text: &str) -> String {
    text.chars().take(255).flat_map(char::escape_debug).collect()
}

/// Returns a random number from the system.
pub(crate) fn random() -> Result<u64> {
    let mut bytes = [0; 8];
    fill_random(&mut bytes)?;
    Ok(u64::from_le_bytes(bytes))
}

/// Fills `bytes` with random bytes from the system.
pub(crate) fn fill_random(bytes: &mut [u8]) -> Result<()> {
    getrandom::fill(bytes)
        .map_err(|error| Error::new(ErrorKind::Internal, format!("cannot read random numbers: {error}")))
}
