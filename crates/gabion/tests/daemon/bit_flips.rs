//! Flips bits of a file drive that a daemon uses, by direct I/O. If a direct write of the daemon
//! met a dirty page of the page cache, Linux would fail the next flush of the file, and the daemon
//! would count the drive as lost.

use std::fs::File;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

const PAGE: usize = 4096;

/// Opens a file for direct I/O, if its file system supports that.
pub(crate) fn open_direct(path: &Path) -> File {
    let direct = rustix::fs::OFlags::DIRECT.bits().cast_signed();
    let mut options = File::options();
    options.read(true).write(true);
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
