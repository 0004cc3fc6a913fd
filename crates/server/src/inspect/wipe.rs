//! Erasing the signatures on a drive, so that no program recognises its old contents.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::{Inspection, Openers, blkid, signatures, size_of};
use crate::error::{Error, ErrorKind, Result};

/// Bytes cleared at each end of the drive, where nearly all formats keep their signatures.
const ENDS: u64 = 1 << 20;
/// Bytes cleared around a signature elsewhere.
const BLOCK: u64 = 4096;
/// Maximum number of passes: clearing a signature may uncover an older one.
const PASSES_MAX: usize = 8;

/// Clears both ends of a drive and every signature that [`super::inspect`] finds. Blocks the
/// thread.
///
/// # Errors
/// When the drive cannot be written, or signatures are left.
pub(crate) fn wipe(path: &Path) -> Result<()> {
    let failed = |error: io::Error| {
        Error::new(ErrorKind::Io, format!("cannot erase {}: {error}", path.display()))
            .hint("check that the drive is writable; see 'dmesg' for details")
    };
    let mut file = OpenOptions::new().read(true).write(true).open(path).map_err(failed)?;
    let size = size_of(&mut file).map_err(failed)?;
    clear(&file, 0, ENDS, size).map_err(failed)?;
    clear(&file, size.saturating_sub(ENDS), ENDS, size).map_err(failed)?;
    for _ in 0..PASSES_MAX {
        let found = signatures::find(&file, size).map_err(failed)?;
        if found.is_empty() {
            file.sync_all().map_err(failed)?;
            return check_with_blkid(path);
        }
        for signature in found {
            let offset = signature.offset.unwrap_or(0);
            clear(&file, offset / BLOCK * BLOCK, BLOCK, size).map_err(failed)?;
        }
    }
    let left = super::inspect(path, &Openers::default());
    let left = left.map_or_else(|error| error.to_string(), |left: Inspection| left.contents_text());
    Err(Error::new(ErrorKind::Io, format!("{} still holds {left} after erasing", path.display()))
        .hint("writes to the drive have no effect: see 'dmesg', and check whether it is write-protected"))
}

/// Refuses a drive on which blkid still finds a signature.
fn check_with_blkid(path: &Path) -> Result<()> {
    let Some(left) = blkid::probe(blkid::PROGRAM, path) else { return Ok(()) };
    let message =
        format!("{} still holds {left} after erasing all signatures known to Gabion", path.display());
    Err(Error::new(ErrorKind::Io, message).hint(format!("erase it with 'wipefs --all {}'", path.display())))
}

fn clear(file: &File, offset: u64, length: u64, size: u64) -> io::Result<()> {
    let length = length.min(size.saturating_sub(offset));
    let zeros = vec![0; usize::try_from(length).unwrap_or(0)];
    file.write_all_at(&zeros, offset)
}
