//! Signatures of file systems, partition tables, volume managers and other formats on a drive.
//!
//! Offsets and bytes follow libblkid and the documentation of each format. A signature of two bytes
//! counts only if other fields of the format are plausible too.

use std::borrow::Cow;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// A signature, or other data, found on a drive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Signature {
    /// The description of the contents.
    pub(crate) description: Cow<'static, str>,
    /// The offset in bytes; unknown for a signature that blkid found.
    pub(crate) offset: Option<u64>,
}

/// The position of a signature.
#[derive(Clone, Copy)]
enum At {
    /// An offset in bytes from the start.
    Start(u64),
    /// A distance of `back` bytes from the end, which is first rounded down to a multiple of
    /// `unit`.
    End { back: u64, unit: u64 },
}

use At::{End, Start};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// The known signatures: description, position, bytes.
const SIGNATURES: &[(&str, At, &[u8])] = &[
    ("XFS filesystem", Start(0), b"XFSB"),
    ("Btrfs filesystem", Start(64 * KIB + 64), b"_BHRfS_M"),
    ("F2FS filesystem", Start(KIB), &[0x10, 0x20, 0xF5, 0xF2]),
    ("NTFS filesystem", Start(3), b"NTFS    "),
    ("exFAT filesystem", Start(3), b"EXFAT   "),
    ("ReFS filesystem", Start(3), b"\0\0\0ReFS\0"),
    ("FAT filesystem", Start(0x36), b"FAT12   "),
    ("FAT filesystem", Start(0x36), b"FAT16   "),
    ("FAT filesystem", Start(0x52), b"FAT32   "),
    ("ISO 9660 filesystem", Start(0x8001), b"CD001"),
    ("UDF filesystem", Start(0x8001), b"BEA01"),
    ("SquashFS filesystem", Start(0), b"hsqs"),
    ("EROFS filesystem", Start(KIB), &[0xE2, 0xE1, 0xF5, 0xE0]),
    ("JFS filesystem", Start(0x8000), b"JFS1"),
    ("ReiserFS filesystem", Start(0x10034), b"ReIsEr"),
    ("GFS2 filesystem", Start(0x10000), &[0x01, 0x16, 0x19, 0x70, 0, 0, 0, 1]),
    ("APFS container", Start(32), b"NXSB"),
    ("swap space", Start(4086), b"SWAPSPACE2"),
    ("swap space", Start(4086), b"SWAP-SPACE"),
    ("hibernation image", Start(4086), b"S1SUSPEND\0"),
    ("GPT partition table", Start(512), b"EFI PART"),
    ("GPT partition table", Start(4096), b"EFI PART"),
    ("GPT partition table (backup)", End { back: 512, unit: 512 }, b"EFI PART"),
    ("GPT partition table (backup)", End { back: 4096, unit: 4096 }, b"EFI PART"),
    ("LVM physical volume", Start(24), b"LVM2 001"),
    ("LVM physical volume", Start(512 + 24), b"LVM2 001"),
    ("LVM physical volume", Start(1024 + 24), b"LVM2 001"),
    ("LVM physical volume", Start(1536 + 24), b"LVM2 001"),
    ("MD RAID member (1.1)", Start(0), &[0xFC, 0x4E, 0x2B, 0xA9, 1, 0, 0, 0]),
    ("MD RAID member (1.2)", Start(4096), &[0xFC, 0x4E, 0x2B, 0xA9, 1, 0, 0, 0]),
    ("MD RAID member (1.0)", End { back: 8 * KIB, unit: 4 * KIB }, &[0xFC, 0x4E, 0x2B, 0xA9, 1, 0, 0, 0]),
    ("MD RAID member (0.90)", End { back: 64 * KIB, unit: 64 * KIB }, &[0xFC, 0x4E, 0x2B, 0xA9, 0, 0, 0, 0]),
    ("MD RAID member (0.90)", End { back: 64 * KIB, unit: 64 * KIB }, &[0xA9, 0x2B, 0x4E, 0xFC, 0, 0, 0, 0]),
    ("Intel RAID member", End { back: 1024, unit: 512 }, b"Intel Raid ISM Cfg Sig. "),
    ("Intel RAID member", End { back: 8 * KIB, unit: 4 * KIB }, b"Intel Raid ISM Cfg Sig. "),
    ("DDF RAID member", End { back: 512, unit: 512 }, &[0xDE, 0x11, 0xDE, 0x11]),
    ("LUKS encrypted volume", Start(0), b"LUKS\xBA\xBE"),
    ("LUKS encrypted volume (second header)", Start(16 * KIB), b"SKUL\xBA\xBE"),
    ("BitLocker volume", Start(3), b"-FVE-FS-"),
    ("dm-integrity volume", Start(0), b"integrt\0"),
    ("VDO volume", Start(0), b"dmvdo001"),
    ("Stratis pool member", Start(512 + 4), b"!Stra0tis\x86\xFF\x02^\x41rh"),
    ("ZFS pool member", Start(16 * KIB + 24), b"version\0"),
    ("ZFS pool member", Start(272 * KIB + 24), b"version\0"),
    ("ZFS pool member", End { back: 496 * KIB - 24, unit: 256 * KIB }, b"version\0"),
    ("ZFS pool member", End { back: 240 * KIB - 24, unit: 256 * KIB }, b"version\0"),
    ("bcache device", Start(4096 + 24), b"\xC6\x85\x73\xF6\x4E\x1A\x45\xCA\x82\x65\xF5\x7F\x48\xBA\x6D\x81"),
    (
        "bcachefs filesystem",
        Start(4096 + 24),
        b"\xC6\x85\x73\xF6\x66\xCE\x90\xA9\xD9\x6A\x60\xCF\x80\x3D\xF7\xEF",
    ),
    ("Ceph BlueStore device", Start(0), b"bluestore block device\n"),
    ("Oracle ASM disk", Start(32), b"ORCLDISK"),
    ("SPDK blobstore", Start(0), b"SPDKBLOB"),
    ("Gabion pool member", Start(0), b"GABIONSB"),
    ("Gabion pool member", Start(2 * MIB), b"GABIONSB"),
];

/// Returns the known signatures in `file`, of `size` bytes, by offset.
///
/// # Errors
/// When the file cannot be read.
pub(crate) fn find(file: &File, size: u64) -> io::Result<Vec<Signature>> {
    let mut found = Vec::new();
    for (description, at, bytes) in SIGNATURES {
        let Some(offset) = at.resolve(size, bytes.len()) else { continue };
        if read(file, offset, bytes.len())? == *bytes {
            found.push(Signature { description: (*description).into(), offset: Some(offset) });
        }
    }
    found.extend(find_ext(file, size)?);
    found.extend(find_mbr(file, size, &found)?);
    found.extend(find_uberblock(file, size)?);
    found.sort_by_key(|signature| signature.offset);
    found.dedup();
    Ok(found)
}

impl At {
    fn resolve(self, size: u64, length: usize) -> Option<u64> {
        let offset = match self {
            Start(offset) => offset,
            End { back, unit } => (size - size % unit).checked_sub(back)?,
        };
        (offset.checked_add(length as u64)? <= size).then_some(offset)
    }
}

fn read(file: &File, offset: u64, length: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; length];
    file.read_exact_at(&mut bytes, offset)?;
    Ok(bytes)
}

/// Finds ext2, ext3 and ext4: a magic number of two bytes, with a plausible revision and block
/// size.
fn find_ext(file: &File, size: u64) -> io::Result<Option<Signature>> {
    const SUPERBLOCK: u64 = 1024;
    if size < SUPERBLOCK + 1024 {
        return Ok(None);
    }
    let block = read(file, SUPERBLOCK, 264)?;
    let word =
        |at: usize| block.get(at..at + 4).and_then(|word| word.try_into().ok()).map_or(0, u32::from_le_bytes);
    let magic = block.get(0x38..0x3A) == Some(&[0x53, 0xEF]);
    let (blocks, log_block_size, revision) = (word(0x04), word(0x18), word(0x4C));
    if !magic || blocks == 0 || log_block_size > 6 || revision > 1 {
        return Ok(None);
    }
    let (compatible, incompatible) = (word(0x5C), word(0x60));
    let description = match (incompatible & 0x40 != 0, compatible & 0x4 != 0) {
        (true, _) => "ext4 filesystem",
        (false, true) => "ext3 filesystem",
        (false, false) => "ext2 filesystem",
    };
    Ok(Some(Signature { description: description.into(), offset: Some(SUPERBLOCK + 0x38) }))
}

/// Finds an MBR partition table: two bytes at the end of the first sector, which boot sectors of
/// file systems have too.
fn find_mbr(file: &File, size: u64, found: &[Signature]) -> io::Result<Option<Signature>> {
    if size < 512
        || found.iter().any(|signature| {
            signature.offset.is_some_and(|offset| offset < 510)
                && signature.description.ends_with("filesystem")
        })
    {
        return Ok(None);
    }
    let sector = read(file, 0, 512)?;
    let mut entries = sector.get(446..510).unwrap_or(&[]).chunks_exact(16);
    let marked = sector.get(510..) == Some(&[0x55, 0xAA]);
    let sane = entries.clone().all(|entry| entry.first().is_some_and(|flag| flag & 0x7F == 0));
    let used = entries.any(|entry| entry.get(4).is_some_and(|kind| *kind != 0));
    Ok((marked && sane && used)
        .then_some(Signature { description: "MBR partition table".into(), offset: Some(510) }))
}

/// Finds a ZFS uberblock in the second half of a label.
fn find_uberblock(file: &File, size: u64) -> io::Result<Option<Signature>> {
    const LABEL: u64 = 256 * KIB;
    const FIRST: u64 = 128 * KIB;
    const MAGIC: u64 = 0x00BA_B10C;
    let end = size - size % LABEL;
    for label in
        [Some(0), Some(LABEL), end.checked_sub(2 * LABEL), end.checked_sub(LABEL)].into_iter().flatten()
    {
        if label + LABEL > size {
            continue;
        }
        let ring = read(file, label + FIRST, usize::try_from(LABEL - FIRST).unwrap_or(0))?;
        for (index, slot) in ring.chunks_exact(KIB as usize).enumerate() {
            let magic = slot.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
            if magic == MAGIC || magic.swap_bytes() == MAGIC {
                return Ok(Some(Signature {
                    description: "ZFS pool member".into(),
                    offset: Some(label + FIRST + index as u64 * KIB),
                }));
            }
        }
    }
    Ok(None)
}

/// Returns the signatures of the table with their offsets on a drive of `size` bytes, for tests.
#[cfg(test)]
pub(super) fn table(size: u64) -> impl Iterator<Item = (&'static str, u64, &'static [u8])> {
    SIGNATURES
        .iter()
        .filter_map(move |(name, at, bytes)| Some((*name, at.resolve(size, bytes.len())?, *bytes)))
}
