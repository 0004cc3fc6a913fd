//! Destroying what a drive holds, so that nobody takes it for what it was.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::{Inspection, Openers, blkid, signatures, size_of};
use crate::error::{Error, ErrorKind, Result};

/// Cleared at both ends of the drive, in bytes: where nearly everything keeps what it is known by.
const ENDS: u64 = 1 << 20;
/// Cleared around anything that was found elsewhere.
const AROUND: u64 = 4096;
/// Times to look again: behind what is cleared, older things may show.
const ROUNDS: usize = 8;

/// Clears everything that [`super::inspect`] finds on a drive, and its ends. Blocks the thread.
///
/// # Errors
/// When the drive cannot be written, or something still shows afterwards.
pub(crate) fn wipe(path: &Path) -> Result<()> {
    let failed = |error: io::Error| {
        Error::new(ErrorKind::Io, format!("cannot wipe {}: {error}", path.display()))
            .hint("make sure that the drive is writable; 'dmesg' says more")
    };
    let mut file = OpenOptions::new().read(true).write(true).open(path).map_err(failed)?;
    let size = size_of(&mut file).map_err(failed)?;
    clear(&file, 0, ENDS, size).map_err(failed)?;
    clear(&file, size.saturating_sub(ENDS), ENDS, size).map_err(failed)?;
    for _ in 0..ROUNDS {
        let found = signatures::find(&file, size).map_err(failed)?;
        if found.is_empty() {
            file.sync_all().map_err(failed)?;
            return check_unmarked(path);
        }
        for signature in found {
            let offset = signature.offset.unwrap_or(0);
            clear(&file, offset / AROUND * AROUND, AROUND, size).map_err(failed)?;
        }
    }
    let left = super::inspect(path, &Openers::default());
    let left = left.map_or_else(|error| error.to_string(), |left: Inspection| left.holdings());
    Err(Error::new(ErrorKind::Io, format!("{} still shows {left} after wiping", path.display()))
        .hint("the drive does not take writes: look at 'dmesg', and whether it is write-protected"))
}

/// Refuses a drive on which the system still finds something: it would be taken for that again.
fn check_unmarked(path: &Path) -> Result<()> {
    let Some(left) = blkid::ask(blkid::PROGRAM, path) else { return Ok(()) };
    let message = format!("{} still holds {left}, after wiping what Gabion knows", path.display());
    Err(Error::new(ErrorKind::Io, message).hint(format!("'wipefs --all {}' clears it", path.display())))
}

fn clear(file: &File, offset: u64, length: u64, size: u64) -> io::Result<()> {
    let length = length.min(size.saturating_sub(offset));
    let zeros = vec![0; usize::try_from(length).unwrap_or(0)];
    file.write_all_at(&zeros, offset)
}
