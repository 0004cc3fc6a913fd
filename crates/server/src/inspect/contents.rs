//! Bytes on a drive that no known mark explains: whether it holds anything but zeros, and what that looks like.
//!
//! Always true: what is read of a drive is bounded, whatever its size. A drive is called empty when all that was looked at
//! is zeros or holes: its first and last MiB, and places spread over the rest, or over what a sparse file has allocated.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use rustix::fs::SeekFrom;
use rustix::io::Errno;

use super::signatures::Signature;

/// Bytes that are looked at as a whole at both ends of a drive.
const ENDS: u64 = 1 << 20;
/// Bytes of a drive, or of what a file has allocated, up to which all of it is looked at.
const WHOLE_MAX: u64 = 16 << 20;
/// Places that are looked at where that is more.
const PLACES: u64 = 512;
/// Bytes of such a place.
const PLACE: u64 = 4096;
/// Allocated ranges of a file that are told apart; what lies behind counts as one.
const RANGES_MAX: usize = 1024;
/// Different bytes in a place from which on it looks random.
const RANDOM_MIN: usize = 240;

/// How files begin that people would not want to lose. Where a mark lies behind the first byte, its place.
const BEGINNINGS: &[(&str, usize, &[u8])] = &[
    ("SQLite database", 0, b"SQLite format 3\0"),
    ("qcow2 image", 0, b"QFI\xFB"),
    ("QED image", 0, b"QED\0"),
    ("VMDK image", 0, b"KDMV"),
    ("VMDK image", 0, b"COWD"),
    ("VMDK image", 0, b"# Disk DescriptorFile"),
    ("VDI image", 0x40, &[0x7F, 0x10, 0xDA, 0xBE]),
    ("VHDX image", 0, b"vhdxfile"),
    ("VHD image", 0, b"conectix"),
    ("Parallels image", 0, b"WithoutFreeSpace"),
    ("Parallels image", 0, b"WithouFreSpacExt"),
    ("gzip archive", 0, &[0x1F, 0x8B, 0x08]),
    ("bzip2 archive", 0, b"BZh"),
    ("xz archive", 0, &[0xFD, b'7', b'z', b'X', b'Z', 0]),
    ("Zstandard archive", 0, &[0x28, 0xB5, 0x2F, 0xFD]),
    ("LZ4 archive", 0, &[0x04, 0x22, 0x4D, 0x18]),
    ("ZIP archive", 0, b"PK\x03\x04"),
    ("7z archive", 0, &[b'7', b'z', 0xBC, 0xAF, 0x27, 0x1C]),
    ("RAR archive", 0, b"Rar!\x1A\x07"),
    ("tar archive", 257, b"ustar"),
    ("cpio archive", 0, b"070701"),
    ("cpio archive", 0, b"070702"),
    ("ar archive", 0, b"!<arch>\n"),
    ("ELF program", 0, b"\x7FELF"),
    ("PDF document", 0, b"%PDF-"),
    ("PNG image", 0, b"\x89PNG\r\n\x1A\n"),
    ("JPEG image", 0, &[0xFF, 0xD8, 0xFF]),
    ("Matroska film", 0, &[0x1A, 0x45, 0xDF, 0xA3]),
    ("MPEG-4 film", 4, b"ftyp"),
    ("RPM package", 0, &[0xED, 0xAB, 0xEE, 0xDB]),
    ("Redis database", 0, b"REDIS0"),
    ("LMDB database", 16, &[0xDE, 0xC0, 0xEF, 0xBE]),
];

/// The first thing on a drive of `size` bytes that is not zeros, by what it looks like.
///
/// # Errors
/// When it cannot be read.
pub(super) fn find(file: &File, size: u64) -> io::Result<Option<Signature>> {
    let mut buffer = vec![0; ENDS as usize];
    for place in places(&allocated(file, size)?, size) {
        let length = usize::try_from(place.end - place.start).unwrap_or(0);
        let Some(bytes) = buffer.get_mut(..length) else { continue };
        file.read_exact_at(bytes, place.start)?;
        if let Some(at) = bytes.iter().position(|byte| *byte != 0) {
            let what = if place.start == 0 { looks_like(bytes, size) } else { data_like(bytes.get(at..)) };
            return Ok(Some(Signature { what: what.into(), offset: Some(place.start + at as u64) }));
        }
    }
    Ok(None)
}

/// The ranges of a file that are not holes. A block device is one range.
fn allocated(file: &File, size: u64) -> io::Result<Vec<Range<u64>>> {
    let mut ranges: Vec<Range<u64>> = Vec::new();
    let mut at = 0;
    while at < size {
        let start = match rustix::fs::seek(file, SeekFrom::Data(at)) {
            Ok(start) => start,
            // Nothing but a hole is left.
            Err(Errno::NXIO) => break,
            // Devices and some file systems have no holes.
            Err(Errno::INVAL | Errno::OPNOTSUPP) => at,
            Err(errno) => return Err(errno.into()),
        };
        let told_apart = ranges.len() + 1 < RANGES_MAX;
        let end =
            if told_apart { rustix::fs::seek(file, SeekFrom::Hole(start)).unwrap_or(size) } else { size };
        // A file may grow and shrink meanwhile.
        let end = end.min(size);
        if end <= start {
            break;
        }
        ranges.push(start..end);
        at = end;
    }
    Ok(ranges)
}

/// The places to look at, each of at most [`ENDS`] bytes, the first and last of the drive before the others.
pub(super) fn places(ranges: &[Range<u64>], size: u64) -> Vec<Range<u64>> {
    let mut places = Vec::new();
    let total: u64 = ranges.iter().map(|range| range.end - range.start).sum();
    if total == 0 {
        return places;
    }
    cut(0..size.min(ENDS), &mut places);
    cut(size.saturating_sub(ENDS).max(size.min(ENDS))..size, &mut places);
    if total <= WHOLE_MAX {
        for range in ranges {
            cut(range.clone(), &mut places);
        }
        return places;
    }
    // The allocated bytes are numbered through, and one place is taken of each of as many equal parts.
    let part = total / PLACES;
    let (mut before, mut ranges) = (0, ranges.iter().peekable());
    for index in 0..PLACES {
        let number = index * part + scatter(index) % part.saturating_sub(PLACE).max(1);
        while let Some(range) = ranges.next_if(|range| before + (range.end - range.start) <= number) {
            before += range.end - range.start;
        }
        let Some(range) = ranges.peek() else { break };
        let start = range.start + (number - before);
        // At whole blocks, as far as the range has them.
        let start = (start - start % PLACE).max(range.start);
        places.push(start..(start + PLACE).min(range.end));
    }
    places
}

fn cut(range: Range<u64>, into: &mut Vec<Range<u64>>) {
    let mut at = range.start;
    while at < range.end {
        let end = (at + ENDS).min(range.end);
        into.push(at..end);
        at = end;
    }
}

/// A number that looks random, the same for ever (splitmix64): places in step with what a drive holds could miss all of it.
fn scatter(index: u64) -> u64 {
    let mut mixed = index.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

/// What the beginning of a drive looks like.
fn looks_like(bytes: &[u8], size: u64) -> &'static str {
    let known = BEGINNINGS.iter().find(|(_, at, mark)| bytes.get(*at..at + mark.len()) == Some(*mark));
    if let Some((what, _, _)) = known {
        return what;
    }
    let shown = bytes.get(..512).unwrap_or(bytes);
    let is_whole = size <= shown.len() as u64;
    if is_text(shown, is_whole) { "text" } else { data_like(Some(bytes)) }
}

/// True if all of it is printable. What is cut off at the end may cut a character in two.
fn is_text(bytes: &[u8], is_whole: bool) -> bool {
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) if error.error_len().is_none() && !is_whole => {
            let whole = bytes.get(..error.valid_up_to()).unwrap_or(&[]);
            std::str::from_utf8(whole).unwrap_or("")
        }
        Err(_) => return false,
    };
    let printable = |character: char| !character.is_control() || "\t\n\r\x0C".contains(character);
    !text.is_empty() && text.chars().all(printable)
}

/// What bytes that nothing is known of look like.
fn data_like(bytes: Option<&[u8]>) -> &'static str {
    let bytes = bytes.unwrap_or(&[]);
    let bytes = bytes.get(..PLACE as usize).unwrap_or(bytes);
    let mut seen = [false; 256];
    for byte in bytes {
        if let Some(seen) = seen.get_mut(usize::from(*byte)) {
            *seen = true;
        }
    }
    let different = seen.iter().filter(|seen| **seen).count();
    if different >= RANDOM_MIN {
        "data that looks random (encrypted, compressed or overwritten)"
    } else if different == 1 && bytes.first() == Some(&0xFF) {
        "bytes 0xFF"
    } else {
        "data of an unknown kind"
    }
}
