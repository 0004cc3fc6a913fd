//! The properties of a block device or file, read from the system once, when it is opened.
//!
//! Invariant: a property that the system does not report gets its safe value (a volatile cache,
//! large alignment).

use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;

use rustix::fs::{AtFlags, FallocateFlags, FileType, SeekFrom, Stat, StatxFlags};
use rustix::io::Errno;

use crate::{ALIGNMENT, DriveProperties};

/// The alignment that I/O requires, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Alignment {
    /// Alignment of the address of each memory run.
    pub(super) memory: usize,
    /// Alignment of the offset and length of each run.
    pub(super) offset: usize,
}

impl Alignment {
    /// No alignment: I/O goes through the page cache.
    pub(super) const NONE: Self = Self { memory: 1, offset: 1 };
}

/// The type of an open file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DriveKind {
    BlockDevice,
    File,
}

impl DriveKind {
    pub(super) fn of(stat: &Stat) -> Option<Self> {
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::BlockDevice => Some(Self::BlockDevice),
            FileType::RegularFile => Some(Self::File),
            _ => None,
        }
    }
}

/// Returns the alignment for direct I/O on this descriptor; `None` if direct I/O is not supported.
pub(super) fn direct_alignment(fd: BorrowedFd<'_>) -> Option<Alignment> {
    let safe = Alignment { memory: ALIGNMENT, offset: ALIGNMENT };
    let Ok(status) = rustix::fs::statx(fd, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN) else {
        return Some(safe);
    };
    if status.stx_mask & StatxFlags::DIOALIGN.bits() == 0 {
        return Some(safe);
    }
    let alignment =
        Alignment { memory: status.stx_dio_mem_align as usize, offset: status.stx_dio_offset_align as usize };
    // Zero means that the kernel never does direct I/O on this file (compressed, encrypted or
    // journalled data).
    (alignment.memory > 0 && alignment.offset > 0).then_some(alignment)
}

/// True if the block device is write-protected.
pub(super) fn is_write_protected(stat: &Stat) -> bool {
    let (major, minor) = (rustix::fs::major(stat.st_rdev), rustix::fs::minor(stat.st_rdev));
    std::fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/ro")).is_ok_and(|text| text.trim() == "1")
}

/// Drivers of memory as block devices: a compressed or plain RAM disk, persistent memory.
const MEMORY_DRIVERS: [&str; 3] = ["zram", "ram", "pmem"];

/// True if the block device is memory, so that its driver copies on the submitting thread.
pub(super) fn is_memory(stat: &Stat) -> bool {
    let (major, minor) = (rustix::fs::major(stat.st_rdev), rustix::fs::minor(stat.st_rdev));
    let Ok(device) = std::fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")) else { return false };
    let name = device.file_name().unwrap_or_default().to_string_lossy();
    let is_named = |driver: &str| {
        name.strip_prefix(driver).is_some_and(|rest| rest.starts_with(|digit: char| digit.is_ascii_digit()))
    };
    MEMORY_DRIVERS.iter().any(|driver| is_named(driver))
}

/// Returns the properties of a block device.
pub(super) fn device_properties(fd: BorrowedFd<'_>, stat: &Stat) -> Result<DriveProperties, Errno> {
    let queue = QueueAttributes::of(stat.st_rdev);
    Ok(DriveProperties {
        size: rustix::fs::seek(fd, SeekFrom::End(0))?,
        logical_sector: rustix::fs::ioctl_blksszget(fd)?,
        physical_sector: rustix::fs::ioctl_blkpbszget(fd)?,
        volatile_cache: queue.text("write_cache").as_deref() != Some("write through"),
        discard: queue.number("discard_max_bytes").is_some_and(|bytes| bytes > 0),
        sparse: false,
        rotational: queue.number("rotational") == Some(1),
    })
}

/// Returns the properties of a file that is accessed with `alignment`.
pub(super) fn file_properties(
    fd: BorrowedFd<'_>,
    stat: &Stat,
    alignment: Alignment,
    writable: bool,
) -> DriveProperties {
    let queue = QueueAttributes::of(stat.st_dev);
    let logical_sector = (alignment.offset as u32).max(512);
    DriveProperties {
        size: stat.st_size as u64,
        logical_sector,
        physical_sector: logical_sector.max(ALIGNMENT as u32),
        // Independent of the device below: the file system's own metadata is durable only after a
        // flush.
        volatile_cache: true,
        discard: writable && supports_hole_punching(fd, stat.st_size as u64),
        sparse: true,
        rotational: queue.number("rotational") == Some(1),
    }
}

/// True if the file system supports hole punching, which is tried past the end of the file.
fn supports_hole_punching(fd: BorrowedFd<'_>, size: u64) -> bool {
    let past_end = size.next_multiple_of(ALIGNMENT as u64);
    let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(fd.as_fd(), mode, past_end, ALIGNMENT as u64).is_ok()
}

/// The kernel's attributes of a block device's request queue.
struct QueueAttributes(PathBuf);

impl QueueAttributes {
    /// Returns the queue of the device `number`; for a partition, of the whole drive.
    fn of(number: rustix::fs::Dev) -> Self {
        let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
        let device = PathBuf::from(format!("/sys/dev/block/{major}:{minor}"));
        let whole = if device.join("partition").exists() { device.join("..") } else { device };
        Self(whole.join("queue"))
    }

    fn text(&self, attribute: &str) -> Option<String> {
        let text = std::fs::read_to_string(self.0.join(attribute)).ok()?;
        Some(text.trim().to_owned())
    }

    fn number(&self, attribute: &str) -> Option<u64> {
        self.text(attribute)?.parse().ok()
    }
}
