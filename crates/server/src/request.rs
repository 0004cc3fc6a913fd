//! What requests have in common: paths, names as they are shown, random numbers.

use std::path::{Path, PathBuf};

use crate::error::{Error, ErrorKind, Result};

/// A path of a request, which must mean the same in every directory.
///
/// # Errors
/// `Invalid`.
pub(crate) fn path(path: &str) -> Result<PathBuf> {
    if Path::new(path).is_absolute() && !path.contains('\0') {
        return Ok(PathBuf::from(path));
    }
    let message = format!("'{}' is not an absolute path", shown(path));
    Err(Error::new(ErrorKind::Invalid, message).hint("write it from the root on: /dev/nvme0n1"))
}

/// A text of a request as it may be printed and logged.
pub(crate) fn shown(text: &str) -> String {
    text.chars().take(255).flat_map(char::escape_debug).collect()
}

/// A random number from the system.
pub(crate) fn random() -> Result<u64> {
    let mut bytes = [0; 8];
    fill_random(&mut bytes)?;
    Ok(u64::from_le_bytes(bytes))
}

/// Random bytes from the system.
pub(crate) fn fill_random(bytes: &mut [u8]) -> Result<()> {
    getrandom::fill(bytes)
        .map_err(|error| Error::new(ErrorKind::Internal, format!("no random numbers: {error}")))
}
