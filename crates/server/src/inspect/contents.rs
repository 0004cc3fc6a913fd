//! Detection of data without a known signature: non-zero bytes, and a guess at their kind.
//!
//! Invariant: the amount that is read does not grow with the size of the drive. A drive counts as
//! empty if all samples are zeros or holes: the first and last MiB, and samples spread over the
//! rest, or over the allocated ranges of a sparse file.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use rustix::fs::SeekFrom;
use rustix::io::Errno;

use super::signatures::Signature;

/// Bytes that are read completely at each end of a drive.
const ENDS: u64 = 1 << 20;
/// Size of a drive, or of the allocated ranges of a file, up to which it is read completely.
const WHOLE_MAX: u64 = 16 << 20;
/// Number of samples of a larger drive.
const SAMPLES: u64 = 512;
/// Bytes of a sample.
const SAMPLE: u64 = 4096;
/// Maximum number of allocated ranges of a file; the rest of the file counts as one more range.
const RANGES_MAX: usize = 1024;
/// Number of distinct byte values in a sample from which on it looks random.
const RANDOM_MIN: usize = 240;

/// Magic numbers of valuable file formats: description, offset, bytes.
const FILE_MAGICS: &[(&str, usize, &[u8])] = &[
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

/// Returns the first non-zero data in the samples of a drive of `size` bytes, with a guess at its
/// kind.
///
/// # Errors
/// When the drive cannot be read.
pub(super) fn find(file: &File, size: u64) -> io::Result<Option<Signature>> {
    let mut buffer = vec![0; ENDS as usize];
    for sample in samples(&allocated(file, size)?, size) {
        let length = usize::try_from(sample.end - sample.start).unwrap_or(0);
        let Some(bytes) = buffer.get_mut(..length) else { continue };
        file.read_exact_at(bytes, sample.start)?;
        if let Some(at) = bytes.iter().position(|byte| *byte != 0) {
            let kind =
                if sample.start == 0 { kind_of_start(bytes, size) } else { kind_of_data(bytes.get(at..)) };
            return Ok(Some(Signature { description: kind.into(), offset: Some(sample.start + at as u64) }));
        }
    }
    Ok(None)
}

/// Returns the ranges of a file that are not holes. A block device is one range.
fn allocated(file: &File, size: u64) -> io::Result<Vec<Range<u64>>> {
    let mut ranges: Vec<Range<u64>> = Vec::new();
    let mut at = 0;
    while at < size {
        let start = match rustix::fs::seek(file, SeekFrom::Data(at)) {
            Ok(start) => start,
            // The rest of the file is a hole.
            Err(Errno::NXIO) => break,
            // Devices and some file systems do not support holes.
            Err(Errno::INVAL | Errno::OPNOTSUPP) => at,
            Err(errno) => return Err(errno.into()),
        };
        let is_last = ranges.len() + 1 >= RANGES_MAX;
        let end = if is_last { size } else { rustix::fs::seek(file, SeekFrom::Hole(start)).unwrap_or(size) };
        // The file may change its size in the meantime.
        let end = end.min(size);
        if end <= start {
            break;
        }
        ranges.push(start..end);
        at = end;
    }
    Ok(ranges)
}

/// Returns the ranges to read, each of up to [`ENDS`] bytes, beginning with both ends of the drive.
pub(super) fn samples(ranges: &[Range<u64>], size: u64) -> Vec<Range<u64>> {
    let mut samples = Vec::new();
    let total: u64 = ranges.iter().map(|range| range.end - range.start).sum();
    if total == 0 {
        return samples;
    }
    split(0..size.min(ENDS), &mut samples);
    split(size.saturating_sub(ENDS).max(size.min(ENDS))..size, &mut samples);
    if total <= WHOLE_MAX {
        for range in ranges {
            split(range.clone(), &mut samples);
        }
        return samples;
    }
    // The allocated bytes are divided into equal parts, with one sample in each.
    let part = total / SAMPLES;
    let (mut before, mut ranges) = (0, ranges.iter().peekable());
    for index in 0..SAMPLES {
        let number = index * part + scatter(index) % part.saturating_sub(SAMPLE).max(1);
        while let Some(range) = ranges.next_if(|range| before + (range.end - range.start) <= number) {
            before += range.end - range.start;
        }
        let Some(range) = ranges.peek() else { break };
        let start = range.start + (number - before);
        // Aligned to blocks, within the range.
        let start = (start - start % SAMPLE).max(range.start);
        samples.push(start..(start + SAMPLE).min(range.end));
    }
    samples
}

/// Splits a range into parts of up to [`ENDS`] bytes.
fn split(range: Range<u64>, into: &mut Vec<Range<u64>>) {
    let mut at = range.start;
    while at < range.end {
        let end = (at + ENDS).min(range.end);
        into.push(at..end);
        at = end;
    }
}

/// Returns a deterministic pseudo-random number (splitmix64). Equally spaced samples could miss all
/// data of a drive with a regular layout.
fn scatter(index: u64) -> u64 {
    let mut mixed = index.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

/// Returns the likely kind of the data at the start of a drive.
fn kind_of_start(bytes: &[u8], size: u64) -> &'static str {
    let known = FILE_MAGICS.iter().find(|(_, at, magic)| bytes.get(*at..at + magic.len()) == Some(*magic));
    if let Some((description, _, _)) = known {
        return description;
    }
    let start = bytes.get(..512).unwrap_or(bytes);
    let is_whole = size <= start.len() as u64;
    if is_text(start, is_whole) { "text" } else { kind_of_data(Some(bytes)) }
}

/// Returns true if all bytes are printable text. Unless `is_whole`, the last character may be
/// incomplete.
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

/// Returns the likely kind of data without a known magic number.
fn kind_of_data(bytes: Option<&[u8]>) -> &'static str {
    let bytes = bytes.unwrap_or(&[]);
    let bytes = bytes.get(..SAMPLE as usize).unwrap_or(bytes);
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
