//! Flips bits of a drive that a daemon uses, without the page cache. Linux cannot invalidate pages
//! that are written there at the same time as directly, and would fail the next flush of the drive.

use std::fs::File;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

const PAGE: usize = 4096;

/// Opens a file for [`flip_bits`].
pub(crate) fn open_below_cache(path: &Path) -> File {
    let direct = rustix::fs::OFlags::DIRECT.bits().cast_signed();
    let mut options = File::options();
    options.read(true).write(true);
    // Not all file systems have direct I/O.
    options.clone().custom_flags(direct).open(path).unwrap_or_else(|_| options.open(path).unwrap())
}

/// Flips these bits of the byte at an offset.
pub(crate) fn flip_bits(file: &File, at: u64, bits: u8) {
    let mut bytes = [0; 2 * PAGE];
    let start = bytes.as_ptr().align_offset(PAGE);
    let page = &mut bytes[start..start + PAGE];
    let within = at as usize % PAGE;
    file.read_exact_at(page, at - within as u64).unwrap();
    page[within] ^= bits;
    file.write_all_at(page, at - within as u64).unwrap();
}
